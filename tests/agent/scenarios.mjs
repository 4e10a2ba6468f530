// What the model says in the recorded streams, and in the tests with real agents.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const bash = (command) => ({ name: "Bash", input: { command, description: "A command" } });
const shell = (cmd) => ({ name: "exec_command", input: { cmd } });
const patch = (...lines) => ({ name: "apply_patch", input: ["*** Begin Patch", ...lines, "*** End Patch", ""].join("\n") });
const answers = ({ body }) => body.messages.filter(({ role }) => role === "assistant").length;

function claudeWork(directory) {
  const file_path = join(directory, "a.txt");
  const turns = [
    { thinking: "Plan.", text: "I begin.", calls: [{ name: "Write", input: { file_path, content: "one\ntwo\n" } }] },
    { calls: [{ name: "Edit", input: { file_path, old_string: "two", new_string: "three\nfour" } }] },
    { calls: [bash("echo out; exit 3")] },
    { calls: [{ name: "Task", input: { description: "Small work", prompt: "SUBTASK do it", subagent_type: "general-purpose" } }] },
    { calls: [{ name: "Skill", input: { skill: "greet" } }] },
    { calls: [{ name: "NoSuchTool", input: { x: 1 } }] },
    { text: "All is done." },
  ];
  return (asked) => {
    if (!JSON.stringify(asked.body.messages[0]).includes("SUBTASK")) return turns[answers(asked)] ?? { text: "Nothing more." };
    return answers(asked) === 0 ? { calls: [bash("echo sub")] } : { text: "The small work is done." };
  };
}

const CODEX_WORK = [
  { thinking: "Plan.", text: "I begin.", calls: [patch("*** Add File: b.txt", "+one", "+two")] },
  { calls: [patch("*** Update File: b.txt", "@@", " one", "-two", "+three")] },
  { calls: [shell("echo out; exit 3")] },
  { calls: [patch("*** Delete File: b.txt")] },
  { text: "All is done." },
];

const REFUSED = { status: 400, text: "the test refuses this" };

/** name -> {agent, prompt, script(directory), args?}; the script gets the requests of model_mock.mjs. */
export const SCENARIOS = {
  work: { agent: "claude", script: claudeWork },
  partial: { agent: "claude", script: () => () => ({ text: "A short answer." }), args: ["--include-partial-messages"] },
  refused: { agent: "claude", script: () => () => REFUSED },
  "codex-work": { agent: "codex", script: () => ({ number }) => CODEX_WORK[number - 1] ?? { text: "Nothing more." } },
  "codex-refused": { agent: "codex", script: () => () => REFUSED },
};

/** What an agent finds in its directory. */
export function furnish(directory) {
  const skill = join(directory, ".claude/skills/greet");
  mkdirSync(skill, { recursive: true });
  writeFileSync(join(skill, "SKILL.md"), "---\nname: greet\ndescription: Greets people\n---\nSay hello.\n");
}

/** The arguments of an agent that let it work at this provider, without asking. */
export function argsFor(agent, url) {
  if (agent === "claude") return ["--model", "claude-sonnet-4-5", "--dangerously-skip-permissions"];
  const provider = `model_providers.test={name="test",base_url="${url}/v1",env_key="OPENAI_API_KEY",wire_api="responses"}`;
  return [
    "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", "gpt-5.5", "-c", "model_provider=test",
    "-c", provider, "-c", "web_search=disabled",
  ];
}

/** The variables of an agent at this provider. */
export function envFor(url, home) {
  return {
    PATH: process.env.PATH, HOME: home, ANTHROPIC_BASE_URL: url, ANTHROPIC_API_KEY: "none", OPENAI_API_KEY: "none",
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_TELEMETRY: "1",
    IS_SANDBOX: "1", // Claude Code skips permissions for root only in a sandbox
  };
}

const again = (call, times) => ({ number }) => (number <= times ? { calls: [call] } : { text: "I give up." });
const CALL = "curl -sf --json '{\"model\":\"claude-sonnet-4-5\",\"max_tokens\":50,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}' \
  $ANTHROPIC_BASE_URL/v1/messages";

const WRITES = `for n in 1 2 3 4 5 6; do ${CALL} > answer.$n; sleep 1; done`;

/** name -> {agent, script(directory), args?}: what runs of a daemon do whose event logs are recorded. */
export const EVENT_LOGS = {
  // Honest work: each tool is called once, files change, and one call of the model takes long.
  "claude-work": { agent: "claude", script: claudeWork },
  "codex-work": {
    agent: "codex",
    script: () => ({ number }) => ({ ...(CODEX_WORK[number - 1] ?? { text: "Nothing more." }), holdMs: number === 3 ? 12_000 : 0 }),
  },
  "program-work": {
    agent: "program", script: () => () => ({ text: "ok", cost: "0.01" }), args: [WRITES],
  },
  // The same command again and again, which fails and changes nothing.
  "claude-loop": { agent: "claude", script: () => again(bash("cat missing.txt"), 8) },
  "codex-loop": { agent: "codex", script: () => again(shell("cat missing.txt"), 8) },
  // The same program, with calls of half a dollar.
  "program-costs": { agent: "program", script: () => () => ({ text: "ok", cost: "0.5" }), args: [WRITES] },
  // A program that calls once, and then does nothing that can be seen.
  "program-silent": { agent: "program", script: () => () => ({ text: "ok" }), args: [`${CALL} > answer; sleep 40`] },
};
