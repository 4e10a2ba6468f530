// Lines of a byte stream, with a bound. Pure.
import { StringDecoder } from "node:string_decoder";

/** Calls `heard(line, leftOut)` for each line; of a longer one the first `max` characters, and how many were left out. */
export class Lines {
  constructor(max, heard) {
    this.max = max;
    this.heard = heard;
    this.decoder = new StringDecoder("utf8");
    this.pieces = []; // a list: adding to one text would copy a long line again and again
    this.length = 0;
    this.leftOut = 0;
  }

  add(chunk) {
    this.#add(this.decoder.write(chunk));
  }

  /** The stream has ended: a last line needs no newline. */
  end() {
    this.#add(this.decoder.end());
    if (this.length > 0 || this.leftOut > 0) this.#close();
  }

  #add(text) {
    let from = 0;
    for (let at = text.indexOf("\n"); at !== -1; at = text.indexOf("\n", from)) {
      this.#keep(text.slice(from, at));
      this.#close();
      from = at + 1;
    }
    this.#keep(text.slice(from));
  }

  #keep(piece) {
    const kept = piece.slice(0, this.max - this.length);
    if (kept) this.pieces.push(kept);
    this.length += kept.length;
    this.leftOut += piece.length - kept.length;
  }

  #close() {
    const line = this.pieces.join("");
    const { leftOut } = this;
    this.pieces = [];
    this.length = this.leftOut = 0;
    this.heard(line.endsWith("\r") ? line.slice(0, -1) : line, leftOut);
  }
}
