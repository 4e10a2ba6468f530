// The cost of a run: over time, and by model.

import { useMemo } from "preact/hooks";
import { Chart } from "./chart.js";
import { callCost, count, dollars } from "./format.js";
import { html } from "./parts.js";

function sumsOf(calls) {
  const models = new Map();
  for (const { event_data: data } of calls) {
    const sum = models.get(data.model) ?? { calls: 0, input: 0, output: 0, cost: 0, unknown: 0 };
    const cost = callCost(data);
    models.set(data.model, {
      calls: sum.calls + 1, input: sum.input + Number(data.usage?.input ?? 0), output: sum.output + Number(data.usage?.output ?? 0),
      cost: sum.cost + (cost ?? 0), unknown: sum.unknown + (cost === null ? 1 : 0),
    });
  }
  return [...models];
}

const tokens = (data) => Number(data.usage?.input ?? 0) + Number(data.usage?.output ?? 0);

/** Returns times and sums of a value of the calls so far. */
function overTime(calls, valueOf) {
  let sum = 0;
  const times = [];
  const values = [];
  for (const { created_at: at, event_data: data } of calls) {
    sum += valueOf(data);
    const second = Date.parse(at) / 1000;
    // Two calls at the same moment are one point, because the times of a chart must ascend.
    if (times.at(-1) >= second) values[values.length - 1] = sum;
    else {
      times.push(second);
      values.push(sum);
    }
  }
  return [times, values];
}

export function Cost({ calls, run }) {
  const [times, values] = useMemo(() => overTime(calls, (data) => callCost(data) ?? 0), [calls]);
  const [tokenTimes, tokenValues] = useMemo(() => overTime(calls, tokens), [calls]);
  if (calls.length === 0) return html`<p class="quiet">No calls yet, and no cost.</p>`;
  const models = sumsOf(calls);
  const { unknown_costs: unknown } = run;
  const isPart = run.calls > calls.length;
  const cap = run.max_cost_usd === null ? "without a cap" : `of ${dollars(run.max_cost_usd)}`;
  return html`<div>
    <${Chart} times=${times} values=${values} label="Cost so far" format=${dollars}
      summary=${`${dollars(run.cost_usd ?? 0)} ${cap} for ${count(run.calls)} calls.${isPart ? ` The picture has the newest ${count(calls.length)}.` : ""}`} />
    <${Chart} times=${tokenTimes} values=${tokenValues} label="Tokens so far" format=${count}
      summary=${`${count(tokenValues.at(-1) ?? 0)} tokens, given and answered.`} />
    ${unknown > 0 && html`<p class="small">${count(unknown)} calls of unknown cost are not in the sum. Their cost is known when the
      spend log of LiteLLM has been read: <code>sluice reconcile</code>.</p>`}
    <h3>By model</h3>${isPart && html`<p class="small quiet">Of the newest ${count(calls.length)} calls.</p>`}<table><thead><tr><th scope="col">Model</th><th scope="col">Calls</th><th scope="col">Tokens in</th>
      <th scope="col">Out</th><th scope="col">Cost</th></tr></thead><tbody>${models.map(([model, sum]) => html`<tr key=${model}>
      <td>${model}</td><td>${count(sum.calls)}</td><td>${count(sum.input)}</td><td>${count(sum.output)}</td>
      <td>${dollars(sum.cost)}${sum.unknown > 0 && html` <span class="quiet">and ${sum.unknown} unknown</span>`}</td></tr>`)}</tbody></table></div>`;
}
