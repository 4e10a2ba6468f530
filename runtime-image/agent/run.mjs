#!/usr/bin/env node
// The reference agent: one chat completion for the messages of the run, printed as the envelope of the program contract.
//
//   OPENAI_API_BASE, SLUICE_MODEL   where to ask, and for what
//   OPENAI_API_KEY                  sent if set; the sidecar replaces it
//   SLUICE_STREAM=1                 asks for a stream, and still prints one envelope
//   SLUICE_DELTAS=1                 the same, and prints each part of the answer before it as a line {"delta": "text"}
//   SLUICE_LLM_TIMEOUT_MS           how long the whole answer may take; without it, as long as the run lives
//
// Exit 0 with the answer; exit 1 with `meta.error` set to config_error, input_error or llm_error.
import { setDefaultResultOrder } from "node:dns";
import { existsSync, readFileSync, realpathSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";

const MESSAGES_FILE = "/workspace/.sluice/messages.json";
const ERROR_BODY_LIMIT = 64 * 1024; // what is read of a refusal, in characters
const MESSAGE_LIMIT = 2000; // what is told of it

/** A failure that the envelope names. */
class Failure extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}
const llmError = (message) => new Failure("llm_error", message);

// -- What is asked ----------------------------------------------------------------------------------------------------

export function readSettings(env) {
  const bad = (message) => new Failure("config_error", message);
  if (!env.OPENAI_API_BASE) throw bad("OPENAI_API_BASE is not set");
  let url;
  try {
    url = new URL(env.OPENAI_API_BASE);
  } catch {
    throw bad("OPENAI_API_BASE is not a URL");
  }
  if (!/^https?:$/.test(url.protocol)) throw bad("OPENAI_API_BASE is neither http nor https");
  url.pathname = `${url.pathname.replace(/\/+$/, "")}/v1/chat/completions`;
  if (!env.SLUICE_MODEL) throw bad("SLUICE_MODEL is not set");
  if (!["", "0", "1", undefined].includes(env.SLUICE_STREAM)) throw bad("SLUICE_STREAM is neither 0 nor 1");
  if (!["", "0", "1", undefined].includes(env.SLUICE_DELTAS)) throw bad("SLUICE_DELTAS is neither 0 nor 1");
  const timeout = env.SLUICE_LLM_TIMEOUT_MS || undefined;
  if (timeout !== undefined && !/^[1-9]\d{0,8}$/.test(timeout)) {
    throw bad("SLUICE_LLM_TIMEOUT_MS is not a number of milliseconds");
  }
  try {
    http.validateHeaderValue("authorization", env.OPENAI_API_KEY ?? "");
  } catch {
    throw bad("OPENAI_API_KEY holds what no header can carry");
  }
  return {
    url,
    key: env.OPENAI_API_KEY || undefined,
    model: env.SLUICE_MODEL,
    stream: env.SLUICE_STREAM === "1" || env.SLUICE_DELTAS === "1",
    deltas: env.SLUICE_DELTAS === "1",
    timeoutMs: timeout && Number(timeout),
  };
}

export function readMessages(file) {
  const bad = (message) => new Failure("input_error", message);
  let text;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    throw bad(`cannot read ${file}: ${error.code ?? error.message}`);
  }
  let messages;
  try {
    messages = JSON.parse(text);
  } catch {
    throw bad(`${file} is not JSON`);
  }
  if (!Array.isArray(messages) || messages.length === 0) throw bad(`${file} is not an array of messages`);
  const wrong = messages.findIndex((message) => typeof message?.role !== "string");
  if (wrong !== -1) throw bad(`${file}: item ${wrong} is not a message, it has no role`);
  return messages;
}

// -- The call ---------------------------------------------------------------------------------------------------------

/** Sends the request and resolves with the response's head; its body is text, decoded across chunks. */
function send(settings, messages, signal) {
  const body = JSON.stringify({ model: settings.model, messages, ...(settings.stream && { stream: true }) });
  const headers = {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
    accept: settings.stream ? "text/event-stream" : "application/json",
    ...(settings.key && { authorization: `Bearer ${settings.key}` }),
  };
  const { request } = settings.url.protocol === "https:" ? https : http;
  return new Promise((resolve, reject) => {
    const call = request(settings.url, { method: "POST", headers, agent: false, signal }, (response) => {
      resolve(response.setEncoding("utf8"));
    });
    call.on("error", reject);
    // An answer that only switches protocols ends the call with neither a response nor an error.
    call.on("close", () => reject(llmError("the call ended without an answer")));
    call.end(body);
  });
}

async function readBody(response) {
  let text = "";
  for await (const chunk of response) text += chunk;
  return text;
}

function parse(text, what) {
  try {
    return JSON.parse(text);
  } catch {
    throw llmError(`${what} is not JSON: ${text.slice(0, 200)}`);
  }
}

/** `{"error": …}` of a refusal or of a stream, in one line. */
export function describeError(error) {
  if (typeof error === "string") return oneLine(error, MESSAGE_LIMIT);
  const message = typeof error?.message === "string" ? error.message : JSON.stringify(error);
  const code = [error?.code, error?.type].find((one) => one && /^(string|number)$/.test(typeof one));
  return oneLine(message, MESSAGE_LIMIT) + (code ? ` (${oneLine(`${code}`, 100)})` : "");
}
const oneLine = (text, limit) => text.trim().replace(/\s+/g, " ").slice(0, limit);

async function refusal(response) {
  let text = "";
  try {
    for await (const chunk of response) {
      text += chunk;
      if (text.length > ERROR_BODY_LIMIT) break;
    }
  } catch {
    // Cut, or late: its status is worth more than how its body ended.
  }
  let told = oneLine(text, 200) || "no body";
  try {
    const body = JSON.parse(text);
    told = describeError(body?.error ?? body) || told;
  } catch {
    // Not JSON: what it says is told as it is.
  }
  return llmError(`HTTP ${response.statusCode}: ${told}`);
}

/** The text of a `message` or a `delta`; undefined if it holds none. */
export function textOf(part) {
  const { content, refusal: refused } = part ?? {};
  if (typeof content === "string") return content;
  if (Array.isArray(content)) {
    const texts = content.map((item) => item?.text).filter((text) => typeof text === "string");
    if (texts.length > 0) return texts.join("");
  }
  return typeof refused === "string" ? refused : undefined;
}

async function readAnswer(response) {
  const body = parse(await readBody(response), "the answer");
  if (body?.error) throw llmError(describeError(body.error));
  const text = textOf(body?.choices?.[0]?.message);
  if (text === undefined) throw llmError("the answer holds no text");
  return text;
}

/** The data of each event of a text/event-stream, however it was cut into chunks. An unfinished event is none. */
export async function* eventData(chunks) {
  let line = ""; // as far as it came
  let cr = ""; // at the very end of a chunk it may be half of a CRLF, and waits for the next one
  let data = [];
  for await (const chunk of chunks) {
    // Only what is new is looked through, so that a long line costs no more than its length.
    const pieces = (cr + chunk).split(/\r\n|\n|\r(?!$)/);
    cr = pieces.at(-1).endsWith("\r") ? "\r" : "";
    pieces.push(pieces.pop().slice(0, cr ? -1 : undefined));
    for (const [i, piece] of pieces.entries()) {
      line += piece;
      if (i === pieces.length - 1) break;
      if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
      else if (line === "" && data.length > 0) {
        yield data.join("\n");
        data = [];
      }
      line = "";
    }
  }
  if (cr && line === "" && data.length > 0) yield data.join("\n");
}

/** Returns the text of a stream; `tell` gets each part of it. */
export async function readStream(chunks, tell = () => {}) {
  let text;
  for await (const data of eventData(chunks)) {
    if (data === "[DONE]") {
      if (text === undefined) throw llmError("the stream holds no text");
      return text;
    }
    const event = parse(data, "an event of the stream");
    if (event?.error) throw llmError(describeError(event.error));
    const piece = textOf(event?.choices?.[0]?.delta);
    if (piece !== undefined) {
      text = (text ?? "") + piece;
      tell(piece);
    }
  }
  throw llmError("the stream was cut: it ended without [DONE]");
}

/** Asks the model and returns its text. `heard` gets LiteLLM's id of the call as soon as it is known, `tell` the parts of a stream. */
async function ask(settings, messages, heard, tell) {
  const signal = settings.timeoutMs && AbortSignal.timeout(settings.timeoutMs);
  try {
    const response = await send(settings, messages, signal);
    heard(response.headers["x-litellm-call-id"]);
    if (response.statusCode !== 200) throw await refusal(response);
    const isStream = /^text\/event-stream\b/i.test(response.headers["content-type"] ?? "");
    return await (isStream ? readStream(response, tell) : readAnswer(response));
  } catch (error) {
    if (error instanceof Failure) throw error;
    if (signal?.aborted) throw llmError(`no whole answer within ${settings.timeoutMs} ms`);
    // What Node calls a body that ends before its time.
    if (error.message === "aborted") throw llmError("the answer was cut");
    throw llmError(`the call failed: ${error.message || error.code}`);
  }
}

// -- The envelope -----------------------------------------------------------------------------------------------------

// Half of a character, as a limit or the model's last token may leave it, is no JSON to stricter readers.
const line = (value) => `${JSON.stringify(value, (_, one) => (typeof one === "string" ? one.toWellFormed() : one))}\n`;

/** Writes the parts of an answer as lines. Half of a character waits for its other half. */
export function deltaLines(write) {
  let half = "";
  return (piece) => {
    let text = half + piece;
    half = /[\ud800-\udbff]$/.test(text) ? text.slice(-1) : "";
    text = text.slice(0, text.length - half.length);
    if (text !== "") write(line({ delta: text }));
  };
}

export async function run(env, messagesFile = MESSAGES_FILE, write = () => {}) {
  const start = performance.now();
  const envelope = { payloads: [], meta: { durationMs: 0, error: null, litellmCallId: null } };
  try {
    const settings = readSettings(env);
    const messages = readMessages(messagesFile);
    const tell = settings.deltas ? deltaLines(write) : undefined;
    const text = await ask(settings, messages, (id) => (envelope.meta.litellmCallId = id ?? null), tell);
    envelope.payloads.push({ text });
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    envelope.meta.error = { code: error.code, message: error.message };
  }
  envelope.meta.durationMs = Math.round(performance.now() - start);
  return envelope;
}

const [, main] = process.argv;
if (main && existsSync(main) && realpathSync(main) === fileURLToPath(import.meta.url)) {
  setDefaultResultOrder("ipv4first"); // the bridge listens on 127.0.0.1 only, and localhost may be ::1 first
  const envelope = await run(process.env, MESSAGES_FILE, (text) => process.stdout.write(text));
  // Exit only once the reader has it all: a pipe takes a long answer in parts.
  process.stdout.write(line(envelope), (error) => process.exit(error || envelope.meta.error ? 1 : 0));
}
