// The stream of Codex (`codex exec --json`) as events of a run. Pure.
//
// Codex numbers its items from 0 in each process, so ids here begin with the number of the turn.
const KINDS = { __proto__: null, add: "created", delete: "deleted", update: "modified" };
const ENDED = new Set(["completed", "errored", "failed", "interrupted", "not_found", "shutdown"]);

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const string = (value) => (typeof value === "string" ? value : undefined);
const word = (value) => (typeof value === "string" ? value.slice(0, 100) : typeof value);
const number = (value) => (Number.isFinite(value) ? value : 0);

/** The call of an item as a tool and its input; nothing for an item that is not a call. */
function callOf(item) {
  switch (item.type) {
    case "command_execution": return { name: "shell", input: { command: item.command } };
    case "file_change": return { name: "apply_patch", input: { changes: item.changes } };
    case "mcp_tool_call": return { name: `mcp__${word(item.server)}__${word(item.tool)}`, input: item.arguments };
    case "web_search": return { name: "web_search", input: { query: item.query, action: item.action } };
    case "collab_tool_call": return { name: word(item.tool), input: { prompt: item.prompt, agents: item.receiver_thread_ids } };
    default: return undefined;
  }
}

/** The text of the result of a call. */
function resultOf(item) {
  if (typeof item.aggregated_output === "string") return item.aggregated_output;
  if (isObject(item.error)) return string(item.error.message) ?? "";
  if (Array.isArray(item.result?.content)) {
    return item.result.content.map((block) => string(block?.text) ?? `[${string(block?.type) ?? "unknown"}]`).join("\n");
  }
  return "";
}

export class CodexEvents {
  constructor() {
    this.session = undefined;
    this.turns = 0;
    this.usage = undefined;
    this.text = ""; // the agent's last message
    this.failure = undefined; // of the turn under way
    this.unknown = 0;
    this.agents = new Set(); // threads of subagents that work
    this.begun = new Set(); // items whose call was told
  }

  /** A process begins: the first one, or one more turn. */
  begin() {
    this.failure = undefined;
    this.isComplete = false;
    this.processes = (this.processes ?? 0) + 1;
    this.begun.clear();
  }

  line(text, signal = () => {}) {
    if (text.trim() === "") return [];
    let item;
    try {
      item = JSON.parse(text);
    } catch {
      item = undefined;
    }
    if (!isObject(item)) {
      this.unknown += 1;
      return [{ type: "agent.progress", data: { unknown_line: text.slice(0, 500) } }];
    }
    const events = [];
    this.#event(item, (type, data) => events.push({ type: `agent.${type}`, data }), signal);
    return events;
  }

  #event(event, add, signal) {
    switch (event.type) {
      case "thread.started":
        this.session = string(event.thread_id) ?? this.session;
        return add("system_message", { subtype: "init", session_id: this.session });
      case "turn.started":
        this.turns += 1;
        return signal("started");
      case "turn.completed":
        this.usage = isObject(event.usage) ? event.usage : this.usage; // of the whole thread
        this.isComplete = true;
        return undefined;
      case "turn.failed":
        this.failure = string(event.error?.message) ?? "the turn failed";
        return undefined;
      case "error":
        return add("error", { message: string(event.message) ?? "", fatal: false });
      case "item.started": case "item.updated": case "item.completed":
        return isObject(event.item) ? this.#item(event.item, event.type.slice(5), add) : undefined;
      default:
        this.unknown += 1;
        return add("progress", { unknown_type: word(event.type), line: event });
    }
  }

  #item(item, step, add) {
    const call = callOf(item);
    if (call) return this.#call(item, call, step, add);
    if (item.type === "todo_list") return add("progress", { todo: item.items });
    if (step !== "completed") return undefined;
    switch (item.type) {
      case "agent_message":
        this.text = string(item.text) ?? "";
        return add("assistant_message", { text: this.text });
      case "reasoning": return add("thinking", { text: string(item.text) ?? "" });
      case "error": return add("error", { message: string(item.message) ?? "", fatal: false });
      default:
        this.unknown += 1;
        return add("progress", { unknown_item: word(item.type), item });
    }
  }

  #call(item, { name, input }, step, add) {
    const id = `${this.processes}-${string(item.id) ?? "item"}`;
    if (!this.begun.has(id)) {
      if (this.begun.size < 10_000) this.begun.add(id);
      add("tool_use", { id, name, input });
    }
    if (item.type === "collab_tool_call") this.#agents(item, id, add);
    if (step !== "completed") return;
    add("tool_result", {
      tool_use_id: id, name, content: resultOf(item), is_error: item.status === "failed" || isObject(item.error),
      exit_code: Number.isInteger(item.exit_code) ? item.exit_code : undefined,
    });
    if (item.type !== "file_change" || item.status === "failed" || !Array.isArray(item.changes)) return;
    // Codex does not report the changes within a file.
    for (const change of item.changes.filter(isObject).slice(0, 100)) {
      add("file_edited", {
        file_path: string(change.path) ?? "", change_type: KINDS[string(change.kind)] ?? "modified", tool_use_id: id,
      });
    }
  }

  #agents(item, id, add) {
    const states = isObject(item.agents_states) ? item.agents_states : {};
    for (const thread of Array.isArray(item.receiver_thread_ids) ? item.receiver_thread_ids.slice(0, 100) : []) {
      if (typeof thread !== "string") continue;
      if (item.tool === "spawn_agent" && !this.agents.has(thread)) {
        this.agents.add(thread);
        add("subagent_invoked", { tool_use_id: id, thread_id: thread, prompt: string(item.prompt) });
      }
      const status = string(states[thread]?.status);
      if (this.agents.has(thread) && ENDED.has(status)) {
        this.agents.delete(thread);
        add("subagent_completed", { tool_use_id: id, thread_id: thread, status, summary: string(states[thread].message) });
      }
    }
  }

  /** What came of a process that has ended. */
  outcome(end, exit) {
    const usage = this.usage && {
      input_tokens: number(this.usage.input_tokens), cached_input_tokens: number(this.usage.cached_input_tokens),
      output_tokens: number(this.usage.output_tokens), reasoning_output_tokens: number(this.usage.reasoning_output_tokens),
    };
    const data = { turns: this.turns, session_id: this.session, usage };
    if (this.failure !== undefined) {
      return { ...end, exit: exit === 0 ? 1 : exit, failed: { success: false, ...data, error: this.failure } };
    }
    if (!this.isComplete) return { ...end, exit };
    return { ...end, exit, text: this.text, completed: { success: true, ...data, output: this.text } };
  }
}
