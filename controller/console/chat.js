// A conversation with an agent. Each turn is a run, which has a page of its own.

import { effect, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ApiError, changeText, errorText, get, isFinal, loggedOut, RETRY_MS, send } from "./api.js";
import { Empty, Fault, Foreign, FromAgent, html } from "./parts.js";
import { collect, frames, pause } from "./stream.js";

/** Times that a broken answer is asked for again before the page gives up. */
const RECONNECTS = 5;
const FIRST_WAIT = 500;

const agents = signal(null);
const chosen = signal("");
const turns = signal([]);
const draft = signal("");
const fault = signal("");
let session = crypto.randomUUID();
let abort = null;
const busy = signal(false);
/** True once the kept conversation was taken up: only then another one may replace it. */
let isRestored = false;

/** Characters of a conversation that a reload keeps. */
const KEPT_MAX = 2_000_000;
/** A tab may be used by one session after the other: each keeps its own. */
const KEPT = `sluice.chat ${document.querySelector(".who")?.textContent ?? ""}`;

const isTurn = (turn) => ["user", "assistant"].includes(turn?.role) && typeof turn.text === "string" && (turn.role === "user" || Array.isArray(turn.tools));

/** Takes up the conversation of this tab after a reload. What it says is foreign text as before. */
function restore() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEPT));
    if (!Array.isArray(kept?.turns) || !kept.turns.every(isTurn)) return;
    if (!agents.value?.some((agent) => agent.agentId === kept.agent)) return;
    session = String(kept.session);
    chosen.value = kept.agent;
    turns.value = kept.turns;
  } catch {
    // A conversation that cannot be read begins anew.
  }
}

function keep() {
  const text = JSON.stringify({ session, agent: chosen.value, turns: turns.value });
  try {
    if (text.length <= KEPT_MAX) sessionStorage.setItem(KEPT, text);
    else sessionStorage.removeItem(KEPT);
  } catch {
    // The browser has no room: a reload begins anew.
  }
}

/** Goes on with an answer that a reload has cut off: the daemon has all of it. */
async function goOn() {
  const last = turns.value.at(-1);
  if (last?.role !== "assistant" || last.ended || last.fault) return;
  if (!last.run) return change({ fault: "The page was left before a run had taken the question.", phase: "" });
  change({ text: "", tools: [], phase: "is connected again" });
  busy.value = true;
  abort = new AbortController();
  try {
    await read(null, last.run);
  } catch (error) {
    change({ fault: abort.signal.aborted ? "You have stopped it." : errorText(error), phase: "" });
  }
  busy.value = false;
}

function anew() {
  session = crypto.randomUUID();
  turns.value = [];
}

const PHASES = {
  queued: "waits for a place", starting: "its sandbox is being made", running: "works", thinking: "thinks", waiting: "waits for an approval",
  finishing: "ends",
};

/** Changes the last turn. */
function change(part) {
  turns.value = [...turns.value.slice(0, -1), { ...turns.value.at(-1), ...part }];
}

function take({ event, data: text }) {
  const data = JSON.parse(text);
  const turn = turns.value.at(-1);
  if (event === "text_delta") change({ text: turn.text + data.delta, phase: "" });
  else if (event === "status") change({ phase: PHASES[data.phase] ?? data.phase });
  else if (event === "tool_call_start") change({ tools: [...turn.tools, { id: data.toolCallId, name: data.toolName, done: false }] });
  else if (event === "tool_call_result") {
    change({ tools: turn.tools.map((tool) => (tool.id === data.toolCallId ? { ...tool, done: true, failed: data.isError } : tool)) });
  } else if (event === "error") change({ fault: `${data.error}: ${data.message}` });
  else if (event === "done") change({ phase: "", ended: true });
}

/** Reads the answer of a turn. One that breaks off is asked for again, after the last event that the page has. */
async function read(first, run) {
  let answer = first;
  let last = null;
  for (let tries = 0; ; tries += 1) {
    try {
      answer ??= await send("GET", `/api/v1/ai/runs/${run}/stream`, undefined, {
        headers: last === null ? {} : { "Last-Event-ID": last }, signal: abort.signal,
      });
      for await (const frame of frames(answer.body)) {
        last = frame.id ?? last;
        tries = 0;
        take(frame);
      }
    } catch (error) {
      const refused = error instanceof ApiError && error.status < 500;
      if (abort.signal.aborted || (refused && !loggedOut.value)) throw error;
    }
    if (turns.value.at(-1).ended) return;
    // A person logs in again, which has no limit of time.
    if (loggedOut.value) tries = 1;
    if (!run || tries === RECONNECTS) {
      change({ fault: "The answer broke off. The page of the run says what became of it.", phase: "" });
      return;
    }
    change({ phase: "is connected again" });
    await pause(FIRST_WAIT * 2 ** tries);
    answer = null;
  }
}

async function ask() {
  const text = draft.value.trim();
  if (!text || busy.value) return;
  // A question that no run has taken is not part of the conversation.
  const taken = turns.value.filter(({ role, text: said }, at) => said && (role === "assistant" || turns.value[at + 1].run));
  const messages = taken.map(({ role, text: content }) => ({ role, content }));
  turns.value = [...turns.value, { role: "user", text }, { role: "assistant", text: "", tools: [], phase: "is asked", run: "", fault: "", ended: false }];
  draft.value = "";
  busy.value = true;
  abort = new AbortController();
  try {
    const body = { agentId: chosen.value, messages: [...messages, { role: "user", content: text }], session_id: session };
    const answer = await send("POST", "/api/v1/ai/chat", body, { signal: abort.signal });
    const run = answer.headers.get("x-sluice-run-id") ?? "";
    change({ run });
    await read(answer, run);
  } catch (error) {
    // A text that no run has taken can be sent again.
    if (!turns.value.at(-1).run && !draft.value) draft.value = text;
    change({ fault: abort.signal.aborted ? "You have stopped it." : changeText(error), phase: "" });
  }
  busy.value = false;
}

function Answer({ turn }) {
  return html`<div class="turn"><p class="small quiet">Agent${turn.run && html` · <a href=${`/sandboxes/${turn.run}`}>its run</a>`}
      ${turn.phase && html` · <span role="status">${turn.phase} …</span>`}</p>
    ${turn.tools.map((tool) => html`<p key=${tool.id} class="call"><span class="kind">Tool</span> <${Foreign} inline text=${tool.name} max=${80} />
      ${" "}<span class=${tool.failed ? "bad" : "quiet"}>${tool.failed ? "failed" : tool.done ? "done" : "under way"}</span></p>`)}
    ${turn.text && html`<div class="text"><${FromAgent}><${Foreign} text=${turn.text} max=${50_000} /><//></div>`}
    ${turn.fault && html`<p class="fault-text" role="alert">${turn.fault}</p>`}</div>`;
}

const Question = ({ turn }) => html`<div class="turn own"><p class="small quiet">You</p><p class="own-text">${turn.text}</p></div>`;

function Box() {
  const key = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    ask();
  };
  return html`<div class="message-box"><label><span class="visually-hidden">Message</span>
      <textarea id="chat-message" rows="3" maxlength="100000" placeholder="Message to the agent" value=${draft.value}
        onInput=${(event) => { draft.value = event.currentTarget.value; }} onKeyDown=${key}></textarea></label>
    <div class="row wrap"><span class="small quiet grow">Enter sends, Shift+Enter is a new line. Each turn is a run.</span>
      ${busy.value && html`<button onClick=${() => abort.abort()}>Stop</button>`}
      <button class="primary" disabled=${busy.value || !draft.value.trim()} onClick=${ask}>Send</button></div></div>`;
}

function Choice() {
  return html`<label class="row"><span>Agent</span><select value=${chosen.value} disabled=${busy.value}
    onChange=${(event) => { chosen.value = event.currentTarget.value; anew(); }}>${agents.value.map((agent) =>
      html`<option key=${agent.agentId} value=${agent.agentId}>${agent.name}</option>`)}</select></label>`;
}

function Page() {
  const end = useRef(null);
  useEffect(() => end.current?.scrollIntoView({ block: "nearest" }), [turns.value]);
  const about = agents.value?.find((agent) => agent.agentId === chosen.value)?.description;
  return html`<div class="page chat">
    <div class="row wrap"><h1 class="grow">Chat</h1>${agents.value?.length > 0 && html`<${Choice} />`}
      ${turns.value.length > 0 && html`<button disabled=${busy.value} onClick=${anew}>New conversation</button>`}</div>
    ${fault.value && html`<${Fault} text=${fault.value} retry=${load} />`}
    ${agents.value?.length === 0 && html`<${Empty} title="There is no agent to talk to"><p>This host creates no sandboxes: an admin sets
      <code>sandbox_enabled</code> and an upstream key.</p><//>`}
    ${agents.value?.length > 0 && html`${turns.value.length === 0 && html`<p class="quiet">${about || "Ask something. The answer comes from a run of its own."}</p>`}
      <div class="turns" role="log" aria-label="Conversation">${turns.value.map((turn, at) =>
        turn.role === "user" ? html`<${Question} key=${at} turn=${turn} />` : html`<${Answer} key=${at} turn=${turn} />`)}<div ref=${end}></div></div>
      <${Box} />`}
  </div>`;
}

let retry;

async function load() {
  clearTimeout(retry);
  try {
    const catalog = await get("/api/v1/ai/agents");
    agents.value = catalog.agents;
    chosen.value = catalog.defaultAgentId ?? catalog.agents[0]?.agentId ?? "";
    fault.value = "";
  } catch (error) {
    fault.value = errorText(error);
    clearTimeout(retry);
    if (!isFinal(error)) retry = setTimeout(load, RETRY_MS);
    return;
  }
  if (isRestored) return;
  isRestored = true;
  restore();
  goOn();
}

export async function start(show) {
  await load();
  // A long answer comes in many parts: a change is kept within a second, and when the page is left.
  let isKept = true;
  const flush = () => {
    if (!isKept) keep();
    isKept = true;
  };
  const soon = collect(flush, 1000);
  let last = [turns.value, chosen.value];
  effect(() => {
    const now = [turns.value, chosen.value];
    if (now.every((value, at) => value === last[at])) return;
    last = now;
    isKept = false;
    soon();
  });
  addEventListener("pagehide", flush);
  show(html`<${Page} />`);
}
