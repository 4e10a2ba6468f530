// The stream of Claude Code (`claude -p --output-format stream-json --verbose`) as events of a run. Pure.
//
// Any program can be called `claude`, and tools print what they like: no line may break the translation.
import { diffOfHunks, diffOfNewFile, fileEdited } from "./edits.mjs";

// Lines that are too frequent, or that other lines repeat.
const SILENT = new Set(["status", "task_started", "task_updated", "thinking_tokens"]);
const SUBAGENTS = new Set(["Agent", "Task"]);

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const string = (value) => (typeof value === "string" ? value : undefined);
const number = (value) => (Number.isFinite(value) ? value : undefined);

/** The text in the content of a message or a tool result; what is not text is named. */
export function textOf(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content
    .map((block) => (typeof block?.text === "string" ? block.text : `[${string(block?.type) ?? "unknown"}]`))
    .join("\n");
}

export class ClaudeEvents {
  constructor() {
    this.session = undefined;
    this.turns = 0;
    this.cost = undefined; // of the process, as Claude Code estimates it
    this.costBefore = 0; // of the processes before
    this.result = undefined; // the last one
    this.unknown = 0; // lines that were not understood
    this.tools = new Map(); // id of a call -> its name and input, until its result
    this.subagents = new Map(); // id of a call -> what completes it
  }

  /** A process begins: the first one, or one that goes on with the session. */
  begin() {
    this.costBefore += this.cost ?? 0;
    this.cost = this.result = undefined;
  }

  /** What came of a process that has ended. */
  outcome(end, exit) {
    const { result } = this;
    const data = {
      turns: this.turns, cost_usd: this.cost === undefined ? undefined : this.costBefore + this.cost,
      session_id: this.session, stop_reason: result?.stopReason, usage: result?.usage,
    };
    if (!result) return { ...end, exit };
    if (!result.isError) {
      return { ...end, exit, text: result.text, completed: { success: true, ...data, output: result.text } };
    }
    const failed = { success: false, ...data, error: result.text || result.subtype || "the turn failed" };
    return { ...end, exit: exit === 0 ? 1 : exit, failed };
  }

  /** Returns the events of a line: {type, data, merge?}. `signal` gets what the driver has to know. */
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
    this.session = string(item.session_id) ?? this.session;
    const events = [];
    const add = (type, data, merge) => {
      // JSON leaves out members that are undefined.
      const parent = string(item.parent_tool_use_id);
      events.push({ type: `agent.${type}`, data: parent ? { ...data, parent_tool_use_id: parent } : data, merge });
    };
    this.#item(item, add, signal);
    return events;
  }

  #item(item, add, signal) {
    switch (item.type) {
      case "assistant": return this.#assistant(item, add);
      case "user": return this.#user(item, add, signal);
      case "system": return this.#system(item, add, signal);
      case "result": return this.#result(item, signal);
      case "stream_event": return this.#partial(item, add);
      case "control_response": return signal("control_response", item.response);
      case "control_request": return signal("control_request", item);
      case "rate_limit_event": case "keep_alive": return undefined;
      default:
        this.unknown += 1;
        return add("progress", { unknown_type: string(item.type)?.slice(0, 100) ?? typeof item.type, line: item });
    }
  }

  #assistant(item, add) {
    const message = isObject(item.message) ? item.message : {};
    const error = string(item.error);
    for (const block of Array.isArray(message.content) ? message.content : []) {
      if (!isObject(block)) continue;
      if (block.type === "text" && error) add("error", { message: string(block.text) ?? "", error, fatal: false });
      else if (block.type === "text") {
        add("assistant_message", { text: string(block.text) ?? "", message_id: string(message.id), model: string(message.model) });
      } else if (block.type === "thinking" || block.type === "redacted_thinking") {
        add("thinking", { text: string(block.thinking) ?? "[redacted]" });
      } else if (typeof block.type === "string" && block.type.endsWith("tool_use")) this.#toolUse(block, add);
      else add("progress", { block });
    }
  }

  #toolUse(block, add) {
    const id = string(block.id) ?? "";
    const name = string(block.name) ?? "";
    const input = isObject(block.input) ? block.input : { input: block.input };
    add("tool_use", { id, name, input });
    this.tools.set(id, { name, input });
    if (this.tools.size > 1000) this.tools.delete(this.tools.keys().next().value);
    if (SUBAGENTS.has(name)) {
      const data = {
        tool_use_id: id, subagent_type: string(input.subagent_type), description: string(input.description),
      };
      this.subagents.set(id, data);
      if (this.subagents.size > 1000) this.subagents.delete(this.subagents.keys().next().value);
      add("subagent_invoked", { ...data, prompt: string(input.prompt) });
    } else if (name === "Skill") {
      add("skill_invoked", { tool_use_id: id, skill: string(input.skill) ?? string(input.command), args: input.args });
    }
  }

  #user(item, add, signal) {
    const content = item.message?.content;
    if (item.isReplay) return signal("replay", { uuid: string(item.uuid), text: textOf(content) });
    const blocks = typeof content === "string" ? [{ type: "text", text: content }] : Array.isArray(content) ? content : [];
    for (const block of blocks) {
      if (block?.type === "tool_result") this.#toolResult(block, item.tool_use_result, add);
      else if (block?.type === "text") {
        add("user_message", { text: string(block.text) ?? "", synthetic: item.isSynthetic === true || undefined });
      } else if (isObject(block)) add("user_message", { text: `[${string(block.type) ?? "unknown"}]` });
    }
    return undefined;
  }

  #toolResult(block, details, add) {
    const id = string(block.tool_use_id) ?? "";
    const { name, input } = this.tools.get(id) ?? {};
    this.tools.delete(id);
    const isError = block.is_error === true;
    add("tool_result", { tool_use_id: id, name, content: textOf(block.content), is_error: isError });
    const result = isObject(details) ? details : {};
    if (!isError && string(result.filePath)) this.#edited(id, name, result, add);
    if (name === "Skill") add("skill_completed", { tool_use_id: id, skill: string(input?.skill), success: !isError });
    const isUnderWay = result.isAsync === true || result.status === "async_launched";
    if (this.subagents.has(id) && !isUnderWay) {
      this.#subagentCompleted(id, {
        status: isError ? "failed" : string(result.status) ?? "completed", duration_ms: number(result.totalDurationMs),
        tokens: number(result.totalTokens), tool_uses: number(result.totalToolUseCount),
      }, add);
    }
  }

  #edited(id, name, result, add) {
    if (!["Write", "Edit", "MultiEdit", "NotebookEdit"].includes(name)) return;
    const isNew = result.type === "create" || (name === "Write" && result.originalFile === null);
    const hunks = Array.isArray(result.structuredPatch) ? result.structuredPatch : [];
    const diff = isNew ? diffOfNewFile(string(result.content)) : diffOfHunks(hunks);
    add("file_edited", { ...fileEdited(result.filePath, isNew ? "created" : "modified", diff), tool_use_id: id });
  }

  #subagentCompleted(id, data, add) {
    const known = this.subagents.get(id);
    this.subagents.delete(id);
    add("subagent_completed", { ...known, ...data });
  }

  #system(item, add, signal) {
    const subtype = string(item.subtype) ?? "";
    if (subtype === "init") {
      signal("started", undefined);
      return add("system_message", {
        subtype, session_id: this.session, model: string(item.model), version: string(item.claude_code_version),
        cwd: string(item.cwd), tools: item.tools, mcp_servers: item.mcp_servers,
      });
    }
    const id = string(item.tool_use_id);
    if (subtype === "task_notification" && this.subagents.has(id)) {
      const usage = isObject(item.usage) ? item.usage : {};
      return this.#subagentCompleted(id, {
        status: string(item.status), summary: string(item.summary), duration_ms: number(usage.duration_ms),
        tokens: number(usage.total_tokens), tool_uses: number(usage.tool_uses),
      }, add);
    }
    if (SILENT.has(subtype)) return undefined;
    const { type, session_id, uuid, ...data } = item;
    return add(subtype === "compact_boundary" ? "system_message" : "progress", data);
  }

  #result(item, signal) {
    this.turns += number(item.num_turns) ?? 0;
    this.cost = number(item.total_cost_usd) ?? this.cost;
    this.result = {
      isError: item.is_error === true || string(item.subtype) !== "success",
      subtype: string(item.subtype),
      text: string(item.result) ?? (Array.isArray(item.errors) ? item.errors.map((error) => string(error) ?? "").join("\n") : ""),
      stopReason: string(item.stop_reason),
      usage: isObject(item.usage) ? item.usage : undefined,
    };
    signal("result", this.result);
  }

  /** With --include-partial-messages: the text as it comes. The whole message follows. */
  #partial(item, add) {
    const text = string(item.event?.delta?.text);
    if (item.event?.type !== "content_block_delta" || !text) return;
    add("message", { text, partial: true }, `partial ${string(item.parent_tool_use_id) ?? ""}`);
  }
}
