// What the tests of the worker share: where its modules are, and how a test starts one.
//
// SLUICE_AGENT_DIR names the directory of the modules outside the image, and SLUICE_AGENT_CLIS the node_modules that have
// Claude Code and Codex; without it, the tests with real agents are skipped.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

export const DIRECTORY = process.env.SLUICE_AGENT_DIR ?? "/opt/sluice/agent";
export const PATIENCE = 240_000; // ms: a promise that takes longer is broken

export const load = (name) => import(join(DIRECTORY, name));
export const promise = (sentence, body) => test(sentence, { timeout: PATIENCE }, body);

export const scratch = mkdtempSync(join(tmpdir(), "worker-"));
process.on("exit", () => rmSync(scratch, { recursive: true, force: true }));

let count = 0;
/** A path of its own in the scratch directory. */
export const fresh = (name) => join(scratch, `${(count += 1)}-${name}`);

/** The native program of an agent of SLUICE_AGENT_CLIS; nothing if it is not there. */
export function cli(name) {
  const modules = process.env.SLUICE_AGENT_CLIS;
  if (!modules) return undefined;
  const machine = process.arch === "arm64" ? "arm64" : "x64";
  const triple = process.arch === "arm64" ? "aarch64" : "x86_64";
  const program = name === "claude"
    ? join(modules, `@anthropic-ai/claude-code-linux-${machine}/claude`)
    : join(modules, `@openai/codex-linux-${machine}/vendor/${triple}-unknown-linux-musl/bin/codex`);
  return existsSync(program) ? program : undefined;
}

/** Starts `sluice-worker` with these words; `ended` resolves with {code, signal, stdout, stderr, transcript}. */
export function startWorker(words, env = {}, options = {}) {
  const file = fresh("transcript.jsonl");
  const child = spawn(join(DIRECTORY, "worker.mjs"), words, {
    env: { PATH: process.env.PATH, HOME: scratch, SLUICE_TRANSCRIPT: file, ...env }, stdio: ["ignore", "pipe", "pipe"], ...options,
  });
  const heard = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"]) child[name].setEncoding("utf8").on("data", (text) => (heard[name] += text));
  const ended = new Promise((resolve) => {
    child.on("close", (code, signal) => resolve({ code, signal, ...heard, transcript: linesOf(file) }));
  });
  return { child, ended };
}

/** The objects of a file of JSON lines; none without the file. */
export function linesOf(file) {
  if (!existsSync(file)) return [];
  return readFileSync(file, "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

/** The recorded streams of an agent, by name. */
export function recordings(agent) {
  const directory = new URL(`recorded/${agent}/`, import.meta.url).pathname;
  return readdirSync(directory).sort().map((name) => [name, readFileSync(join(directory, name), "utf8")]);
}
