// Requests to the API, with the header that no form and no page of another origin can send.

import { signal } from "@preact/signals";

const HEADERS = { "X-Sluice": "1" };

/** True once the session has ended. */
export const loggedOut = signal(false);

/** An answer that is not a success. */
export class ApiError extends Error {
  constructor(status, body) {
    super(body?.error?.message ?? `the daemon answered ${status}`);
    this.status = status;
    this.code = body?.error?.code ?? "unknown";
  }
}

/** Milliseconds after which a request that has failed is sent again. */
export const RETRY_MS = 5000;

/** True if a later request would get the same answer. */
export const isFinal = (error) => error instanceof ApiError && [403, 404, 410, 422].includes(error.status);

/** Number of attempts of a reading request while the daemon answers that there are too many. */
const ATTEMPTS = 4;

/** Waits for a time. A person who stops the request ends the wait, which fails then. */
const wait = (ms, stop) => new Promise((resolve, reject) => {
  stop?.throwIfAborted();
  const timer = setTimeout(resolve, ms);
  stop?.addEventListener("abort", () => {
    clearTimeout(timer);
    reject(stop.reason);
  }, { once: true });
});

/** Sends a request, and returns the response of a success. */
export async function send(method, path, body, options = {}) {
  const headers = { ...HEADERS, ...options.headers };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const request = { method, headers, signal: options.signal, body: body === undefined ? undefined : JSON.stringify(body) };
  let answer = await fetch(path, request);
  for (let attempt = 1; answer.status === 429 && method === "GET" && attempt < ATTEMPTS; attempt += 1) {
    const seconds = Number(answer.headers.get("Retry-After")) || 1;
    await wait(seconds * 1000, options.signal);
    answer = await fetch(path, request);
  }
  loggedOut.value = answer.status === 401;
  if (answer.ok) return answer;
  let error;
  try {
    error = await answer.json();
  } catch {
    // A proxy may answer with a text.
  }
  throw new ApiError(answer.status, error);
}

export const get = async (path, options) => (await send("GET", path, undefined, options)).json();
export const post = async (path, body, headers) => (await send("POST", path, body, { headers })).json();

/** Saves an answer as a file. The address alone would not do: a request of this session has a header. */
export async function saveAs(path, name, headers) {
  const answer = await send("GET", path, undefined, { headers });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Returns a text for a person about a failed request. `unanswered` is that of a request without an answer. */
function textFor(error, unanswered) {
  return error instanceof ApiError ? error.message : unanswered;
}

/** The text of a request that the page repeats. */
export const errorText = (error) => textFor(error, "The daemon does not answer. This page tries again by itself.");

/** The text of a request that reads something once. */
export const readText = (error) => textFor(error, "The daemon does not answer. Try it again.");

/** The text of a change, which nothing repeats. */
export const changeText = (error) =>
  textFor(error, "The daemon did not answer, so this may not have been done. Look, and do it again if it was not.");
