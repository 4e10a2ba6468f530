// The host: capacity, runs, engine, disk, versions and loops. For admins; others see the page that the daemon has rendered.

import { signal } from "@preact/signals";
import { ApiError, errorText, get } from "./api.js";
import { age, bytes, count, dateTime, duration, now } from "./format.js";
import { Command, Fault, html, Live, STATE_WORDS } from "./parts.js";
import { collect, follow } from "./stream.js";

/** Milliseconds between two looks at figures that no event reports. */
const EVERY = 5000;

const host = signal(null);
const fault = signal("");
let stream;

async function load() {
  try {
    host.value = await get("/api/v1/monitoring/status");
    fault.value = "";
  } catch (error) {
    if (error instanceof ApiError && error.status === 403) throw error;
    fault.value = errorText(error);
  }
}

const soon = collect(load, 300);

const Fact = ({ name, children }) => html`<div><dt>${name}</dt><dd>${children}</dd></div>`;

function Bar({ value, max, label }) {
  return html`<progress max=${max || 1} value=${Math.min(value, max)} aria-label=${label}></progress>`;
}

function Capacity() {
  const { limits, runs, queue, sidecars } = host.value;
  return html`<section class="panel stack" aria-labelledby="capacity"><h2 id="capacity">Capacity</h2><dl class="facts">
    ${limits === null ? html`<${Fact} name="Sandboxes">none are created: <code>sandbox_enabled</code> is off<//>`
    : html`<${Fact} name="At work">${count(limits.active)} of ${count(limits.host)} <${Bar} value=${limits.active} max=${limits.host} label="Runs at work" /><//>
      <${Fact} name="For an owner">${count(limits.owner)} at work, ${count(limits.queued_per_owner)} in the queue<//>
      <${Fact} name="For a project">${count(limits.project)} at work<//>`}
    <${Fact} name="In the queue">${count(queue.length)}${queue.length > 0 && `, the first for ${duration(queue.oldest_s * 1000)}`}<//>
    <${Fact} name="Sidecars">${count(sidecars)}<//>
  </dl><h3>Runs</h3><dl class="facts">
    ${Object.entries(STATE_WORDS).map(([state, words]) => html`<${Fact} key=${state} name=${words}>${count(runs[state])}<//>`)}</dl></section>`;
}

/** A part that answers or does not, with the time of the last question. */
function Probe({ state }) {
  if (state === null) return "not asked yet";
  return html`<span class="badge ${state.reachable ? "green" : "red"}">${state.reachable ? "Answers" : "Does not answer"}</span>
    ${" "}<span class="small quiet">asked ${age(state.asked_at)} ago</span>`;
}

function Machine() {
  const { engine, upstream, disk, version, uptime_s: uptime, events, receipts } = host.value;
  return html`<section class="panel stack" aria-labelledby="machine"><h2 id="machine">Daemon and engine</h2><dl class="facts">
    <${Fact} name="Version of Sluice">${version}<//><${Fact} name="Runs for">${duration(uptime * 1000)}<//>
    <${Fact} name="Engine"><${Probe} state=${engine} /><//>
    ${engine?.version && html`<${Fact} name="Version of the engine">${engine.version}<//>`}
    <${Fact} name="Upstream"><${Probe} state=${upstream} />
      ${upstream?.reachable === false && html`<span class="small fault-text"> Calls fail until it answers.</span>`}<//>
    ${disk && html`<${Fact} name="Disk of the state">${bytes(disk.free_bytes)} free of ${bytes(disk.total_bytes)}
      ${" "}<${Bar} value=${disk.total_bytes - disk.free_bytes} max=${disk.total_bytes} label="Disk in use" /><//>`}
    <${Fact} name="Events">${count(events.newest)}, ${count(events.streams)} streams, ${events.lag_s.toFixed(1)} s behind<//>
    <${Fact} name="Receipts without a cost">${count(receipts.open)}${receipts.open > 0 && `, the first since ${duration(receipts.oldest_s * 1000)}`}<//></dl></section>`;
}

function Loops() {
  return html`<section class="stack" aria-labelledby="loops"><h2 id="loops">What the daemon does by itself</h2>
    <table class="list"><thead><tr><th scope="col">Loop</th><th scope="col">Last pass</th><th scope="col">State</th><th scope="col">Failed passes</th></tr></thead>
    <tbody>${Object.entries(host.value.loops).map(([name, loop]) => html`<tr key=${name}><td class="main-cell"><strong>${name}</strong></td>
      <td data-label="Last pass">${dateTime(loop.last_run_at) || "not yet"}</td>
      <td data-label="State"><span class="badge ${loop.is_failing ? "red" : "green"}">${loop.is_failing ? "Fails" : "Works"}</span></td>
      <td data-label="Failed passes">${count(loop.faults)}${loop.last_fault_at && html` <span class="quiet">last ${dateTime(loop.last_fault_at)}</span>`}</td></tr>`)}
    </tbody></table></section>`;
}

/** The checks before the start. Their details name places of the host, and stay in the terminal. */
function Checks() {
  const { checks } = host.value;
  const words = { pass: ["Passed", "green"], warn: ["Warning", "yellow"], fail: ["Failed", "red"], skipped: ["Skipped", "yellow"] };
  return html`<ul class="checks">${checks.map(({ name, status }) => {
    const [word, tone] = words[status] ?? [status, "grey"];
    return html`<li key=${name}><span class="badge ${tone}">${word}</span><span>${name}</span></li>`;
  })}</ul>`;
}

function Page() {
  now.value;
  const { status, not_ready: missing } = host.value ?? {};
  return html`<div class="page">
    <div class="row"><h1 class="grow">Host</h1>
      ${host.value && html`<span class="badge ${status === "ready" ? "green" : "red"}">${status === "ready" ? "Ready" : "Not ready"}</span>`}
      <${Live} state=${stream.state.value} /></div>
    ${fault.value && html`<${Fault} text=${fault.value} retry=${load} />`}
    ${missing?.length > 0 && html`<p class="fault-text">Not ready: ${missing.join(", ")}. The log of the daemon says why.</p>`}
    ${host.value && html`<div class="pair"><${Capacity} /><${Machine} /></div>`}
    <section class="panel stack" aria-labelledby="checks"><h2 id="checks">Checks</h2>
      ${host.value?.checks.length > 0 && html`<p>Before the daemon started:</p><${Checks} />`}
      <p>To check again, with the details of each check and a remedy for each that fails, on the host:</p>
      <${Command} words=${["sluice", "preflight"]} /></section>
    ${host.value && html`<${Loops} />`}
  </div>`;
}

export async function start(show) {
  try {
    await load();
  } catch {
    // The daemon has rendered what this session may see.
    return;
  }
  stream = follow("/api/v1/events/stream?types=run.state_changed,sandbox.*", null, { snapshot: soon, event: soon, gap: soon });
  setInterval(() => {
    if (!document.hidden) soon();
  }, EVERY);
  show(html`<${Page} />`);
}
