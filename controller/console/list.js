// The list of runs, kept up to date by the event stream.

import { signal } from "@preact/signals";
import { errorText, get } from "./api.js";
import { age, callCost, count, dollars } from "./format.js";
import { Badge, Command, Empty, Fault, html, Live } from "./parts.js";
import { collect, follow } from "./stream.js";

/** Runs whose costs are read. */
const COSTS_MAX = 30;
/** Filters by the states that they select; none for that of runs which wait for a person. */
const FILTERS = [
  ["", "All", ["PENDING", "CREATING", "RUNNING", "COMPLETING", "COMPLETED", "FAILED"]],
  ["PENDING", "Queued", ["PENDING"]],
  ["CREATING,RUNNING,COMPLETING", "Running", ["CREATING", "RUNNING", "COMPLETING"]],
  ["approval", "Awaiting approval", null],
  ["COMPLETED", "Completed", ["COMPLETED"]],
  ["FAILED", "Failed", ["FAILED"]],
];

const query = signal(Object.fromEntries(new URLSearchParams(location.search)));
const found = signal(null);
const costs = signal({});
const fault = signal("");
const read = new Set();
let stream;
let asked = 0;

function path(cursor) {
  const words = new URLSearchParams({ limit: "100" });
  for (const name of ["q", "state", "waiting_for"]) if (query.value[name]) words.set(name, query.value[name]);
  if (cursor) words.set("cursor", cursor);
  return `/api/v1/sandboxes?${words}`;
}

async function load() {
  asked += 1;
  const mine = asked;
  try {
    const page = await get(path());
    if (mine !== asked) return;
    found.value = page;
    fault.value = "";
    await loadCosts(page.sandboxes);
  } catch (error) {
    if (mine === asked) fault.value = errorText(error);
  }
}

async function more() {
  try {
    const next = await get(path(found.value.next_cursor));
    found.value = { ...next, sandboxes: [...found.value.sandboxes, ...next.sandboxes] };
  } catch (error) {
    fault.value = errorText(error);
  }
}

/** Adds calls of a run. A call that is read and also comes by the stream counts once. */
function addCalls(run, events) {
  const calls = new Map(costs.value[run]);
  for (const { event_data: data } of events) calls.set(data.call_id, callCost(data));
  costs.value = { ...costs.value, [run]: calls };
}

/** Reads the calls of the newest runs, once each. What follows comes by the stream. */
async function loadCosts(runs) {
  for (const { sandbox_id: run } of runs.slice(0, COSTS_MAX)) {
    if (read.has(run)) continue;
    read.add(run);
    const { events } = await get(`/api/v1/sandboxes/${run}/events?event_type=llm.call&limit=500`);
    addCalls(run, events);
  }
}

const soon = collect(load, 150);

function note(event) {
  if (event.event_type !== "llm.call") return soon();
  addCalls(event.sandbox_id, [event]);
}

function filter(change) {
  query.value = { ...query.value, ...change };
  const words = new URLSearchParams(Object.entries(query.value).filter(([, value]) => value));
  history.replaceState(null, "", words.size ? `?${words}` : location.pathname);
  soon();
}

function cost(run) {
  const known = [...(costs.value[run.sandbox_id]?.values() ?? [])].filter((value) => value !== null);
  return known.length > 0 ? known.reduce((sum, value) => sum + value, 0) : undefined;
}

function Cost({ run }) {
  const sum = cost(run);
  const cap = run.max_cost_usd === null ? null : Number(run.max_cost_usd);
  if (sum === undefined && cap === null) return html`<span class="quiet">no cost yet</span>`;
  return html`<span>${dollars(sum ?? 0)}${cap !== null && html` <span class="quiet">of ${dollars(cap)}</span>
    <progress max=${cap} value=${Math.min(sum ?? 0, cap)} aria-label="Cost against the cap"></progress>`}</span>`;
}

function Row({ run }) {
  const last = run.ended_at ?? run.last_work_at ?? run.created_at;
  const name = run.name ?? run.sandbox_id;
  return html`<tr>
    <td class="main-cell"><a href=${`/sandboxes/${run.sandbox_id}`}>${name}</a>
      ${run.name && html`<span class="id">${run.sandbox_id}</span>`}</td>
    <td data-label="State"><${Badge} run=${run} />${run.failure_code && html`<span class="id">${run.failure_code}</span>`}</td>
    <td data-label="Agent">${run.agent_id === run.sandbox_id ? html`<span class="quiet">its own</span>` : run.agent_id}</td>
    <td data-label="Age"><time datetime=${run.created_at} title=${run.created_at}>${age(run.created_at)}</time></td>
    <td data-label="Last activity"><time datetime=${last} title=${last}>${age(last)} ago</time></td>
    <td data-label="Cost"><${Cost} run=${run} /></td>
  </tr>`;
}

function Filters({ page }) {
  const { counts = {}, awaiting_approval: awaiting } = page ?? {};
  const chosen = query.value.waiting_for ?? query.value.state ?? "";
  return html`<nav class="filters" aria-label="States">${FILTERS.map(([value, words, states]) => {
    const number = states ? states.reduce((sum, state) => sum + (counts[state] ?? 0), 0) : awaiting;
    const selection = states ? { state: value, waiting_for: undefined } : { state: undefined, waiting_for: value };
    return html`<button key=${value} aria-pressed=${chosen === value} onClick=${() => filter(selection)}>
      ${words} <span class="count">${count(number)}</span></button>`;
  })}</nav>`;
}

function Nothing() {
  if (query.value.q || query.value.state || query.value.waiting_for) {
    return html`<${Empty} title="No sandbox matches"><button onClick=${() => filter({ q: "", state: "", waiting_for: undefined })}>Show all</button><//>`;
  }
  return html`<${Empty} title="No sandboxes yet"><p><a href="/sandboxes/new">Create one here</a>, or on the host of the daemon:</p>
    <${Command} words=${["sluice", "run", "-d", "--name", "first", "--model", "MODEL", "--", "sh", "-c", "date"]} /><//>`;
}

function Page() {
  const page = found.value;
  return html`<div class="page">
    <div class="row"><h1 class="grow">Sandboxes</h1><${Live} state=${stream.state.value} />
      <a class="button primary" href="/sandboxes/new">New sandbox</a></div>
    <div class="row wrap toolbar">
      <label class="grow"><span class="visually-hidden">Search by name, id, agent, project or account</span>
        <input type="search" id="search" placeholder="Search by name, id, agent" maxlength="200" value=${query.value.q ?? ""}
          onInput=${(event) => filter({ q: event.currentTarget.value })} /></label>
      <${Filters} page=${page} />
    </div>
    ${fault.value && html`<${Fault} text=${fault.value} retry=${load} />`}
    ${page?.sandboxes.length === 0 && html`<${Nothing} />`}
    ${page?.sandboxes.length > 0 && html`<table class="runs"><thead><tr><th scope="col">Sandbox</th><th scope="col">State</th>
      <th scope="col">Agent</th><th scope="col">Age</th><th scope="col">Last activity</th><th scope="col">Cost</th></tr></thead>
      <tbody>${page.sandboxes.map((run) => html`<${Row} key=${run.sandbox_id} run=${run} />`)}</tbody></table>`}
    ${page?.has_more && html`<p><button onClick=${more}>Show older sandboxes</button></p>`}
  </div>`;
}

document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.closest?.("input, textarea") && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    document.getElementById("search")?.focus();
  }
});

export async function start(show) {
  const types = "sandbox.*,run.state_changed,llm.call,approval.*,question.*";
  stream = follow(`/api/v1/events/stream?types=${types}`, null, { snapshot: soon, event: note, gap: soon });
  await load();
  show(html`<${Page} />`);
}
