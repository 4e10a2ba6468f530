// Parses the command line of the worker. Pure.
import { UsageError, claudeArgs, codexArgs } from "./agents.mjs";

const UNITS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

export const USAGE = `usage: sluice-worker run [--inbox FILE] -- PROGRAM [ARGUMENTS…]
       sluice-worker claude [--stay TIME] [--per-turn] [--raw] [--program PATH] [arguments of claude] [-- PROMPT]
       sluice-worker codex [--stay TIME] [--raw] [--program PATH] [arguments of codex exec] [-- PROMPT]
       sluice-worker ask QUESTION [--option TEXT]… [--timeout TIME]
       sluice-worker --help

It runs a program or an agent, and tells the daemon what happens: docs/guide/worker.md.
  --inbox FILE    writes the messages to the program there, one JSON object a line
  --stay TIME     waits so long for another message before the agent ends
  --per-turn      a process of claude for each turn
  --raw           prints the agent's own events, not its last answer
  --program PATH  the agent's program, if it has another name
  --option TEXT   an answer to choose from; at most 6
  --timeout TIME  how long it waits for the answer (10m)
Without a PROMPT, the agent gets the task of the run. ask prints the answer; exit 3: nobody has answered in time.

Examples:
  sluice-worker claude --stay 10m --model claude-sonnet-4-5 -- "fix the failing test"
  answer=$(sluice-worker ask "Which database?" --option postgres --option sqlite --timeout 30m)
`;

/** Milliseconds of a time such as 90s, 10m, 2h. */
export function milliseconds(text, name) {
  const [, count, unit] = /^(\d{1,9})(ms|s|m|h|d)$/.exec(text ?? "") ?? [];
  if (!count) throw new UsageError(`${name} takes a time such as 90s, 10m or 2h`);
  return Number(count) * UNITS[unit];
}

/** The settings of an agent, with the time for which its run is to stay unless the command line says another. */
export function withStay(settings, env) {
  if (settings.stayMs !== 0 || !env.SLUICE_STAY) return settings;
  return { ...settings, stayMs: milliseconds(env.SLUICE_STAY, "SLUICE_STAY") };
}

/** Takes the flags of the worker from the front; what follows is the agent's. */
function ownFlags(words, known) {
  const flags = {};
  let at = 0;
  for (; at < words.length && known[words[at]]; at += 1) {
    const name = words[at];
    if (known[name] === "flag") flags[name] = true;
    else if (words[at + 1] === undefined) throw new UsageError(`${name} needs a value`);
    else flags[name] = words[(at += 1)];
  }
  return [flags, words.slice(at)];
}

function agentSettings(agent, words) {
  const known = { "--stay": "value", "--program": "value", "--raw": "flag", ...(agent === "claude" && { "--per-turn": "flag" }) };
  const [flags, rest] = ownFlags(words, known);
  const dashes = rest.indexOf("--");
  const prompt = dashes === -1 ? undefined : rest.slice(dashes + 1).join(" ");
  if (prompt === "") throw new UsageError("the prompt after -- is empty");
  const args = dashes === -1 ? rest : rest.slice(0, dashes);
  return {
    command: agent,
    program: flags["--program"] ?? agent,
    args: agent === "claude" ? claudeArgs(args) : codexArgs(args),
    prompt,
    stayMs: flags["--stay"] === undefined ? 0 : milliseconds(flags["--stay"], "--stay"),
    perTurn: flags["--per-turn"] === true,
    raw: flags["--raw"] === true,
  };
}

function askSettings(words) {
  const settings = { command: "ask", options: [] };
  let timeout = "10m";
  for (let at = 0; at < words.length; at += 1) {
    const word = words[at];
    if (word === "--option" || word === "--timeout") {
      const value = words[(at += 1)];
      if (value === undefined) throw new UsageError(`${word} needs a value`);
      if (word === "--option") settings.options.push(value);
      else timeout = value;
    } else if (/^-\S*$/.test(word)) {
      // Otherwise a person would see the flag as the question.
      throw new UsageError(`ask does not know ${word}`);
    } else if (settings.question === undefined) settings.question = word;
    else throw new UsageError(`one question at a time; quote it: ${word}`);
  }
  settings.timeoutMs = milliseconds(timeout, "--timeout");
  if (!settings.question?.trim()) throw new UsageError("ask needs a question");
  if ([...settings.question].length > 1000) throw new UsageError("a question has at most 1,000 characters");
  if (settings.options.length > 6) throw new UsageError("a question has at most 6 options");
  if (settings.options.some((option) => option === "" || [...option].length > 80)) {
    throw new UsageError("an option has 1 to 80 characters");
  }
  return settings;
}

/** Reads the words after `sluice-worker`. */
export function readCommand([command, ...words]) {
  if (command === "claude" || command === "codex") return agentSettings(command, words);
  if (command === "ask") return askSettings(words);
  if (command !== "run") throw new UsageError(command ? `there is no command '${command}'` : "a command is missing");
  const [flags, rest] = ownFlags(words, { "--inbox": "value" });
  const argv = rest[0] === "--" ? rest.slice(1) : rest;
  if (rest[0] !== "--" && rest[0]?.startsWith("-")) throw new UsageError(`run does not know ${rest[0]}; the program follows --`);
  if (argv.length === 0) throw new UsageError("run needs a program");
  return { command: "run", argv, inboxFile: flags["--inbox"] };
}
