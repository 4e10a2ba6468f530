// The calls of a run as a waterfall: each at its time, with what it waited for.

import { useState } from "preact/hooks";
import { callCost, count, dollars, seconds, time } from "./format.js";
import { html } from "./parts.js";

/** Calls that are shown. */
const SHOWN = 200;
/** Parts of a call in their order: class, words, and the member of its times. The stream is the rest. */
const PARTS = [["queue", "in the sidecar", "queue"], ["connect", "connects", "connect"], ["wait", "until the first byte", "ttfb"]];
const LAYOUTS = [["run", "At its time in the run"], ["call", "From the start of each call"]];

/** Returns begin and end of a call in microseconds, and the lengths of its parts. */
export function spanOf({ created_at: at, event_data: data }) {
  const timing = data.timing_us ?? {};
  const total = Number(timing.total ?? 0);
  let left = total;
  const parts = PARTS.map(([name, words, member]) => {
    const length = Math.min(left, Number(timing[member] ?? 0));
    left -= length;
    return { name, words, length };
  });
  const end = Date.parse(at) * 1000;
  return { begin: end - total, end, total, parts: [...parts, { name: "stream", words: "the answer", length: left }] };
}

/**
 * Returns the place of a call on a line of 100 units for the whole time from `from` on, and the units of a microsecond. A call
 * of a long run is at least one unit wide.
 */
export function placeOf({ begin, total }, from, whole) {
  const scale = Math.max(100 / whole, 1 / total);
  // The width of the longest call, as it is rounded, may exceed the line.
  return { x: Math.max(0, Math.min(100 - total * scale, (100 * (begin - from)) / whole)), scale };
}

function Times({ span, from, whole }) {
  if (!span.total) return null;
  const { x: begin, scale } = placeOf(span, from, whole);
  let x = begin;
  const said = span.parts.map(({ words, length }) => `${words} ${seconds(length)}`).join(", ");
  return html`<svg class="times" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label=${said}><title>${said}</title>
    ${span.parts.map(({ name, length }) => {
      const at = x;
      x += length * scale;
      return html`<rect key=${name} class=${name} x=${at} width=${length * scale} height="8" />`;
    })}</svg>`;
}

export function Calls({ calls, run }) {
  const [layout, setLayout] = useState("run");
  if (calls.length === 0) return html`<p class="quiet">No calls yet.</p>`;
  const shown = calls.slice(-SHOWN).reverse().map((call) => ({ ...call, span: spanOf(call) }));
  const first = Math.min(...shown.map(({ span }) => span.begin));
  const started = run.started_at && calls.length <= SHOWN ? Math.min(first, Date.parse(run.started_at) * 1000) : first;
  const end = Math.max(...shown.map(({ span }) => span.end));
  const longest = Math.max(1, ...shown.map(({ span }) => span.total));
  const whole = layout === "run" ? Math.max(1, end - started) : longest;
  return html`<div><div class="filters" role="group" aria-label="Layout">${LAYOUTS.map(([value, words]) =>
      html`<button key=${value} aria-pressed=${layout === value} onClick=${() => setLayout(value)}>${words}</button>`)}</div>
    <p class="small quiet key">${[...PARTS, ["stream", "the answer"]].map(([name, words]) => html`<span key=${name} class=${name}></span> ${words} `)}
      · ${layout === "run" ? `${seconds(whole)} from left to right.` : `The longest is ${seconds(longest)}.`}
      ${run.calls > SHOWN ? ` The newest ${SHOWN} of ${count(run.calls)} calls.` : ""}</p>
    <table><thead><tr><th scope="col">Time</th><th scope="col">Result</th><th scope="col">Tokens</th>
    <th scope="col">Times</th><th scope="col">Cost</th></tr></thead>
    <tbody>${shown.map(({ seq, created_at: at, event_data: data, span }) => html`<tr key=${seq}>
      <td><a href=${`#seq-${seq}`}>${time(at)}</a></td>
      <td class=${data.result === "ok" ? "" : "bad"}>${data.result} ${data.result === "ok" ? "" : (data.status ?? "")}</td>
      <td>${count(data.usage?.total)}</td>
      <td>${span.total ? seconds(span.total) : ""} <${Times} span=${span} from=${layout === "run" ? started : span.begin} whole=${whole} /></td>
      <td>${callCost(data) === null ? html`<span class="quiet">unknown</span>` : dollars(callCost(data))}</td></tr>`)}</tbody></table></div>`;
}
