// An agent with a process for each turn, which resumes the session of the previous one: `codex exec`, `claude --resume`.
//
// A message waits for the end of the turn; an interrupt ends it by SIGINT. Messages that wait are one turn together.
import { setTimeout as pause } from "node:timers/promises";

import { dismissed, isInterruption } from "./agents.mjs";
import { Child, exitCode } from "./child.mjs";

const INTERRUPT_MS = 10_000; // for a process to end by SIGINT; then SIGTERM and SIGKILL
const LATE_MS = 5000; // for the message of an interrupt that has already ended the call of the model

export class Turns {
  /** `agent` has argv(session) and events: see agents.mjs. */
  constructor({ agent, prompt, worker, stayMs = 0 }) {
    Object.assign(this, { agent, worker, stayMs });
    this.first = prompt;
    this.next = []; // messages that wait
  }

  async run() {
    let turn = { prompt: this.first, messages: [] };
    for (;;) {
      const end = await this.#turn(turn);
      const outcome = this.agent.events.outcome(end, exitCode(end));
      if (this.isOver) return outcome;
      await this.#more(outcome);
      if (this.isOver) return outcome;
      if (this.next.length === 0) return this.then ? dismissed(outcome) : outcome;
      this.then = undefined;
      const messages = this.next.splice(0);
      const texts = messages.map(({ content }) => content);
      // A process that failed before it had a session never received the first prompt.
      const prompt = (this.agent.events.session ? texts : [turn.prompt, ...texts]).join("\n\n");
      turn = { prompt, messages: [...turn.messages.filter(({ isTold }) => !isTold), ...messages] };
    }
  }

  message(message) {
    if (message.then) this.#dismiss(message);
    else this.next.push(message);
    this.wake?.();
    if (message.type !== "interrupt" || !this.child || this.wasInterrupted) return;
    this.wasInterrupted = true;
    this.worker.emit("agent.interrupted", { message_id: message.id });
    this.child.interrupt();
    this.interrupting = setTimeout(() => this.child?.stop(), INTERRUPT_MS);
  }

  /** Handles an interrupt that starts no turn: the agent waits then, or ends. */
  #dismiss(message) {
    this.worker.delivered([message]);
    // A turn that has ended by itself meanwhile has an answer.
    if (this.child || message.then === "end") this.then = message.then;
  }

  stop() {
    this.isOver = true;
    this.wake?.();
    this.child?.stop();
  }

  async #turn({ prompt, messages }) {
    if (this.isOver) return { code: 143, signal: null, wasStopped: true };
    this.wasInterrupted = false;
    this.agent.events.begin();
    this.worker.emit("agent.user_message", { text: prompt, message_ids: messages.length > 0 ? messages.map(({ id }) => id) : undefined });
    const told = () => {
      const news = messages.filter((message) => !message.isTold);
      for (const message of news) message.isTold = true;
      if (news.length > 0) this.worker.delivered(news);
    };
    const line = (text) => {
      this.worker.raw(text);
      const events = this.agent.events.line(text, (what) => what === "started" && told());
      for (const { type, data, merge } of events) this.worker.emit(type, data, { merge });
    };
    this.child = new Child(this.agent.argv(this.agent.events.session), {
      env: process.env, stdin: "pipe", heard: { stdout: line },
    });
    // By stdin: a command line has less room than a task, and a prompt may begin with a dash.
    this.child.tell(prompt);
    this.child.closeStdin();
    const end = await this.child.ended;
    clearTimeout(this.interrupting);
    const { tail } = this.child;
    this.child = undefined;
    // The end of an interrupted turn does not stop the run.
    return { ...end, tail, wasStopped: this.isOver === true };
  }

  /** Looks for messages before the agent ends; waits for them with --stay. */
  async #more(outcome) {
    const isLate = isInterruption(outcome.failed?.error);
    for (const end = Date.now() + LATE_MS; this.next.length === 0 && !this.isOver; ) {
      await this.worker.look();
      if (!isLate || Date.now() > end) break;
      await pause(500);
    }
    const isToStay = this.then ? this.then === "wait" : outcome.completed;
    if (this.next.length > 0 || this.isOver || this.stayMs === 0 || !isToStay) return;
    this.worker.waiting();
    await new Promise((resolve) => {
      this.wake = resolve;
      this.stay = setTimeout(resolve, this.stayMs);
    });
    clearTimeout(this.stay);
  }
}
