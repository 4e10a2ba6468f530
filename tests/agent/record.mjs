// Records the streams of the real agents for the tests of the adapters, into tests/agent/recorded.
//
// usage: SLUICE_AGENT_CLIS=$PWD/.cache/agents/short/node_modules node tests/agent/record.mjs
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { startModel } from "./model_mock.mjs";
import { cli } from "./parts.mjs";
import { SCENARIOS, argsFor, envFor, furnish } from "./scenarios.mjs";

const ITEMS_MAX = 3; // of the lists of tools and commands: they say nothing to the tests

function shortened(line) {
  const item = JSON.parse(line);
  if (item.subtype === "init") {
    for (const [name, value] of Object.entries(item)) if (Array.isArray(value)) item[name] = value.slice(0, ITEMS_MAX);
  }
  return JSON.stringify(item);
}

for (const [name, { agent, script, args = [] }] of Object.entries(SCENARIOS)) {
  const program = cli(agent);
  if (!program) throw new Error(`SLUICE_AGENT_CLIS has no ${agent}`);
  const root = mkdtempSync(join(tmpdir(), "record-"));
  const directory = join(root, "workspace");
  furnish(directory);
  const model = await startModel(script(directory));
  const own = agent === "claude" ? ["-p", "--output-format", "stream-json", "--verbose"] : ["exec", "--json"];
  const words = [...own, ...argsFor(agent, model.url), ...args, "--", "do the work"];
  const child = spawn(program, words, { cwd: directory, env: envFor(model.url, join(root, "home")), stdio: ["ignore", "pipe", "ignore"] });
  let stream = "";
  for await (const chunk of child.stdout) stream += chunk;
  await model.close();
  rmSync(root, { recursive: true });
  const lines = stream.replaceAll(directory, "/workspace").replaceAll(join(root, "home"), "/home/agent").replaceAll(root, "/root-of-run")
    .replaceAll(directory.replaceAll("/", "-"), "-workspace").split("\n").filter(Boolean);
  const target = new URL(`recorded/${agent}/`, import.meta.url).pathname;
  mkdirSync(target, { recursive: true });
  writeFileSync(join(target, `${name}.jsonl`), `${lines.map(shortened).join("\n")}\n`);
  console.log(`${name}: ${lines.length} lines`);
}
