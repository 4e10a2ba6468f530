// The transcript of a run: /workspace/.sluice/transcript.jsonl, one JSON object a line: {ts, type, data}.
import { closeSync, constants, fstatSync, mkdirSync, openSync, writeSync } from "node:fs";
import { dirname } from "node:path";

import { boundedJson } from "./bounded_json.mjs";

export const TRANSCRIPT_FILE = "/workspace/.sluice/transcript.jsonl";
const FILE_MAX = 64 * 1024 * 1024; // bytes
const LAST_LINE = 200; // bytes that the last line needs

/** A transcript that cannot be written is none: the agent works without it, and `say` gets one line about that. */
export class Transcript {
  constructor(file = TRANSCRIPT_FILE, { max = FILE_MAX, say = () => {} } = {}) {
    Object.assign(this, { path: file, say, left: 0 });
    try {
      mkdirSync(dirname(file), { recursive: true });
      const { O_APPEND, O_CREAT, O_NOFOLLOW, O_NONBLOCK, O_WRONLY } = constants;
      this.file = openSync(file, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0o644);
      const found = fstatSync(this.file);
      const left = found.isFile() ? max - found.size : 0;
      this.left = left > LAST_LINE ? left : 0;
    } catch (error) {
      this.#giveUp(error);
    }
  }

  add(type, data) {
    if (this.file === undefined || this.left <= 0) return;
    let line = `{"ts":${JSON.stringify(new Date().toISOString())},"type":${JSON.stringify(type)},"data":${boundedJson(data)}}\n`;
    if (Buffer.byteLength(line) + LAST_LINE > this.left) {
      line = `${JSON.stringify({ ts: new Date().toISOString(), type: "transcript.full", data: {} })}\n`;
      this.left = 0;
    }
    try {
      this.left -= writeSync(this.file, line);
    } catch (error) {
      this.#giveUp(error);
    }
  }

  #giveUp({ code }) {
    this.left = 0;
    this.say(`the transcript ${this.path} cannot be written: ${code}; the run goes on without it`);
  }

  close() {
    if (this.file !== undefined) closeSync(this.file);
    this.file = undefined;
  }
}
