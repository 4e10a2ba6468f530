// A provider that answers coding agents by a script, in the formats of /v1/messages and /v1/responses, streamed.
//
// A turn is {thinking?, text?, calls?: [{id?, name, namespace?, input}], holdMs?, status?, cost?}: what the model says and which
// tools it calls, after a pause, or an error status, and what an answer without a stream cost. The script is a function from {path, body, number, agent} to a turn;
// `agent` tells requests with tools from side calls (titles, summaries), which get a plain text.
import { randomUUID } from "node:crypto";
import http from "node:http";
import { setTimeout as pause } from "node:timers/promises";

const ident = (prefix) => prefix + randomUUID().replaceAll("-", "");

function messagesEvents(body, turn) {
  const blocks = [];
  if (turn.thinking && body.thinking?.type && body.thinking.type !== "disabled") {
    blocks.push([{ type: "thinking", thinking: "", signature: "" }, [
      { type: "thinking_delta", thinking: turn.thinking },
      { type: "signature_delta", signature: ident("EqQB") },
    ]]);
  }
  if (turn.text) blocks.push([{ type: "text", text: "" }, [{ type: "text_delta", text: turn.text }]]);
  for (const call of turn.calls ?? []) {
    const head = { type: "tool_use", id: call.id ?? ident("toolu_").slice(0, 24), name: call.name, input: {} };
    blocks.push([head, [{ type: "input_json_delta", partial_json: JSON.stringify(call.input) }]]);
  }
  const usage = { input_tokens: 100, cache_creation_input_tokens: 0, cache_read_input_tokens: 0, output_tokens: 50 };
  const message = {
    id: ident("msg_"), type: "message", role: "assistant", model: body.model, content: [], stop_reason: null,
    stop_sequence: null, usage: { ...usage, output_tokens: 1 },
  };
  return [
    { type: "message_start", message },
    ...blocks.flatMap(([content_block, deltas], index) => [
      { type: "content_block_start", index, content_block },
      ...deltas.map((delta) => ({ type: "content_block_delta", index, delta })),
      { type: "content_block_stop", index },
    ]),
    { type: "message_delta", delta: { stop_reason: turn.calls ? "tool_use" : "end_turn", stop_sequence: null }, usage },
    { type: "message_stop" },
  ];
}

function responsesItems(turn) {
  const items = [];
  if (turn.thinking) {
    items.push({ id: ident("rs_"), type: "reasoning", summary: [{ type: "summary_text", text: turn.thinking }] });
  }
  if (turn.text) {
    const content = [{ type: "output_text", text: turn.text, annotations: [], logprobs: [] }];
    items.push({ id: ident("msg_"), type: "message", status: "completed", role: "assistant", content });
  }
  for (const { id, name, namespace, input } of turn.calls ?? []) {
    const common = { call_id: id ?? ident("call_").slice(0, 24), name, status: "completed", ...(namespace && { namespace }) };
    items.push(typeof input === "string"
      ? { id: ident("ctc_"), type: "custom_tool_call", ...common, input }
      : { id: ident("fc_"), type: "function_call", ...common, arguments: JSON.stringify(input) });
  }
  return items;
}

function responsesEvents(body, turn) {
  const output = responsesItems(turn);
  const usage = {
    input_tokens: 100, input_tokens_details: { cached_tokens: 0 }, output_tokens: 50,
    output_tokens_details: { reasoning_tokens: 0 }, total_tokens: 150,
  };
  const response = {
    id: ident("resp_"), object: "response", created_at: 1700000000, error: null, incomplete_details: null,
    model: body.model, parallel_tool_calls: true, tool_choice: "auto", tools: [],
  };
  const events = [
    { type: "response.created", response: { ...response, status: "in_progress", output: [], usage: null } },
    ...output.flatMap((item, output_index) => [
      { type: "response.output_item.added", output_index, item },
      { type: "response.output_item.done", output_index, item },
    ]),
    { type: "response.completed", response: { ...response, status: "completed", output, usage } },
  ];
  return events.map((event, sequence_number) => ({ ...event, sequence_number }));
}

const FORMATS = { "/v1/messages": messagesEvents, "/v1/responses": responsesEvents };

const toolsOf = (body) => [
  ...(body.tools ?? []),
  ...(Array.isArray(body.input) ? body.input.flatMap((item) => item.tools ?? []) : []),
];

/** Starts the provider; `requests` has the bodies of the agent's requests as they come. */
export async function startModel(script) {
  const requests = [];
  const answer = async (request, response) => {
    let raw = "";
    for await (const chunk of request) raw += chunk;
    const path = request.url.split("?")[0];
    const events = FORMATS[path];
    if (!events || request.method !== "POST") {
      response.writeHead(path === "/v1/messages/count_tokens" ? 200 : 404, { "content-type": "application/json" });
      return response.end(JSON.stringify({ input_tokens: 100 }));
    }
    const body = JSON.parse(raw);
    const agent = toolsOf(body).length > 0;
    if (agent) requests.push(body);
    // A program asks without a stream, and has no tools.
    const asks = agent || body.stream !== true;
    const turn = asks ? await script({ path, body, number: requests.length, raw }) : { text: '{"title": "A title"}' };
    if (turn.holdMs) await pause(turn.holdMs, undefined, { ref: false });
    if (turn.status) {
      response.writeHead(turn.status, { "content-type": "application/json", "x-should-retry": "false" });
      return response.end(JSON.stringify({ type: "error", error: { type: "invalid_request_error", message: turn.text } }));
    }
    if (body.stream !== true && path === "/v1/messages") {
      const [{ message }] = messagesEvents(body, turn);
      const content = [{ type: "text", text: turn.text ?? "" }];
      const cost = turn.cost && { "x-litellm-response-cost": turn.cost };
      response.writeHead(200, { "content-type": "application/json", ...cost });
      return response.end(JSON.stringify({ ...message, content, stop_reason: "end_turn" }));
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const event of events(body, turn)) response.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
    return response.end();
  };
  const server = http.createServer((request, response) => {
    answer(request, response).catch((error) => response.destroy(error));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return { url: `http://127.0.0.1:${server.address().port}`, requests, close };
}
