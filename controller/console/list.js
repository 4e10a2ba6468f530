// The list of runs, kept up to date by the event stream.

import { signal } from "@preact/signals";
import { changeText, errorText, get, isFinal, send } from "./api.js";
import { age, count, dollars, isLive } from "./format.js";
import { Badge, Command, Empty, Fault, html, Live, Refusal } from "./parts.js";
import { collect, follow, looks } from "./stream.js";

/** Rows that the page begins with, and that it adds. */
const PAGE = 100;
/** Rows of one request. */
const REQUEST_MAX = 500;
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
/** Why the list could not be read: gone once it is read. */
const fault = signal("");
/** Why the last action was refused. */
const refusal = signal("");
let stream;
const begin = looks();
/** Rows that the reader wants to see. Each look reads all of them. */
let wanted = PAGE;

function path(limit, cursor) {
  const words = new URLSearchParams({ limit: String(Math.min(limit, REQUEST_MAX)) });
  for (const name of ["q", "state", "waiting_for"]) if (query.value[name]) words.set(name, query.value[name]);
  if (cursor) words.set("cursor", cursor);
  return `/api/v1/sandboxes?${words}`;
}

async function load() {
  const look = begin();
  const asked = query.value;
  try {
    let page = await get(path(wanted));
    const { counts, awaiting_approval, awaiting_person } = page;
    const sandboxes = [...page.sandboxes];
    while (page.has_more && sandboxes.length < wanted && asked === query.value) {
      page = await get(path(wanted - sandboxes.length, page.next_cursor));
      sandboxes.push(...page.sandboxes);
    }
    if (asked !== query.value || !look.take()) return;
    found.value = { ...page, sandboxes, counts, awaiting_approval, awaiting_person };
    fault.value = "";
  } catch (error) {
    if (asked === query.value && !look.isOld()) fault.value = errorText(error);
    return isFinal(error) ? undefined : null;
  }
}

function more() {
  wanted = found.value.sandboxes.length + PAGE;
  return load();
}

const soon = collect(load, 150);
/** Calls end often, and change a sum alone. */
const later = collect(load, 1000);

const note = (event) => (event.event_type === "llm.call" ? later() : soon());

function filter(change) {
  query.value = { ...query.value, ...change };
  wanted = PAGE;
  const words = new URLSearchParams(Object.entries(query.value).filter(([, value]) => value));
  history.replaceState(null, "", words.size ? `?${words}` : location.pathname);
  soon();
}

function Cost({ run }) {
  const sum = run.cost_usd === null ? null : Number(run.cost_usd);
  const cap = run.max_cost_usd === null ? null : Number(run.max_cost_usd);
  const unknown = run.unknown_costs > 0 && html` <span class="small quiet">${count(run.unknown_costs)} ${run.unknown_costs === 1 ? "call" : "calls"} of unknown cost</span>`;
  if (sum === null && cap === null) return unknown || html`<span class="quiet">no cost yet</span>`;
  return html`<span>${dollars(sum ?? 0)}${cap !== null && html` <span class="quiet">of ${dollars(cap)}</span>
    <progress max=${cap} value=${Math.min(sum ?? 0, cap)} aria-label="Cost against the cap"></progress>`}${unknown}</span>`;
}

function Cancel({ run }) {
  if (!isLive(run)) return null;
  const name = run.name ?? run.sandbox_id;
  const cancel = async () => {
    if (!confirm(`Cancel ${name}? Its sandbox is removed, and its record stays.`)) return;
    refusal.value = "";
    try {
      await send("DELETE", `/api/v1/sandboxes/${run.sandbox_id}`);
    } catch (error) {
      refusal.value = changeText(error);
    }
    soon();
  };
  return html`<button class="link danger" aria-label=${`Cancel ${name}`} onClick=${cancel}>Cancel</button>`;
}

/** What a run in the queue waits for, if it is not its turn. */
function Wait({ run }) {
  if (!["retry", "dependencies"].includes(run.waiting_for)) return null;
  return html`<span class="id">waits for ${run.waiting_for}${run.reason && `: ${run.reason}`}</span>`;
}

function Row({ run }) {
  const last = run.ended_at ?? run.last_work_at ?? run.created_at;
  const name = run.name ?? run.sandbox_id;
  return html`<tr>
    <td class="main-cell"><a href=${`/sandboxes/${run.sandbox_id}`}>${name}</a>
      ${run.name && html`<span class="id">${run.sandbox_id}</span>`}</td>
    <td data-label="State"><${Badge} run=${run} /><${Wait} run=${run} />${run.failure_code && html`<span class="id">${run.failure_code}</span>`}</td>
    <td data-label="Agent">${run.agent_id === run.sandbox_id ? html`<span class="quiet">its own</span>` : run.agent_id}</td>
    <td data-label="Age"><time datetime=${run.created_at} title=${run.created_at}>${age(run.created_at)}</time></td>
    <td data-label="Last activity"><time datetime=${last} title=${last}>${age(last)} ago</time></td>
    <td data-label="Cost"><${Cost} run=${run} /></td>
    <td><${Cancel} run=${run} /></td>
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
      <label class="grow"><span class="visually-hidden">Search by name, id, agent, project, account or label</span>
        <input type="search" id="search" placeholder="Search by name, id, agent, label" maxlength="200" value=${query.value.q ?? ""}
          onInput=${(event) => filter({ q: event.currentTarget.value })} /></label>
      <${Filters} page=${page} />
    </div>
    <${Refusal} of=${refusal} />
    ${fault.value && html`<${Fault} text=${fault.value} retry=${load} />`}
    ${page?.sandboxes.length === 0 && html`<${Nothing} />`}
    ${page?.sandboxes.length > 0 && html`<table class="runs"><thead><tr><th scope="col">Sandbox</th><th scope="col">State</th>
      <th scope="col">Agent</th><th scope="col">Age</th><th scope="col">Last activity</th><th scope="col">Cost</th><th scope="col">Change</th></tr></thead>
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
