// What the framework agents share: the tool that they give their model.

import { spawnSync } from "node:child_process";

export const description = "Runs a shell command in the working directory, and returns what it prints.";

export function runShell({ command }) {
  const ran = spawnSync("sh", ["-c", command], { encoding: "utf8", timeout: 30_000 });
  return ran.stdout + ran.stderr;
}
