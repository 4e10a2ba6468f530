// An agent of Vercel's AI SDK: ai_sdk.mjs MODEL PROMPT [IMAGE]; a model `claude-…` is asked in Anthropic's format.

import { readFileSync } from "node:fs";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { description, runShell } from "./shell.mjs";

const [model, prompt, image] = process.argv.slice(2);
// Its Anthropic provider wants /v1 in the address, unlike Anthropic's own SDK.
const anthropic = createAnthropic({ baseURL: `${process.env.ANTHROPIC_BASE_URL}/v1` });
const openai = createOpenAI({});
const content = [{ type: "text", text: prompt }];
if (image) content.push({ type: "image", image: readFileSync(image), mediaType: "image/png" });
const streamed = streamText({
  model: model.startsWith("claude") ? anthropic(model) : openai(model),
  tools: { run_shell: tool({ description, inputSchema: z.object({ command: z.string() }), execute: async (input) => runShell(input) }) },
  stopWhen: stepCountIs(8),
  messages: [{ role: "user", content }],
  onError: ({ error }) => {
    console.error(error);
    process.exitCode = 1;
  },
});
let text = "";
for await (const part of streamed.textStream) text += part;
console.log(text);
