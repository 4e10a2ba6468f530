// The places of a transcript that a reader looks for: texts, faults, files, and changes of the state.

import { time } from "./format.js";
import { Foreign, html } from "./parts.js";

/** Entries that are shown. */
const SHOWN = 300;

const LABELS = {
  "agent.user_message": "Given", "agent.assistant_message": "Says", "agent.message": "Says", "agent.error": "Error", "agent.failed": "Failed",
  "agent.completed": "Done", "run.state_changed": "State", "question.asked": "Question", "approval.requested": "Approval",
  "run.interrupted": "Interrupt", "message.delivered": "Message",
};

function entry(event, failures) {
  const { event_type: type, event_data: data } = event;
  if (type === "agent.tool_use" && failures.has(data.id)) return ["Failed tool", data.name];
  if (type === "llm.call" && data.result !== "ok") return ["Failed call", data.result];
  if (!LABELS[type]) return null;
  const text = type === "run.state_changed" ? data.to : (data.text ?? data.message ?? data.question ?? data.reason ?? "");
  return [LABELS[type], typeof text === "string" ? text.split("\n")[0] : text];
}

export function Outline({ log }) {
  const events = log.events.value;
  const failures = new Set(events.filter(({ event_data: data }) => data?.is_error === true).map(({ event_data: data }) => data.tool_use_id));
  const entries = events.map((event) => [event, entry(event, failures)]).filter(([, found]) => found).slice(-SHOWN);
  if (entries.length === 0) return html`<p class="quiet">Nothing to list yet.</p>`;
  return html`<ol class="outline">${entries.map(([event, [label, text]]) => html`<li key=${event.seq}>
    <a href=${`#seq-${event.seq}`}><span class="quiet">${time(event.created_at)}</span> <span class="kind">${label}</span>
      ${" "}<${Foreign} inline text=${text ?? ""} max=${80} /></a></li>`)}</ol>`;
}
