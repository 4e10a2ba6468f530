// The parts of the worker that do nothing but compute: bounds, lines, command lines, the events of agents.
import assert from "node:assert/strict";
import { closeSync, mkdirSync, openSync, statSync, symlinkSync, writeFileSync } from "node:fs";

import { fresh, linesOf, load, promise } from "./parts.mjs";
import { faultOfData } from "./relay_mock.mjs";

const { DATA_MAX, boundedJson, cutText } = await load("bounded_json.mjs");
const { Lines } = await load("lines.mjs");
const { milliseconds, readCommand, withStay } = await load("settings.mjs");
const { relayAddress, meaning } = await load("relay.mjs");
const { messagesOf } = await load("inbox.mjs");
const { Transcript } = await load("transcript.mjs");
const { readTask, streamError, taskOf } = await load("worker.mjs");
const { ClaudeEvents } = await load("claude_events.mjs");
const { CodexEvents } = await load("codex_events.mjs");

const nested = (depth) => `${"[".repeat(depth)}1${"]".repeat(depth)}`;

promise("any value becomes JSON that the daemon takes", () => {
  const wide = Object.fromEntries(Array.from({ length: 5000 }, (_, at) => [`member ${at}`, at]));
  const values = [
    "x".repeat(1e6), { a: "\0", "b\0": "\ud800", c: "\udc00x" }, JSON.parse(nested(5000)), wide, { wide: [wide, wide, wide] },
    Array(1e5).fill("word"), "😀".repeat(60_000), [Infinity, NaN, -0, 1e308], undefined, null, { f: () => 1, u: undefined },
    JSON.parse('{"__proto__":{"a":1},"constructor":1}'), '"'.repeat(99_000), "\u0001".repeat(99_000),
    Array.from({ length: 900 }, () => "\u0001".repeat(30_000)),
  ];
  for (const value of values) {
    const json = boundedJson(value);
    assert.ok(Buffer.byteLength(json) <= DATA_MAX, `${json.length} characters`);
    assert.equal(faultOfData(JSON.parse(json), 1), undefined, json.slice(0, 200));
  }
  assert.equal(boundedJson(JSON.parse('{"__proto__":{"a":1}}')), '{"__proto__":{"a":1}}');
  assert.equal(boundedJson({ a: [1, "b", { c: null, d: true }] }), '{"a":[1,"b",{"c":null,"d":true}]}');
});

promise("a text that is cut has its beginning, its end and a marker", () => {
  assert.equal(cutText("abcdefgh", 8), "abcdefgh");
  assert.equal(cutText("abcdefghijkl", 8), "abcdef\n[… 4 characters left out …]\nkl");
});

promise("lines come whole, however their bytes were cut", () => {
  const text = "one\r\n\nzwei ü😀\nlong-long-long\nlast";
  const bytes = Buffer.from(text);
  for (let at = 0; at <= bytes.length; at += 1) {
    const heard = [];
    const lines = new Lines(10, (line, leftOut) => heard.push([line, leftOut]));
    lines.add(bytes.subarray(0, at));
    lines.add(bytes.subarray(at));
    lines.end();
    assert.deepEqual(heard, [["one", 0], ["", 0], ["zwei ü😀", 0], ["long-long-", 4], ["last", 0]], `cut at ${at}`);
  }
});

promise("a line without an end takes bounded memory and time", () => {
  const heard = [];
  const lines = new Lines(1000, (line, leftOut) => heard.push([line.length, leftOut]));
  for (let at = 0; at < 20_000; at += 1) lines.add(Buffer.alloc(1000, 120));
  lines.end();
  assert.deepEqual(heard, [[1000, 20_000_000 - 1000]]);
});

promise("the run of a chat says how long an agent stays", () => {
  const stay = (words, env) => withStay(readCommand(words), env).stayMs;
  assert.equal(stay(["codex"], {}), 0);
  assert.equal(stay(["codex"], { SLUICE_STAY: "660s" }), 660_000);
  assert.equal(stay(["claude", "--stay", "2m"], { SLUICE_STAY: "660s" }), 120_000);
  assert.equal(stay(["run", "--", "sh"], { SLUICE_STAY: "660s" }), undefined);
});

promise("only an interrupt says what follows it", () => {
  const then = (message_type, word) => messagesOf([{ id: "msg-1", content: "x", message_type, then: word }])[0].then;
  assert.deepEqual([then("interrupt", "wait"), then("interrupt", "end")], ["wait", "end"]);
  assert.deepEqual([then("interrupt", "sleep"), then("user_message", "end")], [undefined, undefined]);
});

promise("the command line is the worker's flags, the agent's arguments, and a prompt", () => {
  assert.deepEqual(readCommand(["run", "--inbox", "f", "--", "sh", "-c", "x"]), { command: "run", argv: ["sh", "-c", "x"], inboxFile: "f" });
  assert.deepEqual(readCommand(["run", "sh", "--stay"]).argv, ["sh", "--stay"]);
  assert.deepEqual(readCommand(["claude", "--stay", "2m", "--model", "m", "-p", "--verbose", "--", "do", "it"]), {
    command: "claude", program: "claude", args: ["--model", "m"], prompt: "do it", stayMs: 120_000, perTurn: false, raw: false,
  });
  assert.deepEqual(readCommand(["codex", "--raw", "exec", "--json", "-m", "m"]), {
    command: "codex", program: "codex", args: ["-m", "m"], prompt: undefined, stayMs: 0, perTurn: false, raw: true,
  });
  const asked = readCommand(["ask", "Which?", "--option", "A", "--timeout", "90s", "--option", "B"]);
  assert.deepEqual([asked.question, asked.options, asked.timeoutMs], ["Which?", ["A", "B"], 90_000]);
});

promise("a wrong command line says what is wrong", () => {
  const rows = [
    [[], "a command is missing"], [["fly"], "there is no command 'fly'"], [["run"], "run needs a program"],
    [["run", "--stay", "1s"], "run does not know --stay; the program follows --"],
    [["claude", "--stay"], "--stay needs a value"], [["claude", "--stay", "soon"], "--stay takes a time such as 90s, 10m or 2h"],
    [["claude", "--output-format=json"], "--output-format=json: the worker sets this itself; leave it out"],
    [["claude", "--"], "the prompt after -- is empty"],
    [["codex", "resume", "x"], "codex resume: the worker resumes its own sessions only"],
    [["ask", "--topic", "a"], "ask does not know --topic"], [["ask", "a", "--timeuot", "5m"], "ask does not know --timeuot"],
    [["ask"], "ask needs a question"], [["ask", "a", "b"], "one question at a time; quote it: b"],
    [["ask", "x".repeat(1001)], "a question has at most 1,000 characters"],
    [["ask", "a", ...Array(7).fill(["--option", "o"]).flat()], "a question has at most 6 options"],
    [["ask", "a", "--option", "x".repeat(81)], "an option has 1 to 80 characters"],
  ];
  for (const [words, message] of rows) assert.throws(() => readCommand(words), { message }, words.join(" "));
  assert.equal(readCommand(["ask", "- or +?"]).question, "- or +?");
  assert.equal(milliseconds("2h", "--stay"), 7_200_000);
});

promise("the address of the daemon follows from the variables of a run", () => {
  const path = "/api/v1/sandboxes/r-1/";
  assert.deepEqual(relayAddress({ RUN_ID: "r-1" }), { host: "localhost", port: 8080, path });
  assert.deepEqual(relayAddress({ RUN_ID: "r-1", LLM_PROXY_PORT: "99" }), { host: "localhost", port: 99, path });
  for (const env of [{}, { RUN_ID: "" }, { RUN_ID: "../r2" }, { RUN_ID: "a b" }, { RUN_ID: "r", LLM_PROXY_PORT: "70000" }]) {
    assert.equal(relayAddress(env), undefined, JSON.stringify(env));
  }
});

promise("each answer of the daemon has one meaning", () => {
  const meanings = {
    done: [200, 201, 204], retry: [0, 408, 429, 500, 502, 503, 504], refused: [400, 402, 413, 422], gone: [401, 403, 404, 405, 410],
  };
  for (const [expected, statuses] of Object.entries(meanings)) {
    for (const status of statuses) assert.equal(meaning({ status }), expected, `${status}`);
  }
  assert.deepEqual([meaning({ status: 409 }), meaning({ status: 409, code: "run_finished" })], ["refused", "gone"]);
});

promise("what is not a message is left out", () => {
  const wrong = [null, 1, [], {}, { id: 1, content: "x" }, { id: "a" }, { id: "a", content: "" }, { id: "a", content: {} }];
  for (const json of [undefined, null, {}, "x", wrong]) assert.deepEqual(messagesOf(json), []);
  const given = [{ id: "a", content: "x", message_type: "interrupt", more: 1 }, { id: "b", content: "y", message_type: "odd" }];
  assert.deepEqual(messagesOf(given), [
    { id: "a", content: "x", type: "interrupt" }, { id: "b", content: "y", type: "user_message" },
  ]);
});

promise("a task is one text, whatever its form", async () => {
  const image = [{ type: "text", text: "see" }, { type: "image_url" }];
  assert.equal(taskOf({ task: "do", messages: [{ role: "user", content: "do" }] }), "do");
  assert.equal(taskOf({ task: null, messages: [{ role: "user", content: image }] }), "see\n[image_url]");
  const two = [{ role: "system", content: "short" }, { role: "user", content: "hi" }, { role: "user" }, null];
  assert.equal(taskOf({ messages: two }), "[system]\nshort\n\n[user]\nhi");
  for (const none of [undefined, null, 1, {}, { messages: [] }, { messages: [{}] }]) assert.equal(taskOf(none), undefined);
  const file = fresh("messages.json");
  writeFileSync(file, '[{"role":"user","content":"from the file"}]');
  assert.deepEqual(await readTask(undefined, file), { task: "from the file" });
  assert.equal((await readTask(undefined, fresh("none.json"))).task, undefined);
});

promise("a task that cannot be read has a reason", async () => {
  const relay = (...answers) => ({ send: async () => answers.shift() });
  const [none, good, broken, directory] = ["none.json", "good.json", "broken.json", "directory"].map(fresh);
  writeFileSync(good, '[{"role":"user","content":"from the file"}]');
  writeFileSync(broken, "[{");
  mkdirSync(directory);
  const read = async (answers, file) => {
    const { task, fault } = await readTask(answers && relay(...answers), file, [1]);
    return task ?? fault;
  };
  const [away, busy, gone, missing, empty] = [[0], [503], [401], [404], [200, {}]].map(([status, json]) => ({ status, json }));

  assert.equal(await read([away, busy], none), "the daemon does not answer (503)");
  assert.equal(await read([busy, away], broken), "the daemon does not answer (no connection)");
  assert.equal(await read([busy, { status: 200, json: { task: "late" } }], none), "late");
  assert.equal(await read([gone], none), "the daemon refuses (401)");
  assert.equal(await read([busy, busy], good), "from the file");
  for (const quiet of [undefined, [missing], [empty]]) {
    assert.equal(await read(quiet, none), undefined);
    assert.equal(await read(quiet, broken), `${broken} is not valid JSON`);
    assert.equal(await read(quiet, directory), `${directory}: EISDIR`);
  }
});

promise("an end by a fault has a type of its own", () => {
  const typeOf = (end) => streamError(end).error_type;
  assert.equal(typeOf({ error: "ENOENT" }), "stream_init");
  assert.equal(typeOf({ code: null, signal: "SIGKILL" }), "sigkill");
  assert.equal(typeOf({ code: null, signal: "SIGSEGV" }), "unknown");
  assert.equal(typeOf({ code: 3, signal: null }), "command_failed");
  assert.equal(typeOf({ code: 0, signal: null }), "unknown");
  assert.equal(streamError({ code: 3, tail: "no disk" }).stderr_tail, "no disk");
});

promise("a transcript is appended to, within its bound, and follows no link", () => {
  const file = fresh("t/transcript.jsonl");
  for (const text of ["one", "two"]) {
    const transcript = new Transcript(file);
    transcript.add("agent.message", { text });
    transcript.close();
  }
  const lines = linesOf(file);
  assert.deepEqual(lines.map(({ type, data }) => [type, data.text]), [["agent.message", "one"], ["agent.message", "two"]]);
  assert.ok(lines.every(({ ts }) => Math.abs(Date.parse(ts) - Date.now()) < 60_000));

  const small = fresh("small.jsonl");
  for (let worker = 0; worker < 20; worker += 1) {
    const bounded = new Transcript(small, { max: 4000 });
    for (let at = 0; at < 100; at += 1) bounded.add("agent.message", { text: "x".repeat(500) });
    bounded.close();
  }
  assert.ok(statSync(small).size <= 4000, `${statSync(small).size} bytes`);
  assert.equal(linesOf(small).at(-1).type, "transcript.full");

  const [target, link] = [fresh("target"), fresh("link")];
  writeFileSync(target, "");
  symlinkSync(target, link);
  const directory = fresh("directory");
  mkdirSync(directory);
  const said = [];
  const lost = [[link, "ELOOP"], [directory, "EISDIR"], [`${target}/below`, "EEXIST"]];
  for (const [path] of lost) {
    const none = new Transcript(path, { say: (line) => said.push(line) });
    for (const text of ["x", "y"]) none.add("agent.message", { text });
    none.close();
  }
  assert.equal(statSync(target).size, 0);
  assert.deepEqual(said, lost.map(([path, code]) => `the transcript ${path} cannot be written: ${code}; the run goes on without it`));
});

promise("a transcript on a full disk is given up once", () => {
  const [link, said] = [fresh("full"), []];
  const full = new Transcript(link, { say: (line) => said.push(line) });
  closeSync(full.file);
  full.file = openSync("/dev/full", "w");
  for (const text of ["x", "y"]) full.add("agent.message", { text });
  full.close();
  assert.deepEqual(said, [`the transcript ${link} cannot be written: ENOSPC; the run goes on without it`]);
});

// -- Hostile streams --------------------------------------------------------------------------------------------------

const POISON = [
  "", " ", "{", "null", "1", '"x"', "[]", "{}", nested(20_000), '{"type":null}', '{"type":{}}', '{"type":"new_kind","x":1}',
  "\u001b]52;c;eA==\u0007", `{"type":"${"x".repeat(300_000)}"}`, '{"type":"__proto__"}', '{"type":"constructor"}',
];
const VALUES = [null, 1, "x", true, [], {}, [null], [[]], [{}], [{ type: null }], [{ type: "text" }], { content: null }, { toString: 1, valueOf: 1 }];

/** Replaces each member of an object in turn by each strange value. */
function* damaged(value) {
  if (typeof value !== "object" || value === null) return;
  for (const name of Object.keys(value)) {
    for (const strange of VALUES) yield { ...value, [name]: strange };
    for (const inner of damaged(value[name])) {
      yield Array.isArray(value) ? Object.assign([...value], { [name]: inner }) : { ...value, [name]: inner };
    }
  }
}

const check = (translator, line) => {
  for (const { type, data } of translator.line(line)) {
    assert.match(type, /^agent\.[a-z_]+$/);
    assert.ok(typeof data === "object" && data !== null);
    assert.equal(faultOfData(JSON.parse(boundedJson(data)), 1), undefined);
  }
};

promise("no line of an agent breaks its adapter", () => {
  const claude = [
    { type: "assistant", message: { content: [{ type: "text", text: "t" }, { type: "thinking", thinking: "h" }] }, error: "e" },
    { type: "assistant", message: { content: [{ type: "tool_use", id: "1", name: "Task", input: { prompt: "p" } }] } },
    {
      type: "user", message: { content: [{ type: "tool_result", tool_use_id: "1", content: [{ text: "r" }] }] },
      tool_use_result: { filePath: "f", structuredPatch: [{ oldStart: 1, lines: ["+a"] }], status: "completed" },
    },
    { type: "system", subtype: "task_notification", tool_use_id: "1", usage: {} },
    { type: "system", subtype: "init", session_id: "s" },
    { type: "result", subtype: "success", result: "r", num_turns: 1, total_cost_usd: 1, usage: {}, errors: [] },
    { type: "stream_event", event: { type: "content_block_delta", delta: { text: "d" } } },
  ];
  const codex = [
    { type: "item.completed", item: { id: "i", type: "file_change", changes: [{ path: "p", kind: "add" }], status: "s" } },
    { type: "item.completed", item: { id: "i", type: "mcp_tool_call", result: { content: [{ text: "t" }] }, error: { message: "m" } } },
    {
      type: "item.completed",
      item: { type: "collab_tool_call", tool: "spawn_agent", receiver_thread_ids: ["a"], agents_states: { a: { status: "completed" } } },
    },
    { type: "item.updated", item: { type: "todo_list", items: [] } }, { type: "turn.failed", error: { message: "m" } },
    { type: "thread.started", thread_id: "t" }, { type: "turn.completed", usage: {} }, { type: "error", message: "m" },
  ];
  for (const [items, make] of [[claude, () => new ClaudeEvents()], [codex, () => new CodexEvents()]]) {
    const translator = make();
    for (const line of POISON) check(translator, line);
    for (const item of items) {
      check(translator, JSON.stringify(item));
      for (const wrong of damaged(item)) check(translator, JSON.stringify(wrong));
    }
    translator.outcome({ code: 0, signal: null }, 0);
  }
});
