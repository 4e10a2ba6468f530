// An agent of OpenAI's Agents SDK: openai_agents.mjs MODEL PROMPT

import { Agent, run, tool } from "@openai/agents";
import { z } from "zod";
import { description, runShell } from "./shell.mjs";

const [model, prompt] = process.argv.slice(2);
const parameters = z.object({ command: z.string() });
const shell = tool({ name: "run_shell", description, parameters, execute: async (input) => runShell(input) });
const agent = new Agent({ name: "clerk", instructions: "Do what you are told.", model, tools: [shell] });
const streamed = await run(agent, prompt, { stream: true });
for await (const _ of streamed) {
  // The events themselves are not looked at.
}
await streamed.completed;
console.log(streamed.finalOutput);
