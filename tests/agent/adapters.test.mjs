// The adapters for coding agents: on recorded streams, with programs in place of the agents, and with the agents themselves.
import assert from "node:assert/strict";
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { startModel } from "./model_mock.mjs";
import { PATIENCE, cli, fresh, load, promise, recordings, startWorker } from "./parts.mjs";
import { RelayMock } from "./relay_mock.mjs";
import { SCENARIOS, argsFor, envFor, furnish } from "./scenarios.mjs";

const { ClaudeEvents } = await load("claude_events.mjs");
const { CodexEvents } = await load("codex_events.mjs");

// -- Recorded streams -------------------------------------------------------------------------------------------------

function translate(agent, name) {
  const [, stream] = recordings(agent).find(([file]) => file === `${name}.jsonl`);
  const translator = agent === "claude" ? new ClaudeEvents() : new CodexEvents();
  translator.begin();
  const events = stream.split("\n").flatMap((line) => translator.line(line));
  const typed = events.map(({ type, data }) => [type.replace("agent.", ""), data]);
  const all = (type) => typed.filter(([one]) => one === type).map(([, data]) => data);
  return { types: typed.map(([type]) => type), all, translator, outcome: translator.outcome({ code: 0, signal: null }, 0) };
}

const CLAUDE_WORK = [
  "system_message", "thinking", "assistant_message", "tool_use", "tool_result", "file_edited", "tool_use", "tool_result",
  "file_edited", "tool_use", "tool_result", "tool_use", "subagent_invoked", "user_message", "progress", "tool_use", "tool_result",
  "subagent_completed", "tool_result", "tool_use", "skill_invoked", "tool_result", "skill_completed", "user_message", "tool_use",
  "tool_result", "assistant_message",
];

promise("the work of Claude Code is events", () => {
  const { types, all, translator, outcome } = translate("claude", "work");

  assert.deepEqual(types, CLAUDE_WORK);
  assert.equal(translator.unknown, 0);
  const [{ id, ...written }] = all("tool_use");
  assert.deepEqual(written, { name: "Write", input: { file_path: "/workspace/a.txt", content: "one\ntwo\n" } });
  assert.deepEqual(all("file_edited"), [
    {
      file_path: "/workspace/a.txt", change_type: "created", lines_added: 2, lines_removed: 0,
      diff_preview: "@@ -0,0 +1,2 @@\n+one\n+two", tool_use_id: id,
    },
    {
      file_path: "/workspace/a.txt", change_type: "modified", lines_added: 2, lines_removed: 1,
      diff_preview: "@@ -1,2 +1,3 @@\n one\n-two\n+three\n+four", tool_use_id: all("tool_use")[1].id,
    },
  ]);
  const failed = all("tool_result").filter((data) => data.is_error).map(({ name, content }) => [name, content]);
  assert.deepEqual(failed.map(([name]) => name), ["Bash", "NoSuchTool"]);
  assert.equal(failed[0][1], "Exit code 3\nout");
  const task = all("tool_use").find(({ name }) => name === "Task").id;
  const [invoked] = all("subagent_invoked");
  assert.deepEqual(invoked, { tool_use_id: task, subagent_type: "general-purpose", description: "Small work", prompt: "SUBTASK do it" });
  const [{ duration_ms, ...completed }] = all("subagent_completed");
  assert.deepEqual([completed.tool_use_id, completed.status, completed.tool_uses], [task, "completed", 1]);
  assert.equal(all("tool_use").filter((data) => data.parent_tool_use_id === task).length, 1);
  assert.deepEqual(all("skill_completed").map(({ skill, success }) => [skill, success]), [["greet", true]]);
  const { turns, session_id, stop_reason, output, success, cost_usd } = outcome.completed;
  assert.deepEqual([success, turns, stop_reason, output], [true, 8, "end_turn", "All is done."]);
  assert.ok(cost_usd > 0 && session_id === translator.session && outcome.exit === 0);
});

promise("Claude Code's answer in parts is text that can be joined", () => {
  const { all, outcome } = translate("claude", "partial");
  assert.equal(all("message").map(({ text }) => text).join(""), "A short answer.");
  assert.ok(all("message").every(({ partial }) => partial === true));
  assert.equal(outcome.completed.output, "A short answer.");
});

promise("a call that Claude Code cannot make fails its run", () => {
  const { all, outcome } = translate("claude", "refused");
  assert.match(all("error")[0].message, /the test refuses this/);
  assert.deepEqual([all("error")[0].fatal, outcome.exit, outcome.completed], [false, 1, undefined]);
  assert.match(outcome.failed.error, /the test refuses this/);
});

const CODEX_WORK = [
  "system_message", "thinking", "assistant_message", "tool_use", "tool_result", "file_edited", "tool_use", "tool_result",
  "file_edited", "tool_use", "tool_result", "tool_use", "tool_result", "file_edited", "assistant_message",
];

promise("the work of Codex is events", () => {
  const { types, all, translator, outcome } = translate("codex", "codex-work");

  assert.deepEqual(types, CODEX_WORK);
  assert.equal(translator.unknown, 0);
  const edits = all("file_edited").map(({ file_path, change_type }) => [file_path, change_type]);
  assert.deepEqual(edits, ["created", "modified", "deleted"].map((kind) => ["/workspace/b.txt", kind]));
  const [failed] = all("tool_result").filter(({ name }) => name === "shell");
  assert.deepEqual([failed.content, failed.is_error, failed.exit_code], ["out\n", true, 3]);
  assert.deepEqual(all("tool_use").map(({ id }) => id), all("tool_result").map((data) => data.tool_use_id));
  const { turns, output, usage } = outcome.completed;
  assert.deepEqual([turns, output, usage.input_tokens, usage.output_tokens], [1, "All is done.", 500, 250]);
});

promise("a call that Codex cannot make fails its run", () => {
  const { all, outcome } = translate("codex", "codex-refused");
  assert.match(all("error")[0].message, /the test refuses this/);
  assert.match(outcome.failed.error, /the test refuses this/);
});

// -- Programs in place of the agents ----------------------------------------------------------------------------------

/** A program with this shell script. */
function program(script) {
  const file = fresh("agent.sh");
  writeFileSync(file, `#!/bin/sh\n${script}\n`);
  chmodSync(file, 0o755);
  return file;
}
const recorded = (name) => new URL(`recorded/${name}.jsonl`, import.meta.url).pathname;

const withDaemon = (sentence, options, body) => promise(sentence, async () => {
  const daemon = await new RelayMock(options).start();
  try {
    await body(daemon);
    assert.deepEqual(daemon.wrong, []);
  } finally {
    await daemon.stop();
  }
});

withDaemon("an adapter prints the last answer, and ends with its facts", { task: { task: "from the daemon" } }, async (daemon) => {
  const heard = fresh("prompt");
  const codex = program(`cat >${heard}; cat ${recorded("codex/codex-work")}`);

  const end = await startWorker(["codex", "--program", codex, "-m", "m"], daemon.env).ended;

  assert.deepEqual([end.code, end.stdout, end.stderr], [0, "All is done.\n", ""]);
  assert.deepEqual(daemon.types(), ["started", "user_message", ...CODEX_WORK, "completed"]);
  assert.deepEqual(daemon.dataOf("user_message"), [{ text: "from the daemon" }]);
  assert.deepEqual(end.transcript.map(({ type }) => type.replace("agent.", "")), daemon.types());
});

withDaemon("an agent that is killed is told apart from one that fails", {}, async (daemon) => {
  const half = `head -n 5 ${recorded("codex/codex-work")}`;
  const ends = [
    [`${half}; echo 'no room' >&2; kill -9 $$`, 137, "sigkill", "no room\n"], [`${half}; exit 4`, 4, "command_failed", undefined],
    [half, 0, "unknown", undefined],
  ];
  for (const [script, code, type, tail] of ends) {
    const end = await startWorker(["codex", "--program", program(script), "--", "x"], daemon.env).ended;
    const error = daemon.dataOf("stream_error").at(-1);
    daemon.refill();
    assert.deepEqual([end.code, error.error_type, error.stderr_tail], [code, type, tail]);
  }
  const refused = await startWorker(["codex", "--program", program(`cat ${recorded("codex/codex-refused")}`), "--", "x"], daemon.env).ended;
  assert.deepEqual([refused.code, daemon.dataOf("failed").length, daemon.dataOf("completed")], [1, 1, []]);
  assert.match(refused.stderr, /^sluice-worker: .*the test refuses this/);
});

withDaemon("an agent that ends by an interrupt has not failed", {}, async (daemon) => {
  const error = "the operator interrupted this call; do not repeat it, go on with the next step";
  const codex = program(`cat >/dev/null; echo '{"type":"turn.failed","error":{"message":"${error}"}}'; exit 1`);
  const { ended } = startWorker(["codex", "--program", codex, "--", "x"], daemon.env);

  assert.equal((await ended).code, 1);
  assert.deepEqual([daemon.types(), daemon.dataOf("interrupted")], [["started", "user_message", "interrupted"], [{ error }]]);
});

withDaemon("an agent that prints garbage comes to its end", {}, async (daemon) => {
  const hostile = program(`
    cat >/dev/null; head -c 20000000 /dev/zero | tr '\\0' '['; echo; head -c 100000 /dev/urandom; echo
    printf '{"type":"assistant","message":{"content":[{"type":"text","text":"%s\\\\u0000\\\\ud800"}]}}\\n' "$(head -c 60000 /dev/zero | tr '\\0' '"' | sed 's/"/\\\\"/g')"
    yes '{"type":"system","subtype":"odd"}' | head -n 20000
    printf '{"type":"result","subtype":"success","is_error":false,"result":"end"}\\n'`);
  const end = await startWorker(["claude", "--program", hostile, "--per-turn", "--", "x"], daemon.env).ended;

  assert.deepEqual([end.code, end.stdout], [0, "end\n"]);
  assert.equal(daemon.types().at(-1), "completed");
});

withDaemon("a prompt of any length and beginning reaches the agent", {}, async (daemon) => {
  const heard = fresh("prompt");
  const prompt = `--help ${"x".repeat(120_000)}`;
  const codex = program(`cat >${heard}; wc -c <${heard} >&2; cat ${recorded("codex/codex-work")}`);
  const { stderr } = await startWorker(["codex", "--program", codex, "--", prompt], daemon.env).ended;
  assert.equal(stderr.trim(), `${prompt.length + 1}`);
});

withDaemon("a message within --stay is one more turn of the same session", {}, async (daemon) => {
  const calls = fresh("calls");
  const codex = program(`echo "$*: $(cat)" >>${calls}; cat ${recorded("codex/codex-work")}`);
  const { child, ended } = startWorker(["codex", "--stay", "30s", "--program", codex, "-m", "m", "--", "first"], daemon.env);
  await daemon.until(() => daemon.types().includes("waiting"));
  daemon.send("second");
  await daemon.until(() => daemon.acks.length === 1);
  await daemon.until(() => daemon.dataOf("waiting").length === 2);
  daemon.send("third", "interrupt");
  await daemon.until(() => daemon.dataOf("waiting").length === 3);
  const session = "[0-9a-f-]{36}";
  assert.match(readFileSync(calls, "utf8"), new RegExp(
    `^exec --json -m m -: first\nexec --json -m m resume ${session} -: second\nexec --json -m m resume ${session} -: third\n$`,
  ));
  assert.deepEqual([daemon.dataOf("interrupted"), daemon.dataOf("completed")], [[], []], "nothing was under way, nothing is over");
  child.kill("SIGTERM");
  const end = await ended;
  assert.deepEqual([end.code, daemon.dataOf("shutdown")], [0, [{ signal: "SIGTERM" }]]);
});

withDaemon("a run without a task says so", {}, async (daemon) => {
  const end = await startWorker(["claude", "--program", "/nonexistent"], daemon.env).ended;
  assert.deepEqual([end.code, end.stderr], [2, "sluice-worker: there is no prompt after --, and the run has no task\n"]);
});

withDaemon("a task that the daemon does not give is named", { fault: () => ({ status: 401 }) }, async (daemon) => {
  const end = await startWorker(["codex", "--program", "/nonexistent"], daemon.env).ended;
  const fault = "the task of the run cannot be read: the daemon refuses (401); give a prompt after --";
  assert.deepEqual([end.code, end.stderr], [1, `sluice-worker: ${fault}\n`]);
});

// -- The agents themselves --------------------------------------------------------------------------------------------

/** Runs the body with a real agent at a scripted provider; `start(flags, prompt)` starts the worker. */
function withAgent(agent, sentence, { script, args = [] }, body) {
  const path = cli(agent);
  const skip = path ? false : "SLUICE_AGENT_CLIS has no such program";
  test(`${agent}: ${sentence}`, { timeout: PATIENCE, skip }, async () => {
    const directory = fresh("workspace");
    mkdirSync(directory);
    furnish(directory);
    const daemon = await new RelayMock({ task: { task: "do the work" } }).start();
    const model = await startModel(script(directory, daemon));
    const start = (...flags) => startWorker(
      [agent, ...flags, "--program", path, ...argsFor(agent, model.url), ...args],
      { ...envFor(model.url, join(directory, "home")), ...daemon.env }, { cwd: directory },
    );
    try {
      await body({ daemon, model, start, directory });
      assert.deepEqual(daemon.wrong, []);
    } finally {
      await model.close();
      await daemon.stop();
    }
  });
}

for (const [name, scenario] of Object.entries(SCENARIOS)) {
  withAgent(scenario.agent, `the stream of '${name}' is as it was recorded`, scenario, async ({ daemon, start }) => {
    const end = await start().ended;

    // The prompt is an event of the worker; the agent's own lines are those of the recording.
    const live = daemon.types().filter((type) => !["started", "completed", "failed"].includes(type));
    const isPrompt = (data) => data.text === "do the work";
    const prompts = daemon.dataOf("user_message").filter(isPrompt).length;
    const expected = translate(scenario.agent, name).types;
    assert.deepEqual(live.toSorted(), [...expected, ...Array(prompts).fill("user_message")].toSorted(), end.stderr);
    assert.deepEqual([prompts, end.code], [1, name.endsWith("refused") ? 1 : 0]);
  });
}

const COMMANDS = {
  claude: (command) => ({ name: "Bash", input: { command, description: "A command" } }),
  codex: (cmd) => ({ name: "exec_command", input: { cmd } }),
};
/** First a command that goes on until the workspace has the file `go`, and then answers, with what the request holds. */
const slow = (agent, words) => (directory) => ({ number, raw }) => {
  if (number === 1) return { calls: [COMMANDS[agent](`until [ -e ${directory}/go ]; do sleep 0.1; done`)] };
  return { text: `answer ${number}${words.map((word) => (raw.includes(word) ? ` with ${word}` : "")).join("")}` };
};

withAgent("claude", "a message is read while it works", { script: slow("claude", ["MESSAGE"]) }, async ({ daemon, start, directory }) => {
  const { ended } = start();
  await daemon.until(() => daemon.types().includes("tool_use"));
  const id = daemon.send("MESSAGE");
  // The worker asks again when it has handed the message to the agent.
  await daemon.until(() => daemon.messages[0].leasedUntil > 0);
  const polls = daemon.counts["GET messages"];
  await daemon.until(() => daemon.counts["GET messages"] > polls);
  writeFileSync(join(directory, "go"), "");

  const end = await ended;

  assert.deepEqual([end.code, end.stdout, daemon.acks], [0, "answer 2 with MESSAGE\n", [id]]);
  assert.deepEqual(daemon.dataOf("message_injected"), [{ message_id: id, message_type: "user_message" }]);
  const types = daemon.types();
  assert.ok(types.indexOf("message_injected") < types.indexOf("completed"));
});

const AGENTS = [["claude"], ["claude", "--per-turn"], ["codex"]];
for (const [agent, ...flags] of AGENTS) {
  const script = slow(agent, ["INSTEAD", "LATER"]);
  withAgent(agent, `an interrupt ends the turn and is the next one ${flags}`, { script }, async ({ daemon, start, model }) => {
    const { ended } = start(...flags);
    await daemon.until(() => daemon.types().includes("tool_use"));
    const id = daemon.send("INSTEAD", "interrupt"); // the command does not end by itself

    const end = await ended;

    assert.deepEqual([end.code, end.stdout, daemon.acks], [0, "answer 2 with INSTEAD\n", [id]], end.stderr);
    assert.deepEqual(daemon.dataOf("interrupted"), [{ message_id: id }]);
    assert.deepEqual([daemon.dataOf("completed").length, daemon.dataOf("failed").length], [1, 0]);
    assert.ok(JSON.stringify(model.requests.at(-1)).includes("do the work"), "it is the same session");
  });

  const late = (_, daemon) => ({ number, raw }) => {
    if (number > 1) return { text: raw.includes("AFTER") ? "done after" : "odd" };
    // The daemon ends the call, and the message comes when the worker has looked for it once.
    daemon.until(() => daemon.looks > 0).then(() => daemon.send("AFTER", "interrupt"));
    return { status: 400, text: "interrupted by a person" };
  };
  withAgent(agent, `an interrupt that comes after its effect is heard ${flags}`, { script: late }, async ({ daemon, start }) => {
    const end = await start(...flags).ended;
    assert.deepEqual([end.code, end.stdout, daemon.acks.length], [0, "done after\n", 1], end.stderr);
  });

  withAgent(agent, `it waits after an interrupt that begins no turn, and ends when told ${flags}`, { script: slow(agent, ["UNSAID", "NEXT"]) },
    async ({ daemon, start }) => {
      const { ended } = start("--stay", "30s", ...flags);
      await daemon.until(() => daemon.types().includes("tool_use"));
      const left = daemon.send("UNSAID", "interrupt", "wait"); // the command does not end by itself
      await daemon.until(() => daemon.types().includes("waiting"));
      const next = daemon.send("NEXT");
      await daemon.until(() => daemon.dataOf("waiting").length === 2);
      const over = daemon.send("UNSAID", "interrupt", "end");
      const end = await ended;
      assert.deepEqual([end.code, end.stdout, daemon.acks], [0, "answer 2 with NEXT\n", [left, next, over]], end.stderr);
      assert.deepEqual([daemon.dataOf("interrupted"), daemon.dataOf("failed")], [[{ message_id: left }], []]);
      assert.equal(daemon.types().at(-1), "completed");
    });

  withAgent(agent, `with --stay it waits for more ${flags}`, { script: () => ({ raw }) => ({ text: raw.includes("MORE") ? "two" : "one" }) },
    async ({ daemon, start }) => {
      const { child, ended } = start("--stay", "30s", ...flags);
      await daemon.until(() => daemon.types().includes("waiting"));
      daemon.send("MORE");
      await daemon.until(() => daemon.dataOf("assistant_message").some(({ text }) => text === "two"));
      await daemon.until(() => daemon.dataOf("waiting").length === 2);
      child.kill("SIGTERM");
      const end = await ended;
      assert.deepEqual([daemon.dataOf("shutdown"), daemon.dataOf("failed"), daemon.acks.length], [[{ signal: "SIGTERM" }], [], 1]);
      assert.ok(end.code === 143 || end.code === 0, `${end.code}`);
    });
}
