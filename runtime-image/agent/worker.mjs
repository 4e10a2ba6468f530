#!/usr/bin/env node
// The worker of the image, sluice-worker: runs a program or a coding agent, and reports its events to the daemon.
//
//   RUN_ID, LLM_PROXY_PORT     where the run reaches its daemon; without one, the worker only runs the program
//   SLUICE_TRANSCRIPT          another file for the transcript
//   SLUICE_STAY                the time of --stay for an agent without that flag: the run gets the turns of a chat
//
// At the same time: events, a heartbeat every 30 s, and the messages for the agent. None of these can stop the agent.
// The exit code is the program's; 128 and the signal's number if a signal ended it; 2 for a wrong command line.
import { setDefaultResultOrder } from "node:dns";
import { existsSync, readFileSync, realpathSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { ClaudeTurns, CodexTurns, UsageError, isInterruption } from "./agents.mjs";
import { ask } from "./ask.mjs";
import { plainText } from "./bounded_json.mjs";
import { textOf } from "./claude_events.mjs";
import { ClaudeStream } from "./claude_stream.mjs";
import { EventQueue } from "./event_queue.mjs";
import { Inbox } from "./inbox.mjs";
import { Program } from "./program.mjs";
import { Relay, meaning, relayAddress } from "./relay.mjs";
import { USAGE, readCommand, withStay } from "./settings.mjs";
import { Transcript } from "./transcript.mjs";
import { Turns } from "./turns.mjs";

const MESSAGES_FILE = "/workspace/.sluice/messages.json";
const HEARTBEAT_MS = 30_000;
const FLUSH_MS = 15_000; // for events at the end of the program
const FLUSH_STOPPED_MS = 5000; // after SIGTERM, the end of the program included
const TASK_RETRY_MS = [1000, 2000, 4000];

export function say(text) {
  process.stderr.write(`sluice-worker: ${text}\n`);
}

/** The event for an end that is not the agent's own word; nothing if the program ended well. */
export function streamError({ code, signal, error, tail }) {
  const event = (error_type, message) => ({
    error_type, message, exit_code: code ?? undefined, signal: signal ?? undefined, stderr_tail: tail || undefined,
  });
  if (error) return event("stream_init", `the program cannot be started: ${error}`);
  if (signal === "SIGKILL") return event("sigkill", "the program was killed by SIGKILL, as the kernel does for lack of memory");
  if (signal) return event("unknown", `the program was ended by ${signal}`);
  if (code !== 0) return event("command_failed", `the program ended with ${code}`);
  return event("unknown", "the program ended without a result");
}

export class Worker {
  constructor({ relay, transcript, name, heartbeatMs = HEARTBEAT_MS, queue = {} }) {
    Object.assign(this, { relay, transcript, name, heartbeatMs });
    const post = (body) => relay.send("events", "POST", "events", { body });
    this.queue = relay && new EventQueue(post, { say, ...queue });
    this.status = "running";
    this.raw = () => {};
    this.say = say;
  }

  emit(type, data, options) {
    this.transcript.add(type, data);
    this.queue?.push(type, data, options);
  }

  /** The agent has these messages. */
  delivered(messages) {
    for (const { id, type, then } of messages) {
      this.emit("agent.message_injected", { message_id: id, message_type: type });
      if (!then) this.taken = id;
    }
    this.inbox?.acknowledge(messages.map(({ id }) => id));
  }

  /** Asks once for messages. */
  async look() {
    await this.inbox?.look();
  }

  waiting() {
    this.status = "waiting";
    // The message identifies the turn that is over: a report can come late, or twice.
    this.emit("agent.waiting", { after: this.taken ?? null });
  }

  /** Runs a session to its end; `readsMessages` if it takes messages. Resolves with what came of it. */
  async run(session, readsMessages) {
    this.session = session;
    if (this.relay && readsMessages) {
      this.inbox = new Inbox(this.relay, (message) => {
        if (!message.then) this.status = "running";
        return session.message(message);
      });
    }
    this.emit("agent.started", { agent: this.name, worker: 1 });
    const beating = new AbortController();
    if (this.relay) this.#beat(beating.signal);
    if (this.stopSignal) session.stop();
    const running = session.run();
    this.inbox?.start();
    const outcome = await running;
    this.#tellEnd(outcome);
    beating.abort();
    const left = this.stopAt === undefined ? FLUSH_MS : Math.max(this.stopAt + FLUSH_STOPPED_MS - performance.now(), 500);
    await Promise.all([this.queue?.flush(left), this.inbox?.stop(Math.min(left, 2000))]);
    this.transcript.close();
    this.relay?.close();
    return outcome;
  }

  /** SIGTERM and its like: the program is ended, and what is known goes out. */
  stop(signal) {
    if (this.stopAt !== undefined) return;
    this.stopAt = performance.now();
    this.stopSignal = signal;
    // The container may be killed a second later.
    this.emit("agent.shutdown", { signal }, { first: true });
    this.session?.stop();
  }

  #tellEnd(outcome) {
    if (outcome.wasStopped || this.stopSignal) return;
    const hasEnded = outcome.code === 0 && !outcome.error;
    // The daemon knows who interrupted the run, and uses only the exit code as the result.
    if (isInterruption(outcome.failed?.error)) this.emit("agent.interrupted", { error: outcome.failed.error });
    else if (outcome.failed) this.emit("agent.failed", outcome.failed);
    else if (outcome.completed && hasEnded) this.emit("agent.completed", outcome.completed);
    else this.emit("agent.stream_error", streamError(outcome));
  }

  async #beat(signal) {
    while (!signal.aborted) {
      const body = { event_type: "agent.heartbeat", event_data: { status: this.status } };
      // The next heartbeat replaces a lost one.
      const answer = await this.relay.send("control", "POST", "events", { body });
      if (meaning(answer) === "gone") return;
      await pause(this.heartbeatMs, undefined, { signal, ref: false }).catch(() => {});
    }
  }
}

/**
 * Reads the task of the run: the daemon's, or that of the messages in the workspace. Resolves with {task}, with {fault} if it
 * cannot be read, or with neither if there is none.
 */
export async function readTask(relay, file = MESSAGES_FILE, retryMs = TASK_RETRY_MS) {
  let answer;
  for (let attempt = 0; relay && attempt <= retryMs.length; attempt += 1) {
    answer = await relay.send("control", "GET", "task");
    const task = meaning(answer) === "done" && taskOf(answer.json);
    if (task) return { task };
    if (meaning(answer) !== "retry") break;
    if (attempt < retryMs.length) await pause(answer.retryMs ?? retryMs[attempt]);
  }
  const fault = answer && faultOfTask(answer);
  try {
    const task = taskOf({ messages: JSON.parse(readFileSync(file, "utf8")) });
    return task ? { task } : { fault };
  } catch (error) {
    if (error.code === "ENOENT") return { fault };
    return { fault: fault ?? (error.code ? `${file}: ${error.code}` : `${file} is not valid JSON`) };
  }
}

/** Reason that the daemon gave no task; nothing if it knows none. A run without a daemon is 404. */
function faultOfTask(answer) {
  if (meaning(answer) === "done" || answer.status === 404) return undefined;
  const what = meaning(answer) === "retry" ? "does not answer" : "refuses";
  return `the daemon ${what} (${answer.status || "no connection"})`;
}

/** One text of a task: its own, or that of its messages, with the roles of all but a single one. */
export function taskOf(json) {
  if (typeof json?.task === "string" && json.task) return json.task;
  const messages = (Array.isArray(json?.messages) ? json.messages : []).filter((message) => textOf(message?.content));
  if (messages.length === 1) return textOf(messages[0].content);
  const named = (role) => (typeof role === "string" ? role : "user");
  return messages.map(({ role, content }) => `[${named(role)}]\n${textOf(content)}`).join("\n\n") || undefined;
}

// -- The program ------------------------------------------------------------------------------------------------------

function sessionFor(settings, prompt, worker) {
  const { command, program, args, stayMs } = settings;
  if (command === "run") return new Program({ ...settings, worker });
  if (command === "codex") return new Turns({ agent: new CodexTurns(program, args), prompt, worker, stayMs });
  if (settings.perTurn) return new Turns({ agent: new ClaudeTurns(program, args), prompt, worker, stayMs });
  return new ClaudeStream({ program, args, prompt, worker, stayMs });
}

const printed = (text) => new Promise((resolve) => process.stdout.write(text, resolve));

async function main(words, env) {
  if (words.slice(0, 2).some((word) => word === "--help" || word === "-h")) return printed(USAGE).then(() => 0);
  const settings = withStay(readCommand(words), env);
  const address = relayAddress(env);
  const relay = address && new Relay(address);
  if (settings.command === "ask") {
    if (!relay) return say("RUN_ID is not set: this is not a run with a daemon") ?? 1;
    const { exit, text } = await ask(relay, settings);
    relay.close();
    if (exit === 0) await printed(`${text}\n`);
    else say(text);
    return exit;
  }
  const transcript = new Transcript(env.SLUICE_TRANSCRIPT || undefined, { say });
  const worker = new Worker({ relay, transcript, name: settings.command });
  // A fault of the worker itself is reported, and does not end the agent.
  process.on("uncaughtException", (error) => {
    say(`a fault of the worker: ${error?.stack ?? error}`);
    worker.emit("agent.error", { message: `a fault of the worker: ${error?.message ?? error}`, fatal: false });
  });
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) process.on(signal, () => worker.stop(signal));
  const isAgent = settings.command !== "run";
  const needsTask = isAgent && settings.prompt === undefined;
  const { task: prompt, fault } = needsTask ? await readTask(relay) : { task: settings.prompt };
  if (fault) return say(`the task of the run cannot be read: ${fault}; give a prompt after --`) ?? 1;
  if (isAgent && !prompt) return say("there is no prompt after --, and the run has no task") ?? 2;
  if (settings.raw) worker.raw = (line) => process.stdout.write(`${line}\n`);
  const outcome = await worker.run(sessionFor(settings, prompt, worker), isAgent || settings.inboxFile !== undefined);
  if (isAgent && !settings.raw && outcome.text !== undefined) await printed(`${outcome.text}\n`);
  if (outcome.failed) say(plainText(outcome.failed.error, 2000));
  else if (outcome.error) say(streamError(outcome).message);
  return outcome.exit;
}

const [, path, ...words] = process.argv;
if (path && existsSync(path) && realpathSync(path) === fileURLToPath(import.meta.url)) {
  setDefaultResultOrder("ipv4first"); // the bridge listens on 127.0.0.1 only, and localhost may be ::1 first
  // If the reader of the output is gone, the agent continues.
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
  main(words, process.env).then(
    (exit) => process.exit(exit),
    (error) => {
      const isUsage = error instanceof UsageError;
      process.stderr.write(`sluice-worker: ${isUsage ? `${error.message}\n\n${USAGE}` : `${error?.stack ?? error}\n`}`);
      process.exit(isUsage ? 2 : 1);
    },
  );
}
