// One call with the SDK of OpenAI or Anthropic, all settings at their defaults: one_call.mjs openai|anthropic MODEL PROMPT
//
// Prints the answer, or the error of the SDK on stderr with exit code 1.

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const [vendor, model, prompt] = process.argv.slice(2);
const messages = [{ role: "user", content: prompt }];
try {
  if (vendor === "openai") {
    const answer = await new OpenAI().responses.create({ model, input: prompt });
    console.log(answer.output_text);
  } else {
    const answer = await new Anthropic().messages.create({ model, max_tokens: 100, messages });
    console.log(answer.content[0].text);
  }
} catch (error) {
  console.error(`${error.constructor.name}: ${error.message}`);
  process.exitCode = 1;
}
