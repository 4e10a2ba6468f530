// Decides which events are a row of the transcript, which belong to another row, and which begin a turn.

import { callCost } from "./format.js";

const HIDDEN = new Set(["agent.heartbeat"]);
const RESULTS = new Set(["agent.tool_result", "agent.tool_completed", "agent.user_tool_result"]);

/** Events with which a turn begins: the agent gets something to do. */
const TURNS = new Set(["agent.user_message", "message.delivered"]);

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** Returns the rows of these events. A tool call has its result, and the begin of a call is left out after its end. */
export function rowsOf(all) {
  const events = all.map((event) => (isObject(event.event_data) ? event : { ...event, event_data: { value: event.event_data } }));
  const uses = new Set();
  const results = new Map();
  const ended = new Set();
  for (const { event_type: type, event_data: data } of events) {
    if (type === "agent.tool_use" && data.id) uses.add(data.id);
    if (type === "llm.call") ended.add(data.call_id);
  }
  for (const event of events) {
    const of = event.event_data.tool_use_id;
    if (RESULTS.has(event.event_type) && uses.has(of) && !results.has(of)) results.set(of, event);
  }
  const rows = [];
  for (const event of events) {
    const { event_type: type, event_data: data } = event;
    if (HIDDEN.has(type)) continue;
    if (type === "llm.call_started" && ended.has(data.call_id)) continue;
    if (RESULTS.has(type) && uses.has(data.tool_use_id)) continue;
    rows.push({ event, result: type === "agent.tool_use" ? results.get(data.id) : undefined });
  }
  return withTurns(rows);
}

/** Adds to the first row of each turn what the rows of the turn have. */
function withTurns(rows) {
  let turn;
  let before = "";
  for (const row of rows) {
    const { event_type: type, event_data: data, created_at: at } = row.event;
    // A message that is delivered is then said to the agent: this is one begin.
    if (TURNS.has(type) && !TURNS.has(before)) {
      turn = { calls: 0, tools: 0, files: 0, cost: 0, ms: 0, begin: Date.parse(at) };
      row.turn = turn;
    }
    before = type;
    if (!turn) continue;
    turn.ms = Date.parse(at) - turn.begin;
    if (type === "llm.call") {
      turn.calls += 1;
      turn.cost += callCost(data) ?? 0;
    } else if (type === "agent.tool_use") turn.tools += 1;
    else if (type === "agent.file_edited") turn.files += 1;
  }
  return rows;
}
