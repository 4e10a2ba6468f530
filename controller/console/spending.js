// Costs and budgets: by day, account, model and run, and unsettled costs.

import { signal } from "@preact/signals";
import { errorText, get } from "./api.js";
import { Chart } from "./chart.js";
import { count, dollars } from "./format.js";
import { Command, Empty, Fault, html, Live } from "./parts.js";
import { collect, follow } from "./stream.js";

const GROUPS = [["account", "Account"], ["model", "Model"], ["day", "Day"], ["run", "Run"]];
const SPANS = [["7", "7 days"], ["30", "30 days"], ["", "All"]];
/** Rows of a table. */
const SHOWN = 200;
const DAY = 86_400_000;

/** Accounts of this session; none for all. */
const accounts = signal(null);
const account = signal("");
const by = signal("account");
const span = signal("30");
const usage = signal(null);
const days = signal([]);
const budgets = signal([]);
const fault = signal("");
let stream;
let asked = 0;

/** Returns the known cost of a sum; null if none of it is known. */
const cost = (total) => (total.cost_usd === null || total.cost_usd === undefined ? null : Number(total.cost_usd));

function path(group) {
  const words = new URLSearchParams({ by: group });
  if (account.value) words.set("account", account.value);
  if (span.value) words.set("since", new Date(Date.now() - Number(span.value) * DAY).toISOString().slice(0, 10));
  return `/api/v1/usage?${words}`;
}

/** A session with several accounts looks at one after the other. */
async function loadAccounts() {
  const { role, accounts: own } = await get("/api/v1/session");
  accounts.value = role === "admin" ? [] : own;
  account.value = accounts.value[0] ?? "";
}

async function load() {
  asked += 1;
  const mine = asked;
  try {
    if (accounts.value === null) await loadAccounts();
    const [table, byDay, held] = await Promise.all([get(path(by.value)), get(path("day")), get("/api/v1/budgets")]);
    if (mine !== asked) return;
    usage.value = table;
    days.value = byDay.groups;
    budgets.value = held.budgets;
    fault.value = "";
  } catch (error) {
    if (mine === asked) fault.value = errorText(error);
  }
}

const soon = collect(load, 1000);

function choose(target, value) {
  target.value = value;
  load();
}

const Choice = ({ label, options, chosen }) => html`<div class="filters" role="group" aria-label=${label}>${options.map(([value, words]) =>
  html`<button key=${value} aria-pressed=${chosen.value === value} onClick=${() => choose(chosen, value)}>${words}</button>`)}</div>`;

function Budget({ budget }) {
  const granted = Number(budget.granted_usd);
  const taken = Number(budget.spent_usd) + Number(budget.held_usd);
  return html`<tr><td class="main-cell"><strong>${budget.account}</strong></td><td data-label="Granted">${dollars(granted)}</td>
    <td data-label="Spent">${dollars(budget.spent_usd)}</td>
    <td data-label="Held">${dollars(budget.held_usd)}${budget.holds.length > 0 && html`<details class="small"><summary>for ${count(budget.holds.length)} runs</summary>
      <ul>${budget.holds.map((hold) => html`<li key=${hold.run}><a href=${`/sandboxes/${hold.run.split(".")[0]}`}>${hold.run}</a> ${dollars(hold.held_usd)}:
        ${" "}${hold.reason}</li>`)}</ul></details>`}</td>
    <td data-label="Left">${dollars(budget.left_usd)} <progress max=${granted || 1} value=${Math.min(taken, granted)} aria-label=${`Taken of the budget of ${budget.account}`}></progress></td></tr>`;
}

const Budgets = () => html`<section class="stack" aria-labelledby="budgets"><h2 id="budgets">Budgets</h2>
  ${budgets.value.length === 0 ? html`<p>No account has a budget: none has a limit. An admin sets one in a terminal:</p>
    <${Command} words=${["sluice", "budget", "set", "default", "20"]} />`
  : html`<table class="list"><thead><tr><th scope="col">Account</th><th scope="col">Granted</th><th scope="col">Spent</th><th scope="col">Held</th>
    <th scope="col">Left</th></tr></thead><tbody>${budgets.value.map((budget) => html`<${Budget} key=${budget.account} budget=${budget} />`)}</tbody></table>`}</section>`;

function Days() {
  const found = days.value.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  if (found.length < 2) return null;
  const times = found.map((day) => Date.parse(day.name) / 1000);
  const values = found.map((day) => cost(day) ?? 0);
  const sum = values.reduce((total, value) => total + value, 0);
  return html`<${Chart} key=${`${span.value} ${found.length}`} times=${times} values=${values} label="Cost by day" format=${dollars} bars=${true}
    summary=${`${dollars(sum)} on ${found.length} days, at most ${dollars(Math.max(...values))} on one.`} />`;
}

function Name({ name }) {
  return by.value === "run" ? html`<a href=${`/sandboxes/${name.split(".")[0]}`}>${name}</a>` : html`<strong>${name || "none"}</strong>`;
}

const Sum = ({ group, head }) => html`<tr><td class="main-cell">${head ?? html`<${Name} name=${group.name} />`}</td>
  <td data-label="Calls">${count(group.calls)}</td><td data-label="Tokens in">${count(group.usage?.input ?? 0)}</td>
  <td data-label="Tokens out">${count(group.usage?.output ?? 0)}</td>
  <td data-label="Cost">${cost(group) === null ? html`<span class="quiet">not known</span>` : dollars(cost(group))}</td>
  <td data-label="Unknown">${group.open > 0 ? html`${count(group.open)} calls` : ""}</td></tr>`;

function Usage() {
  const { groups, total } = usage.value;
  if (groups.length === 0) {
    return html`<${Empty} title="No call has been paid for in this time"><p>Costs are here as soon as a run has ended.</p><//>`;
  }
  const sorted = groups.toSorted((a, b) => (by.value === "day" ? (a.name < b.name ? 1 : -1) : (cost(b) ?? 0) - (cost(a) ?? 0)));
  return html`<table class="list"><thead><tr><th scope="col">${GROUPS.find(([value]) => value === by.value)[1]}</th><th scope="col">Calls</th>
    <th scope="col">Tokens in</th><th scope="col">Tokens out</th><th scope="col">Cost</th><th scope="col">Of unknown cost</th></tr></thead>
    <tbody>${sorted.slice(0, SHOWN).map((group) => html`<${Sum} key=${group.name} group=${group} />`)}</tbody>
    <tfoot><${Sum} group=${total} head=${html`<strong>All</strong>`} /></tfoot></table>
    ${sorted.length > SHOWN && html`<p class="small quiet">${SHOWN} of ${count(sorted.length)} rows. <code>sluice usage</code> prints all.</p>`}`;
}

function Unsettled() {
  const open = usage.value?.unsettled_runs ?? [];
  return html`<section class="stack" aria-labelledby="unsettled"><h2 id="unsettled">Not settled</h2>
    ${open.length === 0 ? html`<p>Each run has its final bill.</p>` : html`<p>The bill of ${count(open.length)} runs is not final:</p>
      <ul class="plain-events">${open.slice(0, SHOWN).map(({ run, reason }) => html`<li key=${run}><a href=${`/sandboxes/${run.split(".")[0]}`}>${run}</a>
        ${" "}<span class="quiet">${reason}</span></li>`)}</ul>
      <p class="small">Costs that LiteLLM knows are read from its spend log:</p><${Command} words=${["sluice", "reconcile"]} />`}</section>`;
}

const Page = () => html`<div class="page">
  <div class="row"><h1 class="grow">Spending</h1><${Live} state=${stream.state.value} /></div>
  ${fault.value && html`<${Fault} text=${fault.value} retry=${load} />`}
  <${Budgets} />
  <section class="stack" aria-labelledby="usage"><div class="row wrap"><h2 id="usage" class="grow">Usage</h2>
    ${accounts.value?.length > 1 && html`<${Choice} label="Account" options=${accounts.value.map((name) => [name, name])} chosen=${account} />`}
    <${Choice} label="Time" options=${SPANS} chosen=${span} /><${Choice} label="Grouping" options=${GROUPS} chosen=${by} /></div>
    <${Days} />${usage.value && html`<${Usage} />`}</section>
  <${Unsettled} />
</div>`;

export async function start(show) {
  stream = follow("/api/v1/events/stream?types=llm.call,run.closed,run.state_changed,budget.*", null, { snapshot: soon, event: soon, gap: soon });
  await load();
  show(html`<${Page} />`);
}
