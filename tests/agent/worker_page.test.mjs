// The programs of docs/guide/worker.md, against the strict daemon: a reader copies them as they are.
//
// SLUICE_GUIDE names the directory of the page outside the image.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { fresh, load, promise } from "./parts.mjs";
import { RelayMock } from "./relay_mock.mjs";

const { USAGE } = await load("settings.mjs");

const page = readFileSync(join(process.env.SLUICE_GUIDE ?? "/guide", "worker.md"), "utf8");
const blocks = [...page.matchAll(/^```(bash|python|js)\n(.*?)^```$/gms)].map(([, language, text]) => [language, text]);
const PROGRAMS = { bash: ["bash", "sh"], python: ["python3", "py"], js: ["node", "mjs"] };

promise("the page has one program of each language", () => {
  assert.deepEqual(blocks.map(([language]) => language), ["bash", "python", "js"]);
});

promise("the page names every command and flag of the worker", () => {
  const flags = USAGE.match(/--[a-z][a-z-]+/g);
  assert.deepEqual([...new Set(flags)].filter((flag) => !page.includes(flag)), []);
});

const away = ({ method, resource, number }) => {
  if (resource === "messages" && number <= 2) return number === 1 ? { status: 503 } : "cut";
  return method === "POST" && number === 1 ? { status: 503 } : undefined;
};

for (const [language, text] of blocks) {
  for (const [name, fault] of [["a daemon", () => undefined], ["a daemon that is away at first", away]]) {
    promise(`the program in ${language} works with ${name}`, async () => {
      const [program, extension] = PROGRAMS[language];
      const file = fresh(`program.${extension}`);
      writeFileSync(file, text);
      const daemon = await new RelayMock({ fault, leaseMs: 100 }).start();
      const env = { PATH: process.env.PATH, ...daemon.env };
      // A group of its own, which ends as a whole, as with its container.
      const child = spawn(program, [file], { env, detached: true, stdio: ["ignore", "pipe", "inherit"] });
      let stdout = "";
      child.stdout.setEncoding("utf8").on("data", (chunk) => (stdout += chunk));
      try {
        await daemon.until(() => daemon.dataOf("heartbeat").length > 0 && daemon.types().includes("progress"));
        daemon.send("first\nmessage");
        await daemon.until(() => daemon.acks.length >= 1);
        daemon.send("second", "interrupt");
        await daemon.until(() => daemon.acks.length >= 2);
        if (!stdout.includes("second")) await once(child.stdout, "data");
      } finally {
        process.kill(-child.pid, "SIGKILL");
        await once(child, "close");
        await daemon.stop();
      }
      assert.equal(stdout, "first\nmessage\nsecond\n");
      assert.deepEqual(daemon.dataOf("heartbeat")[0], { status: "running" });
      assert.deepEqual([daemon.dataOf("progress").length, daemon.wrong], [1, []]);
    });
  }
}
