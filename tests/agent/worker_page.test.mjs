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
  const words = [...USAGE.matchAll(/sluice-worker [a-z]+|--[a-z][a-z-]+/g)].map(([word]) => word);
  assert.ok(words.includes("sluice-worker ask") && words.includes("--timeout"));
  assert.deepEqual([...new Set(words)].filter((word) => !page.includes(word)), []);
});

/** Ends a group of processes, if there is one. */
function kill(group) {
  try {
    process.kill(group, "SIGKILL");
  } catch (error) {
    if (error.code !== "ESRCH") throw error;
  }
}

const away = ({ method, resource, number }) => {
  if (resource === "messages" && number <= 2) return number === 1 ? { status: 503 } : "cut";
  return method === "POST" && number === 1 ? { status: 503 } : undefined;
};
/** The first acknowledgement has no effect: the message is given again. */
const forgetful = ({ resource, number }) =>
  resource === "messages/ack" && number === 1 ? { status: 200, json: { acknowledged: [] } } : undefined;
const FAULTS = [
  ["a daemon", () => undefined], ["a daemon that is away at first", away], ["a daemon that loses an acknowledgement", forgetful],
];

for (const [language, text] of blocks) {
  for (const [name, fault] of FAULTS) {
    promise(`the program in ${language} works with ${name}`, async () => {
      const [program, extension] = PROGRAMS[language];
      const file = fresh(`program.${extension}`);
      writeFileSync(file, text);
      let isOver = false;
      const ending = (asked) => (isOver && asked.resource === "messages" ? { status: 404 } : fault(asked));
      const daemon = await new RelayMock({ fault: ending, leaseMs: 100 }).start();
      const env = { PATH: process.env.PATH, ...daemon.env };
      // A group of its own, which ends as a whole, as with its container.
      const child = spawn(program, [file], { env, detached: true, stdio: ["ignore", "pipe", "pipe"] });
      const [exited, closed] = [once(child, "exit"), once(child, "close")];
      const heard = { stdout: "", stderr: "" };
      for (const stream of ["stdout", "stderr"]) child[stream].setEncoding("utf8").on("data", (chunk) => (heard[stream] += chunk));
      try {
        await daemon.until(() => daemon.dataOf("heartbeat").length > 0 && daemon.types().includes("progress"));
        daemon.send("first\nmessage");
        await daemon.until(() => daemon.messages[0].isAcknowledged);
        daemon.send("second", "interrupt");
        await daemon.until(() => daemon.messages[1].isAcknowledged && daemon.longPolls === 1);
        // The next poll is the last one.
        isOver = true;
        daemon.send("third");
        const [code] = await exited;
        assert.equal(code, 1, heard.stderr);
      } finally {
        // A heartbeat of the shell may still sleep.
        kill(-child.pid);
        await closed;
        await daemon.stop();
      }
      assert.equal(heard.stdout, "first\nmessage\nsecond\nthird\n");
      assert.match(heard.stderr, /^messages\S*: 404\n$/);
      assert.deepEqual(daemon.dataOf("heartbeat")[0], { status: "running" });
      assert.deepEqual([daemon.dataOf("progress").length, daemon.wrong], [1, []]);
    });
  }
}
