// Records the event logs of real runs for the tests of the Guardian, into tests/agent/recorded/events: real agents under the
// worker of the image, in sandboxes of a real daemon. Needs what tests/runs needs: root, Docker, `make image`, the built
// programs.
//
// usage: SLUICE_AGENT_CLIS=$PWD/.cache/agents/short/node_modules node tests/agent/record_events.mjs [NAME…]
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

import { startModel } from "./model_mock.mjs";
import { cli } from "./parts.mjs";
import { EVENT_LOGS } from "./scenarios.mjs";

const PROGRAM = process.env.SLUICE_BIN ?? new URL("../../target/debug/sluice", import.meta.url).pathname;
const MODELS = ["claude-sonnet-4-5", "claude-haiku-4-5-20251001", "gpt-5.5"];
const PATIENCE = 180_000; // ms

/** A daemon with this upstream; `ask` sends a request to it as root. */
async function startDaemon(upstream, roots) {
  const directory = mkdtempSync(join(tmpdir(), "record-events-"));
  writeFileSync(join(directory, "sluice.toml"), `grant_roots = ${JSON.stringify(roots)}\n`);
  writeFileSync(join(directory, "up.key"), "sk-recorded", { mode: 0o600 });
  const runDirectory = join(directory, "sockets");
  const child = spawn(PROGRAM, ["serve", "--listen", "127.0.0.1:0", "--run-dir", runDirectory], {
    stdio: ["ignore", "ignore", "pipe"],
    env: {
      PATH: process.env.PATH, SLUICE_SANDBOX_ENABLED: "true", SLUICE_CONFIG: join(directory, "sluice.toml"),
      SLUICE_STATE_DIR: join(directory, "st"), SLUICE_UPSTREAM: upstream, SLUICE_KEY_FILE: join(directory, "up.key"),
    },
  });
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text) => (said += text));
  const ended = new Promise((resolve) => child.on("close", resolve));
  const until = Date.now() + PATIENCE;
  while (!said.includes("listening on")) {
    if (child.exitCode !== null || Date.now() > until) throw new Error(`the daemon does not listen: ${said}`);
    await pause(50);
  }
  const ask = (method, path, body) => new Promise((resolve, reject) => {
    const options = { socketPath: join(runDirectory, "admin.sock"), method, path, headers: { host: "localhost", "content-type": "application/json" } };
    const request = http.request(options, async (response) => {
      let text = "";
      for await (const chunk of response) text += chunk;
      if (response.statusCode >= 300) return reject(new Error(`${method} ${path}: ${response.statusCode} ${text}`));
      return resolve(JSON.parse(text));
    });
    request.on("error", reject);
    request.end(body && JSON.stringify(body));
  });
  const stop = async () => {
    child.kill("SIGTERM");
    await ended;
    rmSync(directory, { recursive: true });
  };
  return { ask, stop, said: () => said };
}

/** Returns the words of the worker for an agent whose program is a grant of the sandbox. */
function worker({ agent, args = [] }) {
  if (agent === "program") return ["sluice-worker", "run", "--", "sh", "-c", ...args];
  const program = `/mnt/grants${realpathSync(cli(agent))}`;
  if (agent === "claude") {
    const own = ["--model", MODELS[0], "--dangerously-skip-permissions"];
    return ["sluice-worker", "claude", "--program", program, ...own, "--", "do the work"];
  }
  const provider = 'model_providers.s={name="s",base_url="http://localhost:8080/v1",env_key="OPENAI_API_KEY",wire_api="responses"}';
  const own = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", MODELS[2], "-c", "model_provider=s",
    "-c", provider, "-c", "web_search=disabled"];
  return ["sluice-worker", "codex", "--program", program, ...own, "--", "do the work"];
}

async function eventsOf(ask, id) {
  const events = [];
  for (let cursor = ""; ;) {
    const page = await ask("GET", `/api/v1/sandboxes/${id}/events?limit=500${cursor}`);
    events.push(...page.events);
    if (!page.next_cursor) return events.sort((one, other) => one.seq - other.seq);
    cursor = `&cursor=${page.next_cursor}`;
  }
}

for (const [name, scenario] of Object.entries(EVENT_LOGS)) {
  if (process.argv.length > 2 && !process.argv.includes(name)) continue;
  const program = scenario.agent === "program" ? undefined : dirname(realpathSync(cli(scenario.agent)));
  const model = await startModel(scenario.script("/workspace"));
  const daemon = await startDaemon(model.url, program ? [program] : []);
  const { ask } = daemon;
  await ask("POST", "/api/v1/agents", { agent_id: "recorded", grants: program ? [program] : [] });
  const created = await ask("POST", "/api/v1/sandboxes", {
    agent_id: "recorded", argv: worker(scenario), model: MODELS[0], models: MODELS.slice(1), limits: { memory: "2g", timeout: "150s" },
    env: { CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_TELEMETRY: "1", IS_SANDBOX: "1" },
  });
  const id = created.run_id;
  const until = Date.now() + PATIENCE;
  let run;
  do {
    await pause(500);
    run = await ask("GET", `/api/v1/sandboxes/${id}`);
  } while (!run.ended_at && Date.now() < until);
  const events = await eventsOf(ask, id);
  await daemon.stop();
  await model.close();
  const first = Date.parse(events[0].created_at);
  // The diffs say nothing to the tests.
  for (const { event_data } of events) if (event_data.diff_preview) event_data.diff_preview = "";
  const lines = events.map(({ event_type, source, event_data, created_at }, at) => JSON.stringify({
    seq: at + 1, at_ms: Date.parse(created_at) - first, event_type, source, event_data,
  }).replaceAll(id, "r_recorded").replaceAll(program ?? id, "/opt/agent").replaceAll(model.url, "http://model"));
  const target = new URL("recorded/events/", import.meta.url).pathname;
  mkdirSync(target, { recursive: true });
  writeFileSync(join(target, `${name}.jsonl`), `${lines.join("\n")}\n`);
  console.log(`${name}: ${lines.length} events, ${run.state} ${run.outcome ?? run.failure_code} ${run.exit_code}`);
  if (run.state !== "COMPLETED") console.log(daemon.said());
}
