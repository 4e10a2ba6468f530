// The facts about a run, and the commands for a terminal.

import { useEffect, useState } from "preact/hooks";
import { get, readText } from "./api.js";
import { bytes, count, dateTime, dollars, duration, now } from "./format.js";
import { Commands, Foreign, FromAgent, html } from "./parts.js";

/** Commands for a terminal. They are put into quotes by the daemon. */
function Terminal({ base, run }) {
  const [commands, setCommands] = useState([]);
  const [fault, setFault] = useState("");
  useEffect(() => {
    get(`${base}/commands`).then((found) => setCommands(found.commands), (error) => setFault(readText(error)));
  }, [run.state]);
  return html`<details><summary>In a terminal</summary>${fault && html`<p class="fault-text" role="alert">${fault}</p>`}
    <div class="stack"><${Commands} commands=${commands} /></div></details>`;
}

/** Receipts that are shown. */
const RECEIPTS = 100;

/** The bill of each call. It is written at the end of an attempt. */
function Receipts({ base, run }) {
  const [page, setPage] = useState(null);
  const [fault, setFault] = useState("");
  const [open, setOpen] = useState(false);
  useEffect(() => {
    if (open) get(`${base}/receipts?limit=${RECEIPTS}`).then(setPage, (error) => setFault(readText(error)));
  }, [open, run.state]);
  return html`<details onToggle=${({ currentTarget }) => setOpen(currentTarget.open)}><summary>Receipts</summary>
    ${fault && html`<p class="fault-text" role="alert">${fault}</p>`}
    ${page?.receipts.length === 0 && html`<p class="quiet">None yet: they are written at the end of an attempt.</p>`}
    ${page?.receipts.length > 0 && html`<table><thead><tr><th scope="col">Call</th><th scope="col">Model</th><th scope="col">Result</th>
      <th scope="col">Tokens</th><th scope="col">Cost</th></tr></thead><tbody>${page.receipts.map((receipt) => html`<tr key=${receipt.source_reference}>
      <td>${count(receipt.call)}</td><td>${receipt.model_served ?? receipt.model}</td><td>${receipt.result ?? receipt.status}</td>
      <td>${receipt.usage ? count(receipt.usage.total) : ""}</td>
      <td>${receipt.cost_usd === null ? html`<span class="quiet">${receipt.null_reason ?? "unknown"}</span>` : html`${dollars(receipt.cost_usd)}
        ${" "}<span class="quiet">${receipt.price_source}</span>`}</td></tr>`)}</tbody></table>`}
    ${page?.has_more && html`<p class="small quiet">The first ${RECEIPTS}. <code>sluice receipts</code> prints all.</p>`}</details>`;
}

/** Returns how long each part of the life of a run took, in words. */
function timings({ created_at: created, claimed_at: claimed, started_at: started, ended_at: ended }) {
  const parts = [["Time in the queue", created, claimed], ["Time of its creation", claimed, started], ["Time at work", started, ended]];
  return parts.filter(([, from]) => from).map(([words, from, to]) =>
    [words, to || !ended ? duration((to ? Date.parse(to) : now.value) - Date.parse(from)) : null]);
}

export function Details({ base, run }) {
  const limits = Object.entries(run.limits).filter(([, value]) => value !== null).map(([name, value]) =>
    `${name} ${name === "memory" ? bytes(Number(value)) : value}`);
  const labels = Object.entries(run.labels).map(([name, value]) => `${name}=${value}`);
  const rows = [
    ["Id", run.run_id], ["Attempt", run.attempt + 1], ["Owner", run.owner_id], ["Agent", run.agent_id], ["Account", run.billing_account_id],
    ["Project", run.project], ["Branch", run.branch], ["Program", run.graph_id], ["Models", run.models.join(", ")], ["Image", run.image],
    ["Environment", run.env_names.join(", ")], ["Limits", limits.join(", ")], ["At a cap", run.on_cap], ["Labels", labels.join(", ")],
    ["Depends on", run.depends_on.join(", ")], ["Created", dateTime(run.created_at)], ["Started", dateTime(run.started_at)],
    ["Ended", dateTime(run.ended_at)], ["Ends at the latest", dateTime(run.deadline_at)], ["Last activity", dateTime(run.last_work_at)],
    ...timings(run), ["Heartbeat", run.heartbeat_status], ["Exit code", run.exit_code],
  ].filter(([, value]) => value !== null && value !== undefined && value !== "");
  return html`<div><dl class="details">${rows.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${run.result && html`<${FromAgent} label="from the agent: its result"><${Foreign} text=${run.result} /><//>`}
    <${Receipts} base=${base} run=${run} /><${Terminal} base=${base} run=${run} /></div>`;
}
