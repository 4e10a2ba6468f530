// The facts about a run, and the commands for a terminal.

import { useEffect, useState } from "preact/hooks";
import { errorText, get } from "./api.js";
import { bytes, dateTime } from "./format.js";
import { Commands, Foreign, FromAgent, html } from "./parts.js";

/** Commands for a terminal. They are put into quotes by the daemon. */
function Terminal({ base, run }) {
  const [commands, setCommands] = useState([]);
  const [fault, setFault] = useState("");
  useEffect(() => {
    get(`${base}/commands`).then((found) => setCommands(found.commands), (error) => setFault(errorText(error)));
  }, [run.state]);
  return html`<details><summary>In a terminal</summary>${fault && html`<p class="fault-text">${fault}</p>`}
    <div class="stack"><${Commands} commands=${commands} /></div></details>`;
}

export function Details({ base, run }) {
  const limits = Object.entries(run.limits).filter(([, value]) => value !== null).map(([name, value]) =>
    `${name} ${name === "memory" ? bytes(Number(value)) : value}`);
  const labels = Object.entries(run.labels).map(([name, value]) => `${name}=${value}`);
  const rows = [
    ["Id", run.run_id], ["Attempt", run.attempt + 1], ["Owner", run.owner_id], ["Agent", run.agent_id], ["Account", run.billing_account_id],
    ["Project", run.project], ["Program", run.graph_id], ["Models", run.models.join(", ")], ["Image", run.image],
    ["Environment", run.env_names.join(", ")], ["Limits", limits.join(", ")], ["At a cap", run.on_cap], ["Labels", labels.join(", ")],
    ["Depends on", run.depends_on.join(", ")], ["Created", dateTime(run.created_at)], ["Started", dateTime(run.started_at)],
    ["Ended", dateTime(run.ended_at)], ["Ends at the latest", dateTime(run.deadline_at)], ["Last activity", dateTime(run.last_work_at)],
    ["Heartbeat", run.heartbeat_status], ["Exit code", run.exit_code],
  ].filter(([, value]) => value !== null && value !== undefined && value !== "");
  return html`<div><dl class="details">${rows.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${run.result && html`<${FromAgent} label="from the agent: its result"><${Foreign} text=${run.result} /><//>`}
    <${Terminal} base=${base} run=${run} /></div>`;
}
