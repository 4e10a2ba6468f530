// A question of the agent to a person, asked from its shell.
import { setTimeout as pause } from "node:timers/promises";

import { plainText } from "./bounded_json.mjs";
import { LONGEST_WAIT, meaning } from "./relay.mjs";

const RETRY_MS = [1000, 2000, 4000];
const BETWEEN_MS = 2000; // looks, while another long poll of the run is open
const SLACK_MS = 30_000; // after the end of the question, for its last state

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
export async function ask(relay, { question, options, timeout, timeoutMs }) {
  const asked = await post(relay, { question, ...(options.length > 0 && { options }), timeout });
  const id = asked.json?.question_id;
  if (meaning(asked) !== "done" || !/^[A-Za-z0-9._-]{1,100}$/.test(id ?? "")) {
    return { exit: FAILED, text: `the question was not taken: ${reason(asked)}` };
  }
  const end = performance.now() + timeoutMs + SLACK_MS;
  for (let failures = 0, wait = LONGEST_WAIT; performance.now() < end; ) {
    const start = performance.now();
    const answer = await relay.send("ask", "GET", `questions/${id}${wait > 0 ? `?wait=${wait}` : ""}`, { waitSeconds: wait });
    const { state, answer: text } = answer.json ?? {};
    if (meaning(answer) === "done") {
      failures = 0;
      if (state === "answered" && typeof text === "string") return { exit: ANSWERED, text };
      if (state === "expired") return { exit: EXPIRED, text: "nobody has answered in time" };
      if (performance.now() - start < 1000) await pause(BETWEEN_MS);
      continue;
    }
    if (meaning(answer) !== "retry") return { exit: FAILED, text: `the answer cannot be read: ${reason(answer)}` };
    // The sidecar keeps one long poll of a run open, and the worker's own has it.
    if (answer.status === 429) wait = 0;
    await pause(answer.status === 429 ? answer.retryMs ?? BETWEEN_MS : RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]);
    failures += 1;
  }
  return { exit: EXPIRED, text: "nobody has answered in time" };
}
