// What the reference agent promises, tried in the image that it ships in, with the Node that is there:
//
//   docker run --rm --network=none --init -v "$PWD/tests/agent:/t:ro" --entrypoint node sluice-runtime:latest \
//       --test /t/run.test.mjs
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { performance } from "node:perf_hooks";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";

import {
  describeError, eventData, readMessages, readSettings, readStream, run, textOf,
} from "/opt/sluice/agent/run.mjs";

const AGENT = "/opt/sluice/agent/run.mjs";
const MESSAGES_FILE = "/workspace/.sluice/messages.json"; // where the program looks
const PATIENCE = 120_000; // ms: a promise that takes longer is broken
const MESSAGES = [{ role: "system", content: "grüße 😀" }, { role: "user", content: [{ type: "text", text: "hi" }] }];

const scratch = mkdtempSync(join(tmpdir(), "agent-"));
process.on("exit", () => rmSync(scratch, { recursive: true }));

function place(file, text) {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
  return file;
}
const messagesFile = place(join(scratch, "messages.json"), JSON.stringify(MESSAGES));

const promise = (sentence, body) => test(sentence, { timeout: PATIENCE }, body);

/** What came of it: the value, or the failure in one line. */
const outcome = async (act) => {
  try {
    return await act();
  } catch (error) {
    return `${error.code}: ${error.message}`;
  }
};

/** Compares each row's outcome with its last cell, and shows all rows that differ. */
async function table(rows, act) {
  const found = await Promise.all(rows.map(async (row) => [...row.slice(0, -1), await outcome(() => act(...row))]));
  assert.deepEqual(found, rows);
}

// -- Settings ---------------------------------------------------------------------------------------------------------

const BASE = "http://localhost:8080";

promise("settings are where to ask, for what, and nothing more", () => {
  const all = { OPENAI_API_KEY: "k", SLUICE_STREAM: "1", SLUICE_LLM_TIMEOUT_MS: "1500" };
  const url = new URL("http://localhost:8080/v1/chat/completions");

  assert.deepEqual(readSettings({ OPENAI_API_BASE: BASE, SLUICE_MODEL: "m", PATH: "/bin" }), {
    url, key: undefined, model: "m", stream: false, deltas: false, timeoutMs: undefined,
  });
  assert.deepEqual(readSettings({ OPENAI_API_BASE: BASE, SLUICE_MODEL: "a/b", ...all }), {
    url, key: "k", model: "a/b", stream: true, deltas: false, timeoutMs: 1500,
  });
});

promise("a base may have a path, and slashes at its end", () =>
  table([
    ["http://localhost:8080/", "http://localhost:8080/v1/chat/completions"],
    ["http://localhost:8080///", "http://localhost:8080/v1/chat/completions"],
    ["https://llm.example/team/a/", "https://llm.example/team/a/v1/chat/completions"],
    ["http://[::1]:1", "http://[::1]:1/v1/chat/completions"],
    ["http://localhost//", "http://localhost/v1/chat/completions"],
  ], (base) => readSettings({ OPENAI_API_BASE: base, SLUICE_MODEL: "m" }).url.href));

promise("a setting that is empty is not set, and the bounds of a timeout are within them", () =>
  table([
    ["OPENAI_API_KEY", "", "key", undefined],
    ["SLUICE_STREAM", "", "stream", false],
    ["SLUICE_STREAM", "0", "stream", false],
    ["SLUICE_LLM_TIMEOUT_MS", "", "timeoutMs", undefined],
    ["SLUICE_LLM_TIMEOUT_MS", "1", "timeoutMs", 1],
    ["SLUICE_LLM_TIMEOUT_MS", "999999999", "timeoutMs", 999999999],
  ], (name, value, member) => readSettings({ OPENAI_API_BASE: BASE, SLUICE_MODEL: "m", [name]: value })[member]));

const WRONG_SETTINGS = [
  ["OPENAI_API_BASE", undefined, "config_error: OPENAI_API_BASE is not set"],
  ["OPENAI_API_BASE", "", "config_error: OPENAI_API_BASE is not set"],
  ["OPENAI_API_BASE", "localhost", "config_error: OPENAI_API_BASE is not a URL"],
  ["OPENAI_API_BASE", "http://a:b", "config_error: OPENAI_API_BASE is not a URL"],
  ["OPENAI_API_BASE", "http://", "config_error: OPENAI_API_BASE is not a URL"],
  ["OPENAI_API_BASE", "localhost:8080", "config_error: OPENAI_API_BASE is neither http nor https"],
  ["OPENAI_API_BASE", "ftp://localhost", "config_error: OPENAI_API_BASE is neither http nor https"],
  ["OPENAI_API_BASE", "httpsx://localhost", "config_error: OPENAI_API_BASE is neither http nor https"],
  ["SLUICE_MODEL", undefined, "config_error: SLUICE_MODEL is not set"],
  ["SLUICE_MODEL", "", "config_error: SLUICE_MODEL is not set"],
  ...["a\nb", "ключ"].map((value) => [
    "OPENAI_API_KEY", value, "config_error: OPENAI_API_KEY holds what no header can carry",
  ]),
  ...["true", "2", "01", " 1"].map((value) => [
    "SLUICE_STREAM", value, "config_error: SLUICE_STREAM is neither 0 nor 1",
  ]),
  ...["0", "05", "-1", "1.5", "1e3", "10s", " 5", "5\n", "1000000000"].map((value) => [
    "SLUICE_LLM_TIMEOUT_MS", value, "config_error: SLUICE_LLM_TIMEOUT_MS is not a number of milliseconds",
  ]),
];

promise("each wrong setting is a config_error that names it", () =>
  table(WRONG_SETTINGS, (name, value) => readSettings({ OPENAI_API_BASE: BASE, SLUICE_MODEL: "m", [name]: value })));

// -- Messages ---------------------------------------------------------------------------------------------------------

promise("messages are read as they are, with members that the agent does not know", () => {
  const messages = [...MESSAGES, { role: "assistant", content: null, tool_calls: [{ id: "1" }] }, { role: "", x: 1 }];

  assert.deepEqual(readMessages(place(join(scratch, "known.json"), JSON.stringify(messages, null, 2))), messages);
});

promise("a file that holds no messages is an input_error that names it", async () => {
  const file = join(scratch, "wrong.json");
  const rows = [
    ["", `input_error: ${file} is not JSON`],
    ['[{"role":"user"}', `input_error: ${file} is not JSON`],
    ["null", `input_error: ${file} is not an array of messages`],
    ['{"role":"user"}', `input_error: ${file} is not an array of messages`],
    ['"hello"', `input_error: ${file} is not an array of messages`],
    ["[]", `input_error: ${file} is not an array of messages`],
    ["[null]", `input_error: ${file}: item 0 is not a message, it has no role`],
    ['[{"role":"user"},"hello"]', `input_error: ${file}: item 1 is not a message, it has no role`],
    ['[{"role":"user"},{"role":1},{}]', `input_error: ${file}: item 1 is not a message, it has no role`],
  ];

  await table(rows, (text) => readMessages(place(file, text)));
  await table([
    [join(scratch, "none.json"), `input_error: cannot read ${join(scratch, "none.json")}: ENOENT`],
    [scratch, `input_error: cannot read ${scratch}: EISDIR`],
  ], readMessages);
});

// -- The events of a stream -------------------------------------------------------------------------------------------

async function* chunks(...texts) {
  yield* texts;
}
async function collect(source) {
  const all = [];
  for await (const one of eventData(source)) all.push(one);
  return all;
}

// Two events, the second of three lines; then one with what only looks like syntax, and lines that are no data.
const LINES = [
  "retry: 3", ": a comment", "", "data: one", "", "event: x", "data:two", "data:  three", "data:", "id: 7", "", "",
  "data: data: é😀:", "Data: no", " data: no", "database: no", "",
];
const EVENTS = ["one", "two\n three\n", "data: é😀:"];
const STREAMS = {
  "ends of LF": [LINES.map((line) => `${line}\n`).join(""), EVENTS],
  "ends of CRLF": [LINES.map((line) => `${line}\r\n`).join(""), EVENTS],
  "ends of CR": [LINES.map((line) => `${line}\r`).join(""), EVENTS],
  "ends of each kind": [
    "data: 1\n\r\ndata: 2\r\n\rdata: 3\r\r\ndata: 4\r\n\ndata: 5\rdata: 6\n\r", ["1", "2", "3", "4", "5\n6"],
  ],
};

for (const [ends, [text, events]] of Object.entries(STREAMS)) {
  promise(`events are the same wherever two cuts fall in a stream with ${ends}`, async () => {
    const wrong = [];
    for (let i = 0; i <= text.length; i++) {
      for (let j = i; j <= text.length; j++) {
        const found = await collect(chunks(text.slice(0, i), text.slice(i, j), text.slice(j)));
        if (!isDeepStrictEqual(found, events)) wrong.push({ i, j, found });
      }
    }
    assert.deepEqual(wrong.slice(0, 3), []);
    assert.deepEqual(await collect(chunks(...text.split(""))), events, "one by one");
  });
}

promise("an event without a blank line after it is none", () =>
  table([
    ["", []],
    ["\n\r\n\r", []],
    ["data: a", []],
    ["data: a\n", []],
    ["data: a\r", []],
    ["data: a\r\n", []],
    ["data: a\n\ndata: b\n", ["a"]],
    ["data: a\n\ndata: b\r\n: c", ["a"]],
    ["data: a\n\n\r", ["a"]],
    ["data: a\n\r", ["a"]],
    ["data: a\r\r", ["a"]],
  ], (text) => collect(chunks(text))));

promise("an event is there with its blank line, and a reader that leaves closes the stream", async () => {
  let closed = false;
  async function* held() {
    try {
      yield "data: a\r\n\r\ndata: b";
      await new Promise(() => {});
    } finally {
      closed = true;
    }
  }
  const events = eventData(held());

  assert.deepEqual(await events.next(), { value: "a", done: false });
  await events.return();
  assert.equal(closed, true);
});

// -- The text of a stream ---------------------------------------------------------------------------------------------

const event = (data) => `data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`;
const piece = (content) => event({ choices: [{ delta: { content } }] });
const DONE = event("[DONE]");
const STREAM = [
  event({ choices: [{ delta: { role: "assistant", content: "" } }] }),
  ": ping\n\n",
  piece("Grüße"),
  event({ choices: [{ delta: {}, finish_reason: "stop" }], error: null }),
  piece(" 😀\n"),
  event({ choices: [], usage: { total_tokens: 3 } }),
  DONE,
].join("");
const STREAM_TEXT = "Grüße 😀\n";
const CUT = "llm_error: the stream was cut: it ended without [DONE]";

promise("a stream's text is its pieces up to [DONE], and nothing behind it is read", () =>
  table([
    [STREAM, STREAM_TEXT],
    [piece("a") + DONE + event("{") + piece("b"), "a"],
    [piece("") + DONE, ""],
    [piece([{ type: "text", text: "a" }, { text: "b" }]) + DONE, "ab"],
    [piece("a") + event({ choices: [{ delta: { content: null, refusal: "no" } }] }) + DONE, "ano"],
    [event({ choices: [{ delta: { content: "a" } }, { delta: { content: "b" } }] }) + DONE, "a"],
  ], (text) => readStream(chunks(text))));

promise("a stream that ends anywhere before its end was cut", async () => {
  const found = new Set();
  for (let end = 0; end < STREAM.length; end++) {
    found.add(await outcome(() => readStream(chunks(STREAM.slice(0, end)))));
  }
  assert.deepEqual([...found], [CUT]);
});

promise("a stream with an error, without text or with anything else is an llm_error", () =>
  table([
    [piece("a") + event({ error: { message: "overloaded", code: 529 } }) + DONE, "llm_error: overloaded (529)"],
    [event({ error: "no" }), "llm_error: no"],
    [DONE, "llm_error: the stream holds no text"],
    [event({ choices: [{ delta: { role: "assistant", content: null, tool_calls: [] } }] }) + event("null") + DONE,
      "llm_error: the stream holds no text"],
    [piece("a") + event("[DONE]!") + DONE, "llm_error: an event of the stream is not JSON: [DONE]!"],
    [piece("a") + event(`<${"x".repeat(300)}>`) + DONE,
      `llm_error: an event of the stream is not JSON: <${"x".repeat(199)}`],
  ], (text) => readStream(chunks(text))));

// -- Texts and errors -------------------------------------------------------------------------------------------------

promise("the text of a message is its content, else its refusal, else none", () =>
  table([
    [{ content: "a", refusal: "b" }, "a"],
    [{ content: "" }, ""],
    [{ content: [{ type: "text", text: "a" }, { type: "image_url" }, null, { text: 1 }, { text: "b" }] }, "ab"],
    [{ content: null, refusal: "no" }, "no"],
    [{ content: [] }, undefined],
    [{ content: [{ type: "image_url" }], refusal: "no" }, "no"],
    [{ content: null }, undefined],
    [{ content: 1, refusal: 2 }, undefined],
    [{}, undefined],
    [null, undefined],
    [undefined, undefined],
    ["a", undefined],
  ], textOf));

promise("an error is told by its message and its code, or else as it is", () =>
  table([
    ["no", "no"],
    [{ message: "no" }, "no"],
    [{ message: "no", code: "a", type: "b" }, "no (a)"],
    [{ message: "no", code: null, type: "b" }, "no (b)"],
    [{ message: "no", code: 429 }, "no (429)"],
    [{ message: "no", code: "", type: "b" }, "no (b)"],
    [{ message: "no", code: { a: 1 } }, "no"],
    [{ message: "no", code: "c".repeat(101) }, `no (${"c".repeat(100)})`],
    [{ message: " a\n\tb\r\n", code: "c\nd" }, "a b (c d)"],
    ["a\nb", "a b"],
    [{ message: { a: 1 }, code: "c" }, '{"message":{"a":1},"code":"c"} (c)'],
    [{ detail: "no" }, '{"detail":"no"}'],
    [["no"], '["no"]'],
    [null, "null"],
    [7, "7"],
    ["x".repeat(2001), "x".repeat(2000)],
    [{ message: "x".repeat(2001), code: "c" }, `${"x".repeat(2000)} (c)`],
    [{ detail: "x".repeat(2001) }, `{"detail":"${"x".repeat(1989)}`],
  ], describeError));

// -- A run ------------------------------------------------------------------------------------------------------------

/** The environment that leads to an upstream of this test's own, and what the upstream was asked. */
async function upstream(t, answer) {
  const asked = [];
  const server = http.createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    const { method, url, headers } = request;
    asked.push({ method, url, headers, body: Buffer.concat(parts).toString() });
    answer(response);
  });
  t.after(() => server.closeAllConnections() ?? server.close());
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address();
  return { asked, port, env: { OPENAI_API_BASE: `http://127.0.0.1:${port}`, SLUICE_MODEL: "m" } };
}

/** A listener that need not speak HTTP. */
async function listener(t, connected) {
  const sockets = new Set();
  const server = net.createServer((socket) => {
    sockets.add(socket.on("error", () => {}));
    connected(socket);
  });
  const close = () => new Promise((resolve) => server.close(resolve) && sockets.forEach((socket) => socket.destroy()));
  t.after(close);
  await once(server.listen(0, "127.0.0.1"), "listening");
  return { port: server.address().port, close };
}

const json = (status, body, headers) => (response) =>
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
const says = (content, headers) => json(200, { choices: [{ message: { role: "assistant", content } }] }, headers);
const sends = (status, type, text) => (response) =>
  response.writeHead(status, type && { "content-type": type }).end(text);

/** An envelope without its time, which is only looked at. */
function timeless({ payloads, meta: { durationMs, ...meta }, ...more }) {
  assert.ok(Number.isInteger(durationMs) && durationMs >= 0, `durationMs is ${durationMs}`);
  return { payloads, meta, ...more };
}
const answered = (text, litellmCallId = null) => ({ payloads: [{ text }], meta: { error: null, litellmCallId } });
const failed = (code, message, litellmCallId = null) => ({
  payloads: [], meta: { error: { code, message }, litellmCallId },
});

/** One run against an upstream that answers so. */
async function call(t, answer, env, file = messagesFile) {
  const to = await upstream(t, answer);
  return timeless(await run({ ...to.env, ...env }, file));
}

promise("an answer is one payload, with the id of the call, for what was asked", async (t) => {
  const to = await upstream(t, says("Grüße 😀", { "x-litellm-call-id": "id-1" }));

  const envelope = await run({ ...to.env, OPENAI_API_KEY: "key", SLUICE_STREAM: "0" }, messagesFile);

  assert.deepEqual(timeless(envelope), answered("Grüße 😀", "id-1"));
  const body = JSON.stringify({ model: "m", messages: MESSAGES });
  assert.deepEqual(to.asked, [{
    method: "POST",
    url: "/v1/chat/completions",
    headers: {
      accept: "application/json",
      authorization: "Bearer key",
      connection: "close",
      "content-length": String(Buffer.byteLength(body)),
      "content-type": "application/json",
      host: `127.0.0.1:${to.port}`,
    },
    body,
  }]);
});

promise("a stream is asked for as one, without a key if there is none", async (t) => {
  const to = await upstream(t, sends(200, "text/event-stream", STREAM));

  assert.deepEqual(timeless(await run({ ...to.env, SLUICE_STREAM: "1" }, messagesFile)), answered(STREAM_TEXT));
  const [{ headers: { accept, authorization }, body }] = to.asked;
  assert.deepEqual({ accept, authorization, body: JSON.parse(body) }, {
    accept: "text/event-stream", authorization: undefined, body: { model: "m", messages: MESSAGES, stream: true },
  });
});

promise("an answer is read as what it calls itself, whatever was asked for", (t) =>
  table([
    ["1", "application/json", JSON.stringify({ choices: [{ message: { content: "a" } }] }), answered("a")],
    ["1", undefined, JSON.stringify({ choices: [{ message: { refusal: "a" } }] }), answered("a")],
    ["0", "text/event-stream", STREAM, answered(STREAM_TEXT)],
    ["1", "Text/Event-Stream; charset=utf-8", STREAM, answered(STREAM_TEXT)],
  ], (stream, type, text) => call(t, sends(200, type, text), { SLUICE_STREAM: stream })));

promise("a character that is cut between two chunks is one", async (t) => {
  // 900 kB come in many chunks, and two of three places to cut are within a character.
  const text = "€".repeat(300_000);
  const matches = ({ payloads }) => payloads.length === 1 && payloads[0].text === text;

  assert.ok(matches(await call(t, says(text))), "in a body");
  assert.ok(matches(await call(t, sends(200, "text/event-stream", piece(text) + DONE))), "in a stream");
});

promise("a refusal is told with its status, by its error or by the start of its body", (t) =>
  table([
    [429, "application/json", '{"error":{"message":"slow","type":"t","code":"too_many"}}', "HTTP 429: slow (too_many)"],
    [400, "application/json", '{"error":"no"}', "HTTP 400: no"],
    [400, "application/json", '{"message":"no","code":"c"}', "HTTP 400: no (c)"],
    [404, "application/json", '{"detail":"Not Found"}', 'HTTP 404: {"detail":"Not Found"}'],
    [500, "application/json", "null", "HTTP 500: null"],
    [500, "application/json", '{"error":""}', 'HTTP 500: {"error":""}'],
    [502, "text/html", "<html>\n\n <b>Bad</b>\r\n", "HTTP 502: <html> <b>Bad</b>"],
    [502, "text/html", " <html>Bad Gateway</html>\n", "HTTP 502: <html>Bad Gateway</html>"],
    [502, "text/html", "x".repeat(300), `HTTP 502: ${"x".repeat(200)}`],
    [503, "text/event-stream", piece("a"), 'HTTP 503: data: {"choices":[{"delta":{"content":"a"}}]}'],
    [500, undefined, "", "HTTP 500: no body"],
    [204, undefined, "", "HTTP 204: no body"],
    [201, "application/json", '{"error":{"message":"odd"}}', "HTTP 201: odd"],
  ].map(([status, type, text, message]) => [status, type, text, failed("llm_error", message)]),
  (status, type, text) => call(t, sends(status, type, text))));

promise("a refusal has the id of its call, and is asked for once", async (t) => {
  const refuses = json(302, { error: { message: "elsewhere" } }, { location: "/other", "x-litellm-call-id": "id-2" });
  const to = await upstream(t, refuses);

  assert.deepEqual(timeless(await run(to.env, messagesFile)), failed("llm_error", "HTTP 302: elsewhere", "id-2"));
  assert.equal(to.asked.length, 1);
});

promise("of a refusal without an end no more is read than it takes", async (t) => {
  let left;
  const envelope = await call(t, (response) => {
    left = once(response, "close");
    response.writeHead(500).write("x".repeat(64 * 1024 + 1));
  });

  assert.deepEqual(envelope, failed("llm_error", `HTTP 500: ${"x".repeat(200)}`));
  await left;
});

promise("a refusal that is cut, or not whole in time, is told with its status and what there is", async (t) => {
  const begins = (then) => (response) => response.writeHead(502).write("<html>", () => then(response.socket));

  const told = failed("llm_error", "HTTP 502: <html>");

  assert.deepEqual(await call(t, begins((socket) => socket.destroy())), told);
  assert.deepEqual(await call(t, begins(() => {}), { SLUICE_LLM_TIMEOUT_MS: "1000" }), told);
});

promise("an answer without text is an llm_error that says why", (t) =>
  table([
    ["", "the answer is not JSON: "],
    [`{"choices":${"x".repeat(300)}`, `the answer is not JSON: {"choices":${"x".repeat(189)}`],
    ['{"error":{"message":"no","code":"c"},"choices":[{"message":{"content":"a"}}]}', "no (c)"],
    ["null", "the answer holds no text"],
    ["[]", "the answer holds no text"],
    ['{"choices":[]}', "the answer holds no text"],
    ['{"choices":[null]}', "the answer holds no text"],
    ['{"choices":[{"message":{"content":null,"tool_calls":[]}}]}', "the answer holds no text"],
    ['{"choices":[{"text":"old"}]}', "the answer holds no text"],
  ].map(([text, message]) => [text, failed("llm_error", message)]),
  (text) => call(t, sends(200, "application/json", text))));

promise("an answer that is cut is no answer, even where what came would be one", async (t) => {
  const whole = '{"choices":[{"message":{"content":"a"}}]}';
  const cut = failed("llm_error", "the answer was cut", "id-3");

  await table(["destroy", "resetAndDestroy"].flatMap((end) => [
    [end, "application/json", { "content-length": 1000 }, whole, cut],
    [end, "application/json", {}, whole, cut],
    [end, "text/event-stream", {}, piece("a") + DONE.slice(0, -1), cut],
  ]), (end, type, headers, text) => call(t, (response) => {
    response.writeHead(200, { "content-type": type, "x-litellm-call-id": "id-3", ...headers });
    response.write(text, () => response.socket[end]());
  }));
  assert.deepEqual(await call(t, sends(200, "text/event-stream", piece("a"))), failed(...CUT.split(/: (.*)/, 2)));
});

promise("a call that comes to no answer is an llm_error that says how it failed", async (t) => {
  const asks = (base) => run({ OPENAI_API_BASE: base, SLUICE_MODEL: "m" }, messagesFile);
  const gone = await listener(t);
  await gone.close();

  await table([
    ["it is reset", (socket) => socket.resetAndDestroy(), "the call failed: read ECONNRESET"],
    ["it is closed", (socket) => socket.end(), "the call failed: socket hang up"],
    // Neither a response nor an error, as Node sees it: without more, the program would end in silence.
    ["it is switched", (socket) => socket.end("HTTP/1.1 101 x\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"),
      "the call ended without an answer"],
  ].map(([how, end, message]) => [how, end, failed("llm_error", message)]), async (how, end) => {
    const { port } = await listener(t, (socket) => socket.once("data", () => end(socket)));
    return timeless(await asks(`http://127.0.0.1:${port}`));
  });
  // How much more these say depends on the version of Node.
  const odd = await listener(t, (socket) => socket.once("data", () => socket.end("hello\r\n\r\n")));
  for (const [base, told] of [
    [`http://127.0.0.1:${odd.port}`, /^llm_error: the call failed: Parse Error: /],
    [`http://127.0.0.1:${gone.port}`, /^llm_error: the call failed: .*\bECONNREFUSED\b/],
    [`http://localhost:${gone.port}`, /^llm_error: the call failed: .*\bECONNREFUSED\b/],
  ]) {
    const { error } = (await asks(base)).meta;
    assert.match(`${error.code}: ${error.message}`, told);
  }
});

promise("an answer that is not whole in time is none, and its connection is closed", async (t) => {
  const left = [];
  const late = (begin) => (response) => {
    left.push(once(response, "close"));
    begin(response.setHeader("x-litellm-call-id", "id-4"));
  };
  const start = performance.now();

  await table([
    ["before its head", late(() => {}), "50", failed("llm_error", "no whole answer within 50 ms")],
    // Long enough for the head to be there on any machine: its id tells.
    ["in its body", late((response) => response.write('{"choices":')), "5000",
      failed("llm_error", "no whole answer within 5000 ms", "id-4")],
    ["in a stream", late((response) => response.setHeader("content-type", "text/event-stream").write(piece("a"))),
      "5000", failed("llm_error", "no whole answer within 5000 ms", "id-4")],
  ], async (when, answer, timeout) => {
    const to = await upstream(t, answer);
    const envelope = await run({ ...to.env, SLUICE_LLM_TIMEOUT_MS: timeout }, messagesFile);
    const { durationMs } = envelope.meta;
    const most = Math.ceil(performance.now() - start);
    // A timer may be a millisecond early, for it counts in whole ones.
    assert.ok(durationMs >= timeout - 1 && durationMs <= most, `${when}: ${durationMs} ms`);
    return timeless(envelope);
  });
  await Promise.all(left);
});

promise("an answer in time is one, and a stream is over with [DONE] though its connection stays open", async (t) => {
  let left;
  const stays = (response) => {
    left = once(response, "close");
    response.writeHead(200, { "content-type": "text/event-stream" }).write(STREAM);
  };

  assert.deepEqual(await call(t, stays, { SLUICE_LLM_TIMEOUT_MS: "999999999" }), answered(STREAM_TEXT));
  await left;
});

promise("without settings or messages nothing is asked, and settings are looked at first", async (t) => {
  const to = await upstream(t, says("a"));
  const none = join(scratch, "none.json");
  const asks = async (env, file) => timeless(await run({ ...to.env, ...env }, file));

  await table([
    [{ SLUICE_MODEL: "" }, none, failed("config_error", "SLUICE_MODEL is not set")],
    [{ SLUICE_MODEL: "" }, messagesFile, failed("config_error", "SLUICE_MODEL is not set")],
    [{}, none, failed("input_error", `cannot read ${none}: ENOENT`)],
  ], asks);
  assert.deepEqual(to.asked, []);
});

promise("an https base is spoken to in TLS", async (t) => {
  let first;
  const { port } = await listener(t, (socket) => socket.once("data", (bytes) => (first = bytes[0]) && socket.end()));

  const { payloads } = await run({ OPENAI_API_BASE: `https://127.0.0.1:${port}`, SLUICE_MODEL: "m" }, messagesFile);

  assert.deepEqual([first, payloads], [0x16, []]); // a TLS record that begins a handshake
});

promise("a fault of the agent's own is not called a failure of something else", () =>
  assert.rejects(run(null), TypeError));

// -- The program ------------------------------------------------------------------------------------------------------

/** Runs a program in an environment that is only what it is given. */
async function program(t, argv, { env = {}, stdout = "pipe", reads = async () => {} } = {}) {
  const [file, ...args] = argv;
  const child = spawn(file, args, { env: { PATH: process.env.PATH, ...env }, stdio: ["ignore", stdout, "pipe"] });
  t.after(() => child.kill("SIGKILL"));
  const ended = once(child, "close");
  const said = { stdout: [], stderr: [] };
  child.stderr.on("data", (part) => said.stderr.push(part));
  await Promise.race([reads(child), once(child, "exit")]);
  child.stdout?.on("data", (part) => said.stdout.push(part));
  const [code, signal] = await ended;
  return { code, signal, stdout: Buffer.concat(said.stdout).toString(), stderr: Buffer.concat(said.stderr).toString() };
}
const NODE_AGENT = [process.execPath, AGENT];

/** The exit code and the envelope of a program that wrote exactly one line, and that to stdout. */
function oneLine({ code, signal, stdout, stderr }) {
  assert.deepEqual({ signal, stderr }, { signal: null, stderr: "" });
  assert.equal(stdout.indexOf("\n"), stdout.length - 1, `not one line: ${stdout.slice(0, 300)}`);
  return [code, timeless(JSON.parse(stdout))];
}

promise("the program exits 0 with one line, whatever the answer holds", async (t) => {
  place(MESSAGES_FILE, JSON.stringify(MESSAGES));
  const text = "a\nb\r\n\"\\\u0000\u001b[31m\u2028\u{1f600}";
  const plain = await upstream(t, says(text, { "x-litellm-call-id": "id-5" }));
  const streamed = await upstream(t, sends(200, "text/event-stream", piece(text) + DONE));

  const tells = async (env) => oneLine(await program(t, NODE_AGENT, { env }));

  assert.deepEqual(await tells(plain.env), [0, answered(text, "id-5")]);
  assert.deepEqual(await tells({ ...streamed.env, SLUICE_STREAM: "1" }), [0, answered(text)]);
  assert.deepEqual(plain.asked.map(({ body }) => JSON.parse(body)), [{ model: "m", messages: MESSAGES }]);
});

promise("the program exits 1 with one line for each kind of failure", async (t) => {
  const to = await upstream(t, json(429, { error: { message: "slow down" } }));
  const late = await upstream(t, () => {});
  const fails = async (env) => oneLine(await program(t, NODE_AGENT, { env }));

  place(MESSAGES_FILE, JSON.stringify(MESSAGES));
  assert.deepEqual(await fails({}), [1, failed("config_error", "OPENAI_API_BASE is not set")]);
  assert.deepEqual(await fails(to.env), [1, failed("llm_error", "HTTP 429: slow down")]);
  assert.deepEqual(await fails({ ...late.env, SLUICE_LLM_TIMEOUT_MS: "50" }), [
    1, failed("llm_error", "no whole answer within 50 ms"),
  ]);
  rmSync(MESSAGES_FILE);
  assert.deepEqual(await fails(to.env), [1, failed("input_error", `cannot read ${MESSAGES_FILE}: ENOENT`)]);
});

const LONG = "0123456789abcdef".repeat(5e6 / 16);

for (const [reader, argv] of Object.entries({
  "a pipe": ["bash", "-c", '"$@" | cat; exit "${PIPESTATUS[0]}"', "bash", ...NODE_AGENT],
  "a socket, by one who waits": NODE_AGENT,
})) {
  promise(`five million characters arrive whole in ${reader}`, async (t) => {
    place(MESSAGES_FILE, JSON.stringify(MESSAGES));
    let given;
    const to = await upstream(t, (response) => says(LONG)(response.once("close", () => given())));

    const ended = await program(t, argv, { env: to.env, reads: () => new Promise((resolve) => (given = resolve)) });

    const [code, { payloads, meta }] = oneLine(ended);
    assert.deepEqual([code, meta, payloads.length], [0, { error: null, litellmCallId: null }, 1]);
    assert.ok(payloads[0].text === LONG, `${payloads[0].text.length} characters, or others`);
  });
}

promise("half of a character, which strict readers refuse, is told as one that is missing", async (t) => {
  place(MESSAGES_FILE, JSON.stringify(MESSAGES));
  const answer = await upstream(t, sends(200, "application/json", '{"choices":[{"message":{"content":"a\\ud83d"}}]}'));
  const refusal = await upstream(t, json(400, { error: { message: `${"x".repeat(1999)}😀` } }));
  const split = await upstream(t, sends(200, "text/event-stream", [
    '{"choices":[{"delta":{"content":"\\ud83d"}}]}', '{"choices":[{"delta":{"content":"\\ude00"}}]}', "[DONE]",
  ].map(event).join("")));
  const tells = async ({ env }) => oneLine(await program(t, NODE_AGENT, { env }));

  assert.deepEqual(await tells(answer), [0, answered("a\ufffd")]);
  assert.deepEqual(await tells(refusal), [1, failed("llm_error", `HTTP 400: ${"x".repeat(1999)}\ufffd`)]);
  assert.deepEqual(await tells(split), [0, answered("😀")]);
});

promise("with SLUICE_DELTAS the parts of the answer are lines before the envelope", async (t) => {
  place(MESSAGES_FILE, JSON.stringify(MESSAGES));
  const parts = ["a", "\\ud83d", "\\ude00b", "\\ud83d"];
  const stream = [...parts.map((part) => event(`{"choices":[{"delta":{"content":"${part}"}}]}`)), event("[DONE]")].join("");
  const to = await upstream(t, sends(200, "text/event-stream", stream));
  const whole = await upstream(t, says("whole"));

  const { stdout } = await program(t, NODE_AGENT, { env: { ...to.env, SLUICE_DELTAS: "1" } });
  const lines = stdout.trimEnd().split("\n").map((line) => JSON.parse(line));
  assert.deepEqual(lines.slice(0, -1), [{ delta: "a" }, { delta: "😀b" }]);
  assert.deepEqual(lines.at(-1).payloads, [{ text: "a😀b\ufffd" }]);
  const unstreamed = await program(t, NODE_AGENT, { env: { ...whole.env, SLUICE_DELTAS: "1" } });
  assert.deepEqual(oneLine(unstreamed), [0, answered("whole")], "an answer that does not stream has no parts");
});

promise("an answer that nobody can be told is a failure", async (t) => {
  place(MESSAGES_FILE, JSON.stringify(MESSAGES));
  const to = await upstream(t, says("a"));
  const full = openSync("/dev/full", "w");
  t.after(() => closeSync(full));
  const nothing = { code: 1, signal: null, stdout: "", stderr: "" };

  assert.deepEqual(await program(t, NODE_AGENT, { env: to.env, stdout: full }), nothing);
  assert.deepEqual(await program(t, NODE_AGENT, { env: to.env, reads: (child) => child.stdout.destroy() }), nothing);
});

promise("the program is the same by its own name and by a link, and rests where it is only imported", async (t) => {
  const link = join(scratch, "agent.mjs");
  symlinkSync(AGENT, link);
  const script = `await import("${AGENT}"); console.log("fine")`;
  const imports = [process.execPath, "--input-type=module", "--eval", script, "an-argument"];
  const unset = [1, failed("config_error", "OPENAI_API_BASE is not set")];

  assert.deepEqual(oneLine(await program(t, [AGENT])), unset);
  assert.deepEqual(oneLine(await program(t, [process.execPath, link])), unset);
  assert.deepEqual(await program(t, imports), { code: 0, signal: null, stdout: "fine\n", stderr: "" });
});

promise("the program looks for localhost where the bridge listens, whatever Node would do", async (t) => {
  const script = 'process.on("exit", () => console.error(require("dns").getDefaultResultOrder()));';
  const tell = place(join(scratch, "tell.cjs"), script);
  const env = { NODE_OPTIONS: `--dns-result-order=verbatim --require=${tell}` };

  assert.equal((await program(t, NODE_AGENT, { env })).stderr, "ipv4first\n");
});
