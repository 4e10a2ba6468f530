// What the worker promises beside a program: its events, messages, questions and end, against a daemon with faults.
import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

import { fresh, linesOf, load, promise, startWorker } from "./parts.mjs";
import { RelayMock } from "./relay_mock.mjs";

const { EventQueue } = await load("event_queue.mjs");
const { Inbox } = await load("inbox.mjs");
const { Relay } = await load("relay.mjs");

const SHORT = [10, 20, 40]; // ms between tries, in place of seconds

/** Runs the body with a daemon, and checks that nothing broke the protocol. */
const withDaemon = (sentence, options, body) => promise(sentence, async () => {
  const daemon = await new RelayMock(options).start();
  try {
    await body(daemon);
    assert.deepEqual(daemon.wrong, []);
  } finally {
    await daemon.stop();
  }
});

const run = (daemon, script, ...flags) => startWorker(["run", ...flags, "--", "sh", "-c", script], daemon.env);
const text = (daemon, stream) =>
  daemon.dataOf("message").filter((data) => data.stream === stream).map((data) => data.text).join("");

// -- A program --------------------------------------------------------------------------------------------------------

withDaemon("a program's output and end are events, and stay what they are", {}, async (daemon) => {
  const { ended } = run(daemon, "echo one; echo two >&2; printf 'no newline'");

  const end = await ended;

  assert.deepEqual([end.code, end.stdout, end.stderr], [0, "one\nno newline", "two\n"]);
  assert.deepEqual([text(daemon, "stdout"), text(daemon, "stderr")], ["one\nno newline\n", "two\n"]);
  assert.deepEqual([daemon.types()[0], daemon.types().at(-1)], ["started", "completed"]);
  assert.deepEqual(daemon.dataOf("completed"), [{ success: true, exit_code: 0 }]);
  assert.deepEqual(daemon.dataOf("heartbeat"), [{ status: "running" }]);
  assert.equal(daemon.counts["GET messages"], undefined, "a program without an inbox reads no messages");
  assert.deepEqual(end.transcript.map(({ type }) => type.replace("agent.", "")).sort(), ["completed", "message", "message", "message", "started"]);
});

withDaemon("each end of a program is told apart", {}, async (daemon) => {
  const ends = [["exit 3", 3], ["kill -9 $$", 137], ["kill -TERM $$", 143], ["exec /nonexistent/program", 127]];
  for (const [script, code] of ends) {
    assert.equal((await run(daemon, script).ended).code, code, script);
    daemon.refill();
  }
  const missing = await startWorker(["run", "--", "/nonexistent/program"], daemon.env).ended;

  assert.deepEqual([missing.code, missing.stderr], [127, "sluice-worker: the program cannot be started: ENOENT\n"]);
  const errors = daemon.dataOf("stream_error").map(({ error_type, exit_code, signal }) => [error_type, exit_code ?? signal]);
  assert.deepEqual(errors, [
    ["command_failed", 3], ["sigkill", "SIGKILL"], ["unknown", "SIGTERM"], ["command_failed", 127], ["stream_init", undefined],
  ]);
  assert.deepEqual([daemon.dataOf("completed"), daemon.dataOf("failed")], [[], []]);
});

promise("without a daemon a program runs as it is", async () => {
  const alone = await startWorker(["run", "--", "sh", "-c", "echo out; exit 5"]).ended;
  assert.deepEqual([alone.code, alone.stdout, alone.stderr], [5, "out\n", ""]);
  assert.deepEqual(alone.transcript.map(({ type }) => type), ["agent.started", "agent.message", "agent.stream_error"]);
});

withDaemon("a run without a controller is left in peace", { fault: () => ({ status: 404 }) }, async (daemon) => {
  const end = await run(daemon, "echo out").ended;

  assert.deepEqual([end.code, end.stdout, end.stderr], [0, "out\n", ""]);
  assert.ok(daemon.counts["POST events"] <= 2, JSON.stringify(daemon.counts));
});

withDaemon("a flood of output neither stops the program nor breaks the bounds", {}, async (daemon) => {
  const start = performance.now();
  const end = await run(daemon, "seq 1 300000; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last").ended;

  assert.equal(end.stdout.length, 1_988_895 + 3_000_001 + 5);
  assert.ok(performance.now() - start < 30_000, "the program waits for no event");
  assert.ok(text(daemon, "stdout").endsWith("last\n"));
  assert.match(text(daemon, "stdout"), /x\[… 2984000 characters left out …\]/);
  const dropped = daemon.dataOf("progress").reduce((sum, data) => sum + (data.dropped_events ?? 0), 0);
  assert.ok(dropped > 0, "what was dropped is counted");
  assert.deepEqual(daemon.types().at(-1), "completed");
});

withDaemon("messages reach a program by its inbox, and an interrupt as SIGINT", {}, async (daemon) => {
  const inbox = fresh("inbox.jsonl");
  const { ended } = run(daemon, "trap 'echo stopped; exit 9' INT; echo ready; while :; do sleep 0.05; done", "--inbox", inbox);
  await daemon.until(() => text(daemon, "stdout").includes("ready"));
  daemon.send("a first\nmessage");
  await daemon.until(() => daemon.acks.length === 1);
  daemon.send("stop now", "interrupt");

  const end = await ended;

  assert.deepEqual([end.code, end.stdout], [9, "ready\nstopped\n"]);
  assert.deepEqual(linesOf(inbox), [
    { id: "msg-000000000001", message_type: "user_message", content: "a first\nmessage" },
    { id: "msg-000000000002", message_type: "interrupt", content: "stop now" },
  ]);
  assert.deepEqual(daemon.acks, ["msg-000000000001", "msg-000000000002"]);
  assert.deepEqual(daemon.dataOf("interrupted"), [{ message_id: "msg-000000000002" }]);
});

withDaemon("a message that cannot be written comes again", { leaseMs: 100 }, async (daemon) => {
  const directory = fresh("later");
  const inbox = join(directory, "inbox.jsonl");
  const { ended } = run(daemon, `trap 'echo stopped' INT; echo ready; until [ -s ${inbox} ]; do sleep 0.05; done`, "--inbox", inbox);
  await daemon.until(() => text(daemon, "stdout").includes("ready"));
  const id = daemon.send("stop", "interrupt");
  await daemon.until(() => text(daemon, "stdout").includes("stopped"));
  assert.deepEqual(daemon.acks, []);
  mkdirSync(directory);

  const end = await ended;

  assert.deepEqual([end.code, end.stdout], [0, "ready\nstopped\n"], "the interrupt has its effect once");
  assert.match(end.stderr, /^sluice-worker: \S+ cannot be written: ENOENT; the message comes again\n/);
  assert.deepEqual(linesOf(inbox), [{ id, message_type: "interrupt", content: "stop" }]);
  assert.deepEqual([daemon.dataOf("interrupted"), daemon.acks], [[{ message_id: id }], [id]]);
});

// -- The end by a signal ----------------------------------------------------------------------------------------------

withDaemon("SIGTERM ends program and worker, and tells it", {}, async (daemon) => {
  const { child, ended } = run(daemon, "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done");
  await daemon.until(() => text(daemon, "stdout").includes("ready"));
  const start = performance.now();
  child.kill("SIGTERM");

  const end = await ended;

  assert.deepEqual([end.code, end.stdout], [7, "ready\nbye\n"]);
  assert.ok(performance.now() - start < 60_000);
  assert.deepEqual(daemon.dataOf("shutdown"), [{ signal: "SIGTERM" }]);
  assert.deepEqual([daemon.dataOf("completed"), daemon.dataOf("stream_error")], [[], []]);
});

withDaemon("a program that ignores SIGTERM is killed with all that it started", {}, async (daemon) => {
  const pids = fresh("pids");
  const { child, ended } = run(daemon, `trap '' TERM; sleep 300 & echo $! >${pids}; echo ready; while :; do sleep 0.05; done`);
  await daemon.until(() => text(daemon, "stdout").includes("ready"));
  child.kill("SIGTERM");

  assert.equal((await ended).code, 137);
  const [grandchild] = linesOf(pids);
  assert.ok(!existsSync(`/proc/${grandchild}/cmdline`) || /State:\s+Z/.test(statusOf(grandchild)), "the sleep is gone");
});

function statusOf(pid) {
  try {
    return readFileSync(`/proc/${pid}/status`, "utf8");
  } catch {
    return "State: Z";
  }
}

withDaemon("a daemon that is away does not hold up the end by SIGTERM", { fault: () => "cut" }, async (daemon) => {
  const { child, ended } = run(daemon, "echo ready; exec sleep 300");
  await once(child.stdout, "data");
  const start = performance.now();
  child.kill("SIGTERM");

  const end = await ended;

  assert.deepEqual([end.code, end.stderr], [143, ""]);
  assert.ok(performance.now() - start < 20_000, "5 s, and not the time of the program");
});

// -- Faults of the daemon ---------------------------------------------------------------------------------------------

/** The first requests of a kind fail so; the rest pass. */
const first = (kind, ...faults) => ({ method, resource, number }) =>
  `${method} ${resource}` === kind ? faults[number - 1] : undefined;

/** Sends these events through a queue of the worker, and waits until they are out. */
async function deliver(daemon, events, options = {}) {
  const relay = new Relay(daemon.address);
  const said = [];
  const post = (body) => relay.send("events", "POST", "events", { body });
  const queue = new EventQueue(post, { retryMs: SHORT, say: (line) => said.push(line), ...options });
  for (const [type, data, more] of events) queue.push(`agent.${type}`, data, more);
  const isEmpty = await queue.flush(10_000);
  relay.close();
  return { said, isEmpty };
}
const numbered = (count, type = "tool_use") => Array.from({ length: count }, (_, id) => [type, { id }]);

const AWAY = first("POST events", { status: 503 }, { status: 502 }, "cut", { status: 503 }, { status: 503 }, { status: 503 });
withDaemon("events wait for a daemon that is away, in order and in silence", { fault: AWAY }, async (daemon) => {
  const { said, isEmpty } = await deliver(daemon, numbered(5));

  assert.deepEqual(daemon.dataOf("tool_use"), [{ id: 0 }, { id: 1 }, { id: 2 }, { id: 3 }, { id: 4 }]);
  assert.deepEqual([said, isEmpty, daemon.counts["POST events"], daemon.mostOpen], [[], true, 11, 1]);
});

withDaemon("events go over one connection", {}, async (daemon) => {
  await deliver(daemon, numbered(20));
  assert.equal(daemon.connections, 1);
});

withDaemon("an event whose answer is lost is sent again", { fault: first("POST events", "lost") }, async (daemon) => {
  await deliver(daemon, numbered(2));
  assert.deepEqual(daemon.dataOf("tool_use"), [{ id: 0 }, { id: 0 }, { id: 1 }]);
});

const REFUSE = first("POST events", { status: 422, json: { error: { code: "reserved_event_type" } } });
withDaemon("an event that is refused holds up no other", { fault: REFUSE }, async (daemon) => {
  const { said } = await deliver(daemon, numbered(3));

  assert.deepEqual(daemon.types(), ["progress", "tool_use", "tool_use"]);
  assert.deepEqual(daemon.dataOf("progress").map((data) => [data.dropped_events, data.dropped_types]), [[1, { "agent.tool_use": 1 }]]);
  assert.deepEqual(said, ["the daemon does not take an event: 422 reserved_event_type"]);
});

const POISON = ({ body }) => (body?.event_data?.id === 1 ? { status: 500 } : undefined);
withDaemon("an event that breaks the daemon is given up after three retries", { fault: POISON }, async (daemon) => {
  await deliver(daemon, numbered(3));

  assert.deepEqual(daemon.dataOf("tool_use"), [{ id: 0 }, { id: 2 }]);
  assert.equal(daemon.counts["POST events"], 1 + 4 + 1 + 1);
});

withDaemon("when every event is refused, the worker comes to an end", { fault: () => ({ status: 422 }) }, async (daemon) => {
  const { isEmpty } = await deliver(daemon, numbered(10));
  assert.ok(isEmpty && daemon.counts["POST events"] <= 20, JSON.stringify(daemon.counts));
});

const LIMITED = first("POST events", { status: 429, headers: { "retry-after": "1" } });
withDaemon("the wait that the daemon asks for is kept", { fault: LIMITED }, async (daemon) => {
  const start = performance.now();
  const relay = new Relay(daemon.address);
  const queue = new EventQueue((body) => relay.send("events", "POST", "events", { body }), { retryMs: SHORT });
  queue.push("agent.tool_use", { id: 0 });
  await daemon.until(() => daemon.events.length === 1);

  assert.ok(performance.now() - start >= 1000);
  assert.ok(await queue.flush(5000));
  relay.close();
});

withDaemon("a run that is over is told nothing more", {
  fault: ({ number }) => (number > 2 ? { status: 409, json: { error: { code: "run_finished" } } } : undefined),
}, async (daemon) => {
  await deliver(daemon, numbered(50));
  assert.equal(daemon.counts["POST events"], 3);
});

promise("a full buffer loses the oldest of what matters least, and counts it", async () => {
  const sent = [];
  let open;
  const gate = new Promise((resolve) => (open = resolve));
  const queue = new EventQueue(async (event) => {
    await gate;
    sent.push(event);
    return { status: 200 };
  }, { eventsMax: 4 });
  queue.push("agent.started", {});
  await new Promise(setImmediate); // it is on its way
  for (const id of [1, 2, 3]) queue.push("agent.thinking", { id });
  for (const id of [1, 2, 3]) queue.push("agent.tool_use", { id });
  queue.push("agent.completed", {});
  open();
  await queue.flush(5000);

  assert.deepEqual(sent.map(({ event_type, event_data }) => [event_type, event_data.id ?? event_data.dropped_types]), [
    ["agent.started", undefined], ["agent.progress", { "agent.thinking": 3 }],
    ["agent.tool_use", 1], ["agent.tool_use", 2], ["agent.tool_use", 3], ["agent.completed", undefined],
  ]);
});

promise("the end by a signal is told before what waits", async () => {
  const sent = [];
  const queue = new EventQueue(async ({ event_type }) => sent.push(event_type) && { status: 200 });
  for (const [type] of numbered(3)) queue.push(`agent.${type}`, {});
  queue.push("agent.shutdown", {}, { first: true });
  await queue.flush(5000);

  assert.deepEqual(sent, ["agent.shutdown", "agent.tool_use", "agent.tool_use", "agent.tool_use"]);
});

promise("the buffer is bounded in bytes as well", async () => {
  const queue = new EventQueue(() => new Promise(() => {}), { bytesMax: 100_000 });
  for (let id = 0; id < 500; id += 1) queue.push("agent.tool_result", { id, content: "x".repeat(1000) });

  assert.ok(queue.bytes <= 100_000 && queue.waiting.length > 50, `${queue.bytes} bytes, ${queue.waiting.length} events`);
  assert.equal(queue.waiting.at(-1).json.includes('"id":499'), true);
});

withDaemon("output that waits is joined, and text in parts too", {}, async (daemon) => {
  const lines = Array.from({ length: 200 }, (_, at) => ["message", { stream: "stdout", text: `${at}\n` }, { merge: "stdout" }]);
  await deliver(daemon, [...lines, ["message", { stream: "stderr", text: "e\n" }, { merge: "stderr" }]]);

  assert.equal(text(daemon, "stdout"), lines.map(([, data]) => data.text).join(""));
  assert.ok(daemon.events.length <= 3, `${daemon.events.length} events`);
});

// -- Messages ---------------------------------------------------------------------------------------------------------

/** An inbox that acknowledges what it is given, until the body has seen enough. */
async function listen(daemon, body, { acknowledges = true } = {}) {
  const relay = new Relay(daemon.address);
  const got = [];
  const inbox = new Inbox(relay, (message) => {
    got.push(message.content);
    if (acknowledges) inbox.acknowledge([message.id]);
  }, { retryMs: SHORT, ackRetryMs: SHORT });
  inbox.start();
  await body(got, inbox);
  await inbox.stop();
  relay.close();
}

const SHAKY = ({ method, resource, number }) => {
  if (resource === "messages") return [{ status: 503 }, "cut", undefined, { status: 502 }, { status: 429 }][number - 1];
  return method === "POST" && number === 1 ? { status: 503 } : undefined;
};
withDaemon("a message comes through faults of polls and acknowledgements", { fault: SHAKY }, async (daemon) => {
  await listen(daemon, async (got) => {
    daemon.send("one");
    await daemon.until(() => daemon.acks.length === 1);
    daemon.send("two");
    await daemon.until(() => daemon.acks.length === 2);
    assert.deepEqual(got, ["one", "two"]);
  });
});

const NO_ACKS = ({ resource, number }) => (resource === "messages/ack" && number <= 4 ? "cut" : undefined);
withDaemon("a message whose acknowledgement is lost is delivered once", { fault: NO_ACKS, leaseMs: 100 }, async (daemon) => {
  await listen(daemon, async (got) => {
    daemon.send("once");
    await daemon.until(() => daemon.acks.length >= 1);
    assert.deepEqual(got, ["once"]);
  });
});

withDaemon("a message that waits for its turn is delivered once, and not acknowledged", { leaseMs: 50 }, async (daemon) => {
  await listen(daemon, async (got) => {
    daemon.send("waits");
    await daemon.until(() => daemon.counts["GET messages"] >= 4);
    assert.deepEqual([got, daemon.acks], [["waits"], []]);
  }, { acknowledges: false });
});

withDaemon("an interrupt goes before other messages", {}, async (daemon) => {
  daemon.send("later");
  daemon.send("now", "interrupt");
  await listen(daemon, async (got) => {
    await daemon.until(() => daemon.acks.length === 2);
    assert.deepEqual(got, ["now", "later"]);
  });
});

withDaemon("polls do not spin on a daemon that answers at once", {
  fault: ({ resource }) => (resource === "messages" ? { status: 200, json: [] } : undefined),
}, async (daemon) => {
  await listen(daemon, async () => {
    await daemon.until(() => daemon.counts["GET messages"] === 2);
    const start = performance.now();
    await daemon.until(() => daemon.counts["GET messages"] === 3);
    assert.ok(performance.now() - start > 1500);
  });
});

// -- Questions --------------------------------------------------------------------------------------------------------

const ask = (daemon, ...words) => startWorker(["ask", ...words], daemon.env).ended;

withDaemon("a question has the answer of a person", {}, async (daemon) => {
  const asked = ask(daemon, "Which colour?", "--option", "red", "--option", "blue", "--timeout", "5m");
  await daemon.until(() => daemon.questions.size === 1);
  const [question] = daemon.questions.values();
  assert.deepEqual([question.question, question.options], ["Which colour?", ["red", "blue"]]);
  daemon.answer(question.question_id, "blue");

  const end = await asked;

  assert.deepEqual([end.code, end.stdout, end.stderr], [0, "blue\n", ""]);
});

withDaemon("a question that expires ends with 3", {}, async (daemon) => {
  const asked = ask(daemon, "Anybody?");
  await daemon.until(() => daemon.questions.size === 1);
  daemon.expire([...daemon.questions.keys()][0]);

  const end = await asked;

  assert.deepEqual([end.code, end.stdout, end.stderr], [3, "", "sluice-worker: nobody has answered in time\n"]);
});

withDaemon("a question that nobody answers ends with 3 as well", {}, async (daemon) => {
  const end = await ask(daemon, "Anybody?", "--timeout", "1s");
  assert.deepEqual([end.code, end.stdout, end.stderr], [3, "", "sluice-worker: nobody has answered in time\n"]);
});

withDaemon("a question waits beside the poll of the worker", {}, async (daemon) => {
  const inbox = fresh("inbox");
  const { ended } = run(daemon, "echo ready; exec sleep 300", "--inbox", inbox);
  await daemon.until(() => daemon.longPolls === 1);
  const asked = ask(daemon, "Now?");
  await daemon.until(() => daemon.counts["GET questions/ID"] >= 2);
  daemon.answer([...daemon.questions.keys()][0], "yes");

  assert.equal((await asked).stdout, "yes\n");
  daemon.send("stop", "interrupt");
  assert.equal((await ended).code, 130);
});

const CLOSED = { status: 429, json: { error: { code: "too_many_questions", message: "5 questions are open" } } };
withDaemon("a question that is refused says why", { fault: first("POST questions", CLOSED) }, async (daemon) => {
  const end = await ask(daemon, "One more?");
  assert.deepEqual([end.code, end.stdout], [1, ""]);
  assert.equal(end.stderr, "sluice-worker: the question was not taken: 429 too_many_questions: 5 questions are open\n");
});

promise("a question outside a run says so", async () => {
  const end = await startWorker(["ask", "Hello?"]).ended;
  assert.deepEqual([end.code, end.stdout], [1, ""]);
  assert.match(end.stderr, /RUN_ID is not set/);
});

promise("help is printed, and asks nobody", async () => {
  for (const words of [["--help"], ["-h"], ["ask", "--help"], ["ask", "-h"], ["run", "--help"]]) {
    const end = await startWorker(words).ended;
    assert.deepEqual([end.code, end.stderr], [0, ""], words.join(" "));
    assert.match(end.stdout, /^usage: sluice-worker run[^]*\nExamples:\n  sluice-worker claude [^]*sluice-worker ask "/);
  }
});

promise("a wrong command line ends with 2 and the usage", async () => {
  const end = await startWorker(["fly"]).ended;
  assert.equal(end.code, 2);
  assert.match(end.stderr, /^sluice-worker: there is no command 'fly'\n\nusage: /);
});
