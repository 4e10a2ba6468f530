// One row of the transcript.

import { Component } from "preact";
import { useState } from "preact/hooks";
import { get, readText, send } from "./api.js";
import { DiffLines } from "./diff.js";
import { callCost, count, dollars, duration, time } from "./format.js";
import { Commands, Foreign, FromAgent, Guard, html } from "./parts.js";
import { cut, textOf } from "./text.js";

const TEXTS = new Set([
  "agent.assistant_message", "agent.user_message", "agent.thinking", "agent.message", "agent.system_message",
]);
const LABELS = { "agent.thinking": "from the agent, thinking", "agent.user_message": "what the agent was given" };

function first(input) {
  const value = input?.command ?? input?.file_path ?? input?.path ?? input?.pattern ?? input?.query ?? input?.description;
  const text = Array.isArray(value) ? value.map(textOf).join(" ") : value;
  return typeof text === "string" ? cut(text.split("\n")[0], 160) : "";
}

function content(value) {
  if (!Array.isArray(value)) return value ?? "";
  return value.map((part) => textOf(part?.text ?? part)).join("\n");
}

function ToolRow({ event, result }) {
  const { name, input } = event.event_data;
  const data = result?.event_data;
  const failed = data?.is_error === true;
  const took = result ? Math.max(0, Date.parse(result.created_at) - Date.parse(event.created_at)) : null;
  const end = data ? [Number.isInteger(data.exit_code) && `exit ${data.exit_code}`, `${(took / 1000).toFixed(1)} s`].filter(Boolean).join(" · ") : "no result yet";
  return html`<details class="tool">
    <summary><span class="kind">Tool</span> <strong><${Foreign} inline text=${name ?? ""} max=${80} /></strong>
      <code class="one-line"><${Foreign} inline text=${first(input)} /></code>
      <span class=${failed ? "bad" : "quiet"}>${failed ? "failed · " : ""}${end}</span></summary>
    <${FromAgent}><${Foreign} text=${input} />
      ${data && html`<div class=${failed ? "stderr" : ""}><${Foreign} text=${content(data.content ?? data.output ?? data.result)} /></div>`}
      ${typeof data?.stderr === "string" && data.stderr && html`<div class="stderr"><span class="kind">stderr</span><${Foreign} text=${data.stderr} /></div>`}<//>
  </details>`;
}

function FileRow({ event, base }) {
  const { file_path: path, change_type: change, lines_added: added, lines_removed: removed, diff_preview: preview,
    diff_truncated: truncated, diff_omitted: omitted } = event.event_data;
  const [whole, setWhole] = useState(null);
  const load = async () => {
    try {
      setWhole(await (await send("GET", `${base}/file-diffs/${event.id}`)).text());
    } catch (error) {
      setWhole(readText(error));
    }
  };
  const claim = event.source === "system" ? "" : " (reported by the agent)";
  // An agent may report anything; outside of its frame there are only known words and numbers.
  const word = typeof change === "string" && /^[a-z_]{1,20}$/.test(change) ? change : "changed";
  return html`<details class="file">
    <summary><span class="kind">File</span> <code class="one-line"><${Foreign} inline text=${path ?? ""} /></code>
      <span class="quiet">${word}${claim}</span>
      ${Number.isInteger(added) && Number.isInteger(removed) && html`<span class="add">+${added}</span> <span class="del">−${removed}</span>`}</summary>
    <${FromAgent}>${preview || whole ? html`<${DiffLines} text=${whole ?? preview} />` : html`<p class="quiet">No diff${omitted && html`: <${Foreign} inline text=${omitted} max=${200} />`}</p>`}
      ${truncated && whole === null && html`<button class="link" onClick=${load}>Show the whole diff</button>`}<//>
  </details>`;
}

function CallRow({ event }) {
  const data = event.event_data;
  const done = event.event_type === "llm.call";
  const cost = callCost(data);
  const ok = data.result === "ok" || !done;
  const facts = [
    done && data.usage?.total !== null && data.usage && `${count(data.usage.input)} in, ${count(data.usage.output)} out`,
    done && (cost === null ? `cost unknown${data.cost?.unknown?.reason ? `: ${data.cost.unknown.reason}` : ""}` : dollars(cost)),
    data.timing_us?.ttfb && `first byte ${(data.timing_us.ttfb / 1e6).toFixed(2)} s`,
    data.timing_us?.total && `total ${(data.timing_us.total / 1e6).toFixed(2)} s`,
  ].filter(Boolean).join(" · ");
  return html`<div class="call"><span class="kind">Call</span> <span>${data.model}</span>
    <span class=${ok ? "quiet" : "bad"}>${done ? (ok ? "" : `${data.result} ${data.status ?? ""}`) : "under way"}</span>
    <span class="quiet">${facts}</span></div>`;
}

function TextRow({ event }) {
  const { text, message } = event.event_data;
  const type = event.event_type;
  return html`<div class=${`text ${type.slice(6)}`}><${FromAgent} label=${LABELS[type] ?? "from the agent"}>
    <${Foreign} text=${text ?? message ?? event.event_data} /><//></div>`;
}

function OtherRow({ event }) {
  const { event_type: type, event_data: data, source } = event;
  if (type === "run.state_changed") {
    return html`<div class="call"><span class="kind">State</span> <span>${data.from} → <strong>${data.to}</strong></span>
      <span class="quiet">${data.reason}</span></div>`;
  }
  const isEmpty = Object.keys(data).length === 0;
  const line = html`<span class="kind">${source === "system" ? "System" : "Agent"}</span> <span>${type}</span>`;
  if (isEmpty) return html`<div class="call">${line}</div>`;
  const body = html`<${Foreign} text=${data} />`;
  return html`<details class=${/error|failed/.test(type) ? "other bad-edge" : "other"}><summary>${line}
    ${typeof data.message === "string" && html`<span class="quiet one-line"><${Foreign} inline text=${data.message} max=${160} /></span>`}</summary>
    ${source === "system" ? html`<pre class="data">${body}</pre>` : html`<${FromAgent}>${body}<//>`}</details>`;
}

function Body({ row: { event, result }, base }) {
  const type = event.event_type;
  if (type === "agent.tool_use") return html`<${ToolRow} event=${event} result=${result} />`;
  if (type === "agent.file_edited") return html`<${FileRow} event=${event} base=${base} />`;
  if (type === "llm.call" || type === "llm.call_started") return html`<${CallRow} event=${event} />`;
  if (TEXTS.has(type) && event.source !== "system") return html`<${TextRow} event=${event} />`;
  return html`<${OtherRow} event=${event} />`;
}

/** Commands that read an event in a terminal. The daemon puts them into quotes. */
function EventCommands({ base, seq }) {
  const [commands, setCommands] = useState(null);
  const [fault, setFault] = useState("");
  const toggle = () => {
    if (commands) return setCommands(null);
    get(`${base}/commands?event=${seq}`).then((found) => setCommands(found.commands), (error) => setFault(readText(error)));
  };
  return html`<button class="link copy" title="Commands for this event" aria-label=${`Commands for event ${seq}`} aria-expanded=${commands !== null}
      onClick=${toggle}>$_</button>
    ${fault && html`<p class="fault-text" role="alert">${fault}</p>`}${commands && html`<div class="stack"><${Commands} commands=${commands} /></div>`}`;
}

/** The head of a turn: what it has in this window. */
export function TurnHead({ turn: { calls, tools, files, cost, ms } }) {
  const parts = [[calls, "call", "calls"], [tools, "tool", "tools"], [files, "file", "files"]].filter(([number]) => number > 0)
    .map(([number, one, more]) => `${count(number)} ${number === 1 ? one : more}`);
  if (cost > 0) parts.push(dollars(cost));
  if (ms >= 1000) parts.push(duration(ms));
  return html`<p class="turn-head"><strong>Turn</strong> <span class="quiet">${parts.join(" · ")}</span></p>`;
}

/** A row. It is drawn again only when its event has a result, or its turn grows. */
export class Row extends Component {
  shouldComponentUpdate(next) {
    const { event, result, turn } = this.props.row;
    return next.row.event !== event || next.row.result !== result || JSON.stringify(next.row.turn) !== JSON.stringify(turn);
  }

  render({ row, base }) {
    const { seq, created_at: at } = row.event;
    return html`<article id=${`seq-${seq}`} tabindex="-1" class=${row.turn ? "begins" : undefined}>
      ${row.turn && html`<${TurnHead} turn=${row.turn} />`}
      <a class="at" href=${`#seq-${seq}`} title=${`Event ${seq}`}>${time(at)}</a>
      <div class="body"><${Guard} text="This event cannot be shown."><${Body} row=${row} base=${base} /><//><${EventCommands} base=${base} seq=${seq} /></div></article>`;
  }
}
