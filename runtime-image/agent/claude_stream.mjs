// Claude Code as one process that stays: messages go to its stdin as they come, also while it works.
//
// Claude Code takes a message in before its next call of the model, and repeats it in its output (--replay-user-messages):
// only then is it acknowledged. An interrupt ends the turn by a control request, and its text is the next turn.
import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";

import { dismissed, isInterruption } from "./agents.mjs";
import { Child, exitCode } from "./child.mjs";
import { ClaudeEvents } from "./claude_events.mjs";

const INTERRUPT_MS = 10_000; // for a turn to end by a control request; then SIGINT
const SILENCE_MS = 30_000; // for a message to be taken in after the end of a turn
const LATE_MS = 5000; // for the message of an interrupt that has already ended the call of the model
const RESTARTS = 3; // processes that follow one which was ended by SIGINT

/** The arguments that the worker sets itself. */
const FLAGS = [
  "--print", "--output-format", "stream-json", "--verbose", "--input-format", "stream-json", "--replay-user-messages",
];

export class ClaudeStream {
  constructor({ program, args, prompt, worker, stayMs = 0 }) {
    Object.assign(this, { program, args, worker, stayMs });
    this.events = new ClaudeEvents();
    this.pending = new Map(); // uuid -> {message, wasRepeated}: not taken in yet
    this.#put({ content: prompt });
  }

  /** Runs until Claude Code has ended; resolves with the end and what came of it. */
  async run() {
    for (let process = 0; ; process += 1) {
      const end = await this.#process();
      if (this.wasInterrupted && this.events.session && !end.wasStopped && process < RESTARTS) await this.#waitForNext();
      const isCut = this.wasInterrupted && this.pending.size > 0 && this.events.session;
      if (isCut && !end.wasStopped && process < RESTARTS) continue;
      const outcome = this.events.outcome(end, exitCode(end));
      const wasKilled = end.signal && !this.wasInterrupted;
      return this.then && !end.wasStopped && !wasKilled ? dismissed(outcome) : outcome;
    }
  }

  /** A message for the agent. */
  message(message) {
    if (message.then) return this.#dismiss(message);
    this.then = undefined;
    clearTimeout(this.stay);
    if (message.type === "interrupt" && this.isTurn) this.#interrupt(message);
    this.#put(message);
    this.wake?.();
    return undefined;
  }

  stop() {
    clearTimeout(this.stay);
    this.isOver = true;
    this.wake?.();
    this.child?.stop();
  }

  /** An interrupt whose text begins no turn: the agent waits then, or ends. */
  #dismiss(message) {
    this.worker.delivered([message]);
    if (this.isTurn) {
      this.then = message.then;
      this.#interrupt(message);
    } else if (message.then === "end" && this.pending.size === 0) {
      if (this.child) this.#close();
      this.isOver = true;
      this.wake?.();
    }
  }

  /** After a process that was ended by SIGINT: another one resumes its session with the next message. */
  async #waitForNext() {
    if (this.then !== "wait" || this.pending.size > 0 || this.stayMs === 0 || this.isOver) return;
    this.worker.waiting();
    await new Promise((resolve) => {
      this.wake = resolve;
      this.stay = setTimeout(resolve, this.stayMs);
    });
    clearTimeout(this.stay);
    this.wake = undefined;
  }

  // -- Its stdin ------------------------------------------------------------------------------------------------------

  #put(message) {
    const uuid = randomUUID();
    this.pending.set(uuid, { message });
    if (this.child && !this.isOver) this.#write(uuid, message);
  }

  #write(uuid, { content }) {
    this.child.tell(JSON.stringify({ type: "user", message: { role: "user", content }, uuid }));
    this.#watch();
  }

  #interrupt({ id }) {
    this.worker.emit("agent.interrupted", { message_id: id });
    // An earlier interrupt already ends this turn.
    if (this.interrupting) return;
    this.child.tell(JSON.stringify({ type: "control_request", request_id: randomUUID(), request: { subtype: "interrupt" } }));
    this.interrupting = setTimeout(() => {
      this.wasInterrupted = true;
      this.child?.interrupt();
    }, INTERRUPT_MS);
  }

  // -- Its process ----------------------------------------------------------------------------------------------------

  async #process() {
    if (this.isOver) return { code: 143, signal: null, wasStopped: true };
    const session = this.wasInterrupted ? ["--resume", this.events.session] : [];
    this.wasInterrupted = this.isTurn = this.hasAnswered = false;
    this.events.begin();
    this.child = new Child([this.program, ...this.args, ...session, ...FLAGS], {
      env: process.env, stdin: "pipe", heard: { stdout: (line) => this.#line(line) },
    });
    for (const [uuid, { message }] of this.pending) this.#write(uuid, message);
    const end = await this.child.ended;
    this.child.closeStdin();
    const { tail } = this.child;
    this.child = undefined;
    this.isTurn = false;
    for (const timer of [this.silence, this.interrupting, this.stay]) clearTimeout(timer);
    this.interrupting = undefined;
    return { ...end, tail };
  }

  #line(line) {
    this.worker.raw(line);
    this.#watch();
    const events = this.events.line(line, (what, value) => this.#signal(what, value));
    for (const { type, data, merge } of events) this.worker.emit(type, data, { merge });
  }

  #signal(what, value) {
    if (what === "started") this.isTurn = true;
    else if (what === "replay") this.#taken(value);
    else if (what === "result") this.#turnEnded(value);
    else if (what === "control_request") {
      // Claude Code needs no permission of ours, and would wait for an answer.
      const response = { subtype: "error", request_id: value.request_id, error: "the worker decides nothing" };
      this.child.tell(JSON.stringify({ type: "control_response", response }));
    }
  }

  #taken({ uuid, text }) {
    const { message } = this.pending.get(uuid) ?? {};
    this.pending.delete(uuid);
    this.worker.emit("agent.user_message", { text: message?.content ?? text, message_id: message?.id });
    if (message?.id) this.worker.delivered([message]);
  }

  // -- The end of a turn ----------------------------------------------------------------------------------------------

  async #turnEnded(result) {
    this.isTurn = false;
    this.hasAnswered = true;
    clearTimeout(this.interrupting);
    this.interrupting = undefined;
    if (this.pending.size > 0) return this.#watch();
    await this.#look(result);
    if (this.pending.size > 0 || this.isOver || this.isTurn) return undefined;
    const isToStay = this.then ? this.then === "wait" : !result.isError;
    if (this.stayMs === 0 || !isToStay) return this.#close();
    this.worker.waiting();
    clearTimeout(this.stay);
    this.stay = setTimeout(() => this.#close(), this.stayMs);
    return undefined;
  }

  /** The daemon ends the call of the model at once, and its message can come a moment later. */
  async #look(result) {
    const isLate = result.isError && isInterruption(result.text);
    for (const end = Date.now() + LATE_MS; ; ) {
      await this.worker.look();
      if (!isLate || this.pending.size > 0 || this.isOver || Date.now() > end) return;
      await pause(500);
    }
  }

  #close() {
    this.isOver = true;
    this.child?.closeStdin();
  }

  /** A message that is not taken in after a turn is written once more, and then given up: the process must not hang. */
  #watch() {
    clearTimeout(this.silence);
    // Before its first answer it may still be starting, and in a turn a tool may be silent for long.
    if (this.pending.size === 0 || this.isOver || this.isTurn || !this.hasAnswered) return;
    this.silence = setTimeout(() => {
      const again = [...this.pending].filter(([, item]) => !item.wasRepeated);
      if (again.length === 0) this.#close();
      for (const [uuid, item] of again) {
        item.wasRepeated = true;
        this.#write(uuid, item.message);
      }
    }, SILENCE_MS);
  }
}
