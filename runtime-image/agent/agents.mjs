// The agents that the worker knows: their command lines, and the results of their processes. Pure.
import { ClaudeEvents } from "./claude_events.mjs";
import { CodexEvents } from "./codex_events.mjs";

/** A mistake in the command line of the worker. */
export class UsageError extends Error {}

/** True for the error of a call that the sidecar ended for a person: `interrupted`. */
export const isInterruption = (text) => /\binterrupted\b/i.test(text ?? "");

/** What came of an agent whose last turn was ended without another one: it has done what it was asked for. */
export const dismissed = (outcome) => ({
  ...outcome, code: 0, signal: null, exit: 0, failed: undefined, completed: outcome.completed ?? { success: true },
});

const CLAUDE_OWN = new Set(["--output-format", "--input-format", "--replay-user-messages"]);
const CLAUDE_GIVEN = new Set(["-p", "--print", "--verbose"]);

/** The arguments for Claude Code without those that the worker sets. */
export function claudeArgs(args) {
  const own = args.find((word) => CLAUDE_OWN.has(word.split("=")[0]));
  if (own) throw new UsageError(`${own}: the worker sets this itself; leave it out`);
  return args.filter((word) => !CLAUDE_GIVEN.has(word));
}

/** The arguments for Codex without those that the worker sets. */
export function codexArgs(args) {
  const words = args[0] === "exec" || args[0] === "e" ? args.slice(1) : args;
  if (words[0] === "resume" || words[0] === "review" || words[0] === "fork") {
    throw new UsageError(`codex ${words[0]}: the worker resumes its own sessions only`);
  }
  return words.filter((word) => word !== "--json");
}

/** Claude Code with a process for each turn. */
export class ClaudeTurns {
  constructor(program, args) {
    this.command = [program, ...args, "--print", "--output-format", "stream-json", "--verbose"];
    this.events = new ClaudeEvents();
  }

  argv(session) {
    return session ? [...this.command, "--resume", session] : this.command;
  }
}

/** Codex, whose processes are a turn each. */
export class CodexTurns {
  constructor(program, args) {
    this.command = [program, "exec", "--json", ...args];
    this.events = new CodexEvents();
  }

  argv(session) {
    return [...this.command, ...(session ? ["resume", session] : []), "-"];
  }
}
