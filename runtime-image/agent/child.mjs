// The program that the worker runs: its output by lines, its end, and the ways to end it.
import { spawn } from "node:child_process";
import { constants } from "node:os";

import { Lines } from "./lines.mjs";

export const LONGEST_LINE = 8 * 1024 * 1024; // characters
const STDERR_TAIL = 2000; // characters that an error tells
const TERM_MS = 3000; // from SIGTERM to SIGKILL
const PIPES_MS = 2000; // for a pipe that a process holds open which outlived the program

/** The exit code of a shell for an end. */
export function exitCode({ code, signal, error }) {
  if (error) return error === "EACCES" ? 126 : 127;
  return code ?? 128 + (constants.signals[signal] ?? 0);
}

/** Passes a stream on as fast as its reader takes it. */
function passOn(from, to) {
  from.on("data", (chunk) => {
    if (to.write(chunk)) return;
    from.pause();
    to.once("drain", () => from.resume());
  });
}

export class Child {
  /**
   * Starts `argv`. `heard.stdout` and `heard.stderr` get (line, leftOut), of a line at most
   * `lineMax` characters. `stdin` is "pipe" or "ignore"; with
   * `showStdout`, stdout goes on to ours; stderr always does. `ended` resolves with {code, signal, error, wasStopped}.
   */
  constructor(argv, { env, cwd, stdin = "ignore", showStdout = false, lineMax = LONGEST_LINE, heard = {} }) {
    const [program, ...args] = argv;
    this.tail = "";
    this.lineMax = lineMax;
    try {
      // A group of its own, so that a signal also ends all processes that it has started.
      this.process = spawn(program, args, { env, cwd, detached: true, stdio: [stdin, "pipe", "pipe"] });
    } catch (error) {
      // Arguments that are invalid for any program, or too many of them.
      this.ended = Promise.resolve({ error: error.code ?? "unknown", wasStopped: false });
      return;
    }
    const { stdout, stderr } = this.process;
    if (showStdout) passOn(stdout, process.stdout);
    passOn(stderr, process.stderr);
    this.#read(stdout, heard.stdout);
    this.#read(stderr, (line, leftOut) => {
      this.tail = `${this.tail}${line}\n`.slice(-STDERR_TAIL);
      heard.stderr?.(line, leftOut);
    });
    this.ended = this.#end();
    // A program that has ended no longer reads its stdin.
    this.process.stdin?.on("error", () => {});
  }

  /** Writes a line to stdin; false if it is closed. */
  tell(line) {
    const stdin = this.process?.stdin;
    if (!stdin?.writable) return false;
    stdin.write(`${line}\n`);
    return true;
  }

  closeStdin() {
    this.process?.stdin?.end();
  }

  /** SIGINT to the program alone: agents end their turn by it. */
  interrupt() {
    this.process?.kill("SIGINT");
  }

  /** SIGTERM, and SIGKILL a little later, to the program and all that it has started. */
  stop() {
    if (this.wasStopped) return;
    this.wasStopped = true;
    this.#signal("SIGTERM");
    this.killer = setTimeout(() => this.#signal("SIGKILL"), TERM_MS);
  }

  #signal(name) {
    try {
      process.kill(-this.process.pid, name);
    } catch {
      // It has ended, or was never started.
    }
  }

  #read(stream, heard) {
    if (!heard) return;
    const lines = new Lines(this.lineMax, heard);
    stream.on("data", (chunk) => lines.add(chunk));
    stream.on("close", () => lines.end());
  }

  #end() {
    const child = this.process;
    return new Promise((resolve) => {
      const finish = (end) => {
        clearTimeout(this.killer);
        resolve({ ...end, wasStopped: this.wasStopped === true });
      };
      child.on("error", (error) => finish({ error: error.code ?? "unknown" }));
      child.on("exit", () => {
        setTimeout(() => {
          child.stdout.destroy();
          child.stderr.destroy();
        }, PIPES_MS).unref();
      });
      child.on("close", (code, signal) => finish({ code, signal }));
    });
  }
}
