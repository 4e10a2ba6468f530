// Any program: its output is reported as it comes, and its exit code decides the result.
//
// It reads no messages, so the worker asks for none, and the sidecar adds them to the calls of the program. With a file for
// them (--inbox), the worker writes each as a line of JSON, and an interrupt is SIGINT.
import { appendFileSync, closeSync, fstatSync, ftruncateSync, openSync } from "node:fs";

import { Child, exitCode } from "./child.mjs";

const LINE_MAX = 16_000; // characters of a line that an event tells

/** Appends a line to a file: all of it, or nothing. */
function append(path, line) {
  const file = openSync(path, "a");
  try {
    const { size } = fstatSync(file);
    try {
      appendFileSync(file, line);
    } catch (error) {
      // A partial line would damage the next one. A pipe cannot be truncated.
      if (fstatSync(file).isFile()) ftruncateSync(file, size);
      throw error;
    }
  } finally {
    closeSync(file);
  }
}

export class Program {
  constructor({ argv, inboxFile, worker }) {
    Object.assign(this, { argv, inboxFile, worker });
    this.interrupted = new Set(); // ids of interrupts that had their effect
  }

  async run() {
    const tell = (stream) => (line, leftOut) => {
      const text = leftOut > 0 ? `${line}[… ${leftOut} characters left out …]` : line;
      this.worker.emit("agent.message", { stream, text: `${text}\n` }, { merge: stream });
    };
    if (this.isOver) return { code: 143, signal: null, wasStopped: true, exit: 143 };
    this.child = new Child(this.argv, {
      env: process.env, showStdout: true, lineMax: LINE_MAX, heard: { stdout: tell("stdout"), stderr: tell("stderr") },
    });
    const end = await this.child.ended;
    const exit = exitCode(end);
    return { ...end, exit, completed: exit === 0 ? { success: true, exit_code: 0 } : undefined };
  }

  /** Writes a message for the program; false if it cannot be written. An interrupt has its effect in any case, and once. */
  message(message) {
    const { id, content, type, then } = message;
    const isWritten = this.#write({ id, message_type: type, content, then });
    if (type === "interrupt" && !this.interrupted.has(id)) {
      this.interrupted.add(id);
      this.worker.emit("agent.interrupted", { message_id: id });
      this.child?.interrupt();
    }
    if (isWritten) this.worker.delivered([message]);
    return isWritten;
  }

  #write(line) {
    try {
      append(this.inboxFile, `${JSON.stringify(line)}\n`);
      return true;
    } catch (error) {
      this.worker.say(`${this.inboxFile} cannot be written: ${error.code}; the message comes again`);
      return false;
    }
  }

  stop() {
    this.isOver = true;
    this.child?.stop();
  }
}
