// The calls of a run, each as a line of its times: until the first byte, and until the end.

import { callCost, count, dollars, seconds, time } from "./format.js";
import { html } from "./parts.js";

/** Calls that are shown. */
const SHOWN = 200;

/** A line of 100 units, which the longest call fills. */
function Times({ timing, longest }) {
  const { ttfb = 0, total = 0 } = timing ?? {};
  if (!total) return null;
  const width = (us) => (100 * us) / longest;
  return html`<svg class="times" viewBox="0 0 100 8" preserveAspectRatio="none" role="img"
      aria-label=${`First byte after ${seconds(ttfb)}, end after ${seconds(total)}`}>
    <rect class="wait" width=${width(ttfb)} height="8" /><rect class="stream" x=${width(ttfb)} width=${width(total - ttfb)} height="8" /></svg>`;
}

export function Calls({ calls }) {
  if (calls.length === 0) return html`<p class="quiet">No calls yet.</p>`;
  const shown = calls.slice(-SHOWN).reverse();
  const longest = Math.max(1, ...shown.map(({ event_data: data }) => data.timing_us?.total ?? 0));
  return html`<div><p class="small quiet key"><span class="wait"></span> until the first byte <span class="stream"></span> until the end.
      ${calls.length > SHOWN ? ` The newest ${SHOWN} of ${count(calls.length)} calls.` : ""}</p>
    <table><thead><tr><th scope="col">Time</th><th scope="col">Result</th><th scope="col">Tokens</th>
    <th scope="col">Times</th><th scope="col">Cost</th></tr></thead>
    <tbody>${shown.map(({ seq, created_at: at, event_data: data }) => html`<tr key=${seq}>
      <td><a href=${`#seq-${seq}`}>${time(at)}</a></td>
      <td class=${data.result === "ok" ? "" : "bad"}>${data.result} ${data.result === "ok" ? "" : (data.status ?? "")}</td>
      <td>${count(data.usage?.total)}</td>
      <td>${data.timing_us?.total ? seconds(data.timing_us.total) : ""} <${Times} timing=${data.timing_us} longest=${longest} /></td>
      <td>${callCost(data) === null ? html`<span class="quiet">unknown</span>` : dollars(callCost(data))}</td></tr>`)}</tbody></table></div>`;
}
