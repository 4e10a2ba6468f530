// Any program: its output is told as it comes, its end by its exit code.
//
// It reads no messages, so the worker asks for none, and the sidecar adds them to the calls of the program. With a file for
// them (--inbox), the worker writes each as a line of JSON, and an interrupt is SIGINT.
import { appendFileSync } from "node:fs";

import { Child, exitCode } from "./child.mjs";

const LINE_MAX = 16_000; // characters of a line that an event tells

export class Program {
  constructor({ argv, inboxFile, worker }) {
    Object.assign(this, { argv, inboxFile, worker });
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

  message(message) {
    const { id, content, type } = message;
    try {
      appendFileSync(this.inboxFile, `${JSON.stringify({ id, message_type: type, content })}\n`);
    } catch (error) {
      this.worker.say(`${this.inboxFile} cannot be written: ${error.code}`);
      return;
    }
    if (type === "interrupt") {
      this.worker.emit("agent.interrupted", { message_id: id });
      this.child?.interrupt();
    }
    this.worker.delivered([message]);
  }

  stop() {
    this.isOver = true;
    this.child?.stop();
  }
}
