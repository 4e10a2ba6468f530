// Registered agents: their state, their live run, and their history.

import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { changeText, errorText, get, isFinal, post, readText } from "./api.js";
import { age, count, dateTime, now } from "./format.js";
import { Badge, Command, Empty, Fault, html, Live, Refusal } from "./parts.js";
import { collect, follow, looks } from "./stream.js";

const LIVE = "PENDING,CREATING,RUNNING,COMPLETING";
const TONES = { CONNECTED: "green", IDLE: "grey", SUSPENDED: "red", UNKNOWN: "grey" };
const WORDS = { CONNECTED: "Connected", IDLE: "Idle", SUSPENDED: "Suspended", UNKNOWN: "Unknown" };

const agents = signal(null);
const more = signal(null);
/** Owner of this session: an admin's session sees the agents of all owners, and suspends only its own. */
const owner = signal(null);
/** Agents that the reader wants to see. Each look reads all of them. */
let wanted = 200;
const begin = looks();
const runs = signal([]);
/** Why the agents could not be read: gone once they are read. */
const fault = signal("");
/** Why the last change was refused. */
const refusal = signal("");
let stream;

async function load() {
  const look = begin();
  try {
    owner.value ??= (await get("/api/v1/session")).owner;
    const [first, live] = await Promise.all([get("/api/v1/agents?limit=200"), get(`/api/v1/sandboxes?state=${LIVE}&limit=500`)]);
    const found = [...first.agents];
    let cursor = first.next_cursor;
    while (cursor && found.length < wanted) {
      const page = await get(`/api/v1/agents?limit=200&cursor=${encodeURIComponent(cursor)}`);
      found.push(...page.agents);
      cursor = page.next_cursor;
    }
    if (!look.take()) return;
    agents.value = found;
    more.value = cursor;
    runs.value = live.sandboxes;
    fault.value = "";
  } catch (error) {
    if (!look.isOld()) fault.value = errorText(error);
    return isFinal(error) ? undefined : null;
  }
}

function next() {
  wanted = agents.value.length + 200;
  return load();
}

const soon = collect(load, 200);

function History({ path }) {
  const [events, setEvents] = useState(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    get(`${path}/events?limit=30`).then((page) => setEvents(page.events), (error) => setProblem(readText(error)));
  }, []);
  if (problem) return html`<p class="fault-text" role="alert">${problem}</p>`;
  if (!events) return html`<p class="quiet">Reading.</p>`;
  if (events.length === 0) return html`<p class="quiet">Nothing has happened to it yet.</p>`;
  return html`<ol class="plain-events small">${events.map((event) => html`<li key=${event.seq}>
    <span class="quiet">${dateTime(event.created_at)}</span> ${event.event_type}
    ${event.sandbox_id && html` <a href=${`/sandboxes/${event.sandbox_id}#seq-${event.seq}`}>${event.sandbox_id}</a>`}</li>`)}</ol>`;
}

/** Ends a suspension. An agent without a live run is idle then, as after `sluice agent resume`. */
async function resume(path, generation, hasRun) {
  const connected = await post(`${path}/transition`, { target_state: "CONNECTED", expected_generation: generation });
  if (hasRun) return;
  try {
    await post(`${path}/transition`, { target_state: "IDLE", expected_generation: connected.generation });
  } catch {
    // The suspension has ended: either a run has taken the agent meanwhile, or the daemon makes it idle.
  }
}

function Suspension({ agent, path, hasRun }) {
  const [busy, setBusy] = useState(false);
  const isSuspended = agent.state === "SUSPENDED";
  const move = async () => {
    if (!isSuspended && !confirm(`Suspend ${agent.agent_id}? It gets no new runs until it is resumed.`)) return;
    setBusy(true);
    refusal.value = "";
    try {
      if (isSuspended) await resume(path, agent.generation, hasRun);
      else await post(`${path}/transition`, { target_state: "SUSPENDED", expected_generation: agent.generation });
    } catch (error) {
      refusal.value = changeText(error);
    }
    await load();
    setBusy(false);
  };
  return html`<button disabled=${busy} class=${isSuspended ? "" : "danger"} onClick=${move}
    aria-label=${`${isSuspended ? "Resume" : "Suspend"} ${agent.agent_id}`}>${isSuspended ? "Resume" : "Suspend"}</button>`;
}

function Agent({ agent }) {
  const [open, setOpen] = useState(false);
  const path = `/api/v1/agents/${encodeURIComponent(`${agent.owner_id}/${agent.agent_id}`)}`;
  const own = runs.value.filter((run) => run.agent_id === agent.agent_id && run.owner_id === agent.owner_id);
  now.value;
  return html`<tr><td class="main-cell"><strong>${agent.agent_id}</strong> <span class="small quiet">
        ${[agent.name, agent.owner_id].filter(Boolean).join(" · ")}</span>
      <details onToggle=${({ currentTarget }) => setOpen(currentTarget.open)}><summary class="small">History</summary>
      ${open && html`<${History} path=${path} />`}</details></td>
    <td data-label="State"><span class="badge ${TONES[agent.state]}">${WORDS[agent.state] ?? agent.state}</span>
      ${agent.last_heartbeat && html` <span class="small quiet">heard ${age(agent.last_heartbeat)} ago</span>`}</td>
    <td data-label="Generation">${count(agent.generation)}</td>
    <td data-label="Live runs">${own.length === 0 ? html`<span class="quiet">none</span>` : own.map((run) => html`<div key=${run.sandbox_id}>
      <a href=${`/sandboxes/${run.sandbox_id}`}>${run.name ?? run.sandbox_id}</a> <${Badge} run=${run} /></div>`)}</td>
    <td data-label="Account">${agent.billing_account_id}</td>
    <td>${agent.owner_id === owner.value && html`<${Suspension} agent=${agent} path=${path} hasRun=${own.length > 0} />`}</td></tr>`;
}

function Page() {
  const found = agents.value;
  return html`<div class="page">
    <div class="row"><h1 class="grow">Agents</h1><${Live} state=${stream.state.value} /></div>
    <${Refusal} of=${refusal} />
    ${fault.value && html`<${Fault} text=${fault.value} retry=${load} />`}
    ${found?.length === 0 && html`<${Empty} title="No agent is registered"><p>A registered agent has an account, a history, and a
      state that can be suspended. Runs without one get an agent of their own.</p>
      <${Command} words=${["sluice", "agent", "add", "reviewer"]} /><//>`}
    ${found?.length > 0 && html`<table class="list"><thead><tr><th scope="col">Agent</th><th scope="col">State</th><th scope="col">Generation</th>
      <th scope="col">Live runs</th><th scope="col">Account</th><th scope="col">Change</th></tr></thead>
      <tbody>${found.map((agent) => html`<${Agent} key=${`${agent.owner_id}/${agent.agent_id}`} agent=${agent} />`)}</tbody></table>`}
    ${more.value && html`<p><button onClick=${next}>Show more agents</button></p>`}
  </div>`;
}

export async function start(show) {
  const types = "agent.started,agent.completed,agent.failed,sandbox.*,run.state_changed,approval.*,question.*";
  stream = follow(`/api/v1/events/stream?types=${types}`, null, { snapshot: soon, event: soon, gap: soon });
  await load();
  show(html`<${Page} />`);
}
