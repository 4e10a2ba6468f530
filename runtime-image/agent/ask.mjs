// A question of the agent to a person, asked from its shell.
import { setTimeout as pause } from "node:timers/promises";

import { plainText } from "./bounded_json.mjs";
import { meaning } from "./relay.mjs";

const RETRY_MS = [1000, 2000, 4000];
// A run has one long poll at a time. A short poll, followed by a pause, leaves time for the worker's own poll: an interrupt
// must not wait for an answer.
const WAIT = 5; // seconds
const BETWEEN_MS = 2000;

export const ANSWERED = 0;
export const FAILED = 1;
export const EXPIRED = 3;

const reason = ({ status, json, code }) => {
  if (status === 0) return "the daemon cannot be reached";
  const message = json?.error?.message;
  return `${status}${code ? ` ${code}` : ""}${typeof message === "string" ? `: ${plainText(message, 500)}` : ""}`;
};

async function post(relay, body) {
  for (let attempt = 0; ; attempt += 1) {
    const answer = await relay.send("ask", "POST", "questions", { body });
    // Too many open questions: a retry would not help the agent, but the reason does.
    if (meaning(answer) !== "retry" || answer.status === 429 || attempt >= RETRY_MS.length) return answer;
    await pause(answer.retryMs ?? RETRY_MS[attempt]);
  }
}

/** Asks, waits, and resolves with {exit, text}: the answer, or why there is none. */
export async function ask(relay, { question, options, timeoutMs }) {
  const end = performance.now() + timeoutMs;
  const asked = await post(relay, { question, ...(options.length > 0 && { options }) });
  const id = asked.json?.question_id;
  if (meaning(asked) !== "done" || !/^[A-Za-z0-9_-]{1,64}$/.test(id ?? "")) {
    return { exit: FAILED, text: `the question was not taken: ${reason(asked)}` };
  }
  for (let failures = 0, wait = WAIT; ; ) {
    const answer = await relay.send("ask", "GET", `questions/${id}${wait > 0 ? `?wait=${wait}` : ""}`, { waitSeconds: wait });
    const { state, answer: text } = answer.json ?? {};
    const what = meaning(answer);
    if (what === "done" && state === "answered" && typeof text === "string") return { exit: ANSWERED, text };
    if (what === "done" && state === "expired") return { exit: EXPIRED, text: "nobody has answered in time" };
    if (what !== "done" && what !== "retry") return { exit: FAILED, text: `the answer cannot be read: ${reason(answer)}` };
    if (performance.now() >= end) return { exit: EXPIRED, text: "nobody has answered in time" };
    failures = what === "done" || answer.status === 429 ? 0 : failures + 1;
    if (answer.status === 429) wait = 0;
    const rest = failures === 0 ? BETWEEN_MS : RETRY_MS[Math.min(failures, RETRY_MS.length) - 1];
    await pause(Math.min(answer.retryMs ?? rest, Math.max(end - performance.now(), 0)));
  }
}
