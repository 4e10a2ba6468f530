// The AI SDK, and the SDK of OpenAI, with an agent of a daemon as their model: chat_client.mjs ai | openai
//
// CHAT_BASE_URL and CHAT_API_KEY name the daemon, CHAT_MODULES the directory of the packages. The agent's answer is
// `one two three`, in parts.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const { CHAT_BASE_URL: baseURL, CHAT_API_KEY: apiKey, CHAT_MODULES } = process.env;
const { resolve } = createRequire(`${CHAT_MODULES}/index.js`);
const load = (name) => import(pathToFileURL(resolve(name)));
const AGENT = "sandbox:agent";
const ANSWER = "one two three";

async function withAi() {
  const [{ generateText, streamText }, { createOpenAI }] = await Promise.all([load("ai"), load("@ai-sdk/openai")]);
  const model = createOpenAI({ baseURL, apiKey }).chat(AGENT);
  const { text, usage } = await generateText({ model, prompt: "count", system: "be brief" });
  assert.equal(text, ANSWER);
  assert.ok(usage.totalTokens > 0);
  const parts = [];
  const streamed = streamText({ model, prompt: "count" });
  for await (const part of streamed.textStream) parts.push(part);
  assert.equal(parts.join(""), ANSWER);
  assert.equal((await streamed.usage).totalTokens, usage.totalTokens);
}

async function withOpenAi() {
  const { default: OpenAI } = await load("openai");
  const client = new OpenAI({ baseURL, apiKey });
  const messages = [{ role: "user", content: "count" }];
  const answer = await client.chat.completions.create({ model: AGENT, messages });
  assert.equal(answer.choices[0].message.content, ANSWER);
  const stream = await client.chat.completions.create({ model: AGENT, messages, stream: true });
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
  assert.equal(text, ANSWER);
  await assert.rejects(client.chat.completions.create({ model: AGENT, messages, n: 2 }), { status: 400, param: "n" });
}

await { ai: withAi, openai: withOpenAi }[process.argv[2]]();
