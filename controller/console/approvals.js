// All approvals and questions that wait, over all runs.

import { signal } from "@preact/signals";
import { errorText, get, isFinal } from "./api.js";
import { Approval, Question } from "./asks.js";
import { Empty, Fault, html, Live } from "./parts.js";
import { collect, follow, looks, pause } from "./stream.js";

/** Number of runs that the page shows at most. */
const MOST = 500;
/** Milliseconds in which the stream begins, so that what waits is read once after that. */
const STREAM_MS = 1000;

/** What waits, by the id of its run; null until it is read. */
const asks = signal(null);
const fault = signal("");
/** True if more runs wait than the page shows. */
const more = signal(false);
let stream;
/** Runs to be read again. */
const changed = new Set();
let isAll = true;
const begin = looks();

/** Returns what waits in a run; nothing for one that was removed meanwhile. */
async function asksOf(run) {
  const path = `/api/v1/sandboxes/${run.sandbox_id}`;
  try {
    const { approvals } = await get(`${path}/approvals`);
    const { questions } = await get(`${path}/questions`);
    return [
      ...approvals.filter(({ decision }) => !decision).map((approval) => ({ run, approval, at: approval.created_at })),
      ...questions.filter(({ state }) => state === "open").map((question) => ({ run, question, at: question.created_at })),
    ];
  } catch (error) {
    if (error.status === 404) return [];
    throw error;
  }
}

/** Reads which runs wait, and the asks of those that have changed: a session may send a limited number of requests. */
async function load() {
  const look = begin();
  const again = isAll ? null : new Set(changed);
  isAll = false;
  changed.clear();
  try {
    const { sandboxes, has_more: hasMore } = await get(`/api/v1/sandboxes?waiting_for=person&limit=${MOST}`);
    const known = (id) => (again === null || again.has(id) ? undefined : asks.value?.get(id));
    const found = new Map(sandboxes.map(({ sandbox_id: id }) => [id, known(id)]));
    // A few at a time: a browser has six connections, and one is the stream.
    const left = sandboxes.filter(({ sandbox_id: id }) => !found.get(id));
    const work = async () => {
      for (let run = left.pop(); run; run = left.pop()) found.set(run.sandbox_id, await asksOf(run));
    };
    await Promise.all([work(), work(), work()]);
    if (!look.take()) return;
    more.value = hasMore;
    asks.value = found;
    fault.value = "";
  } catch (error) {
    if (again === null) isAll = true;
    else again.forEach((id) => changed.add(id));
    if (!look.isOld()) fault.value = errorText(error);
    return isFinal(error) ? undefined : null;
  }
}

const soon = collect(load, 200);

/** Reads a run again; all of them without an id. */
function reread(id) {
  if (id) changed.add(id);
  else isAll = true;
  soon();
}

const all = () => reread();

function Ask({ run, approval, question, place }) {
  const title = html`<a href=${`/sandboxes/${run.sandbox_id}`}>${run.name ?? run.sandbox_id}</a>`;
  return approval
    ? html`<${Approval} approval=${approval} changed=${() => reread(run.sandbox_id)} title=${title} place=${place} />`
    : html`<${Question} question=${question} changed=${() => reread(run.sandbox_id)} title=${title} place=${place} />`;
}

function Page() {
  const found = asks.value && [...asks.value.values()].flat().sort((a, b) => a.at.localeCompare(b.at));
  // Buttons that move under the pointer must settle again before they react.
  const place = found?.map(({ approval, question }) => approval?.approval_id ?? question.question_id).join(" ");
  return html`<div class="page">
    <div class="row"><h1 class="grow">Approvals and questions</h1><${Live} state=${stream.state.value} /></div>
    ${fault.value && html`<${Fault} text=${fault.value} retry=${all} />`}
    ${found?.length === 0 && html`<${Empty} title="Nothing waits for you">
      <p>When a run reaches a cap with <code>on_cap = ask</code>, its branch is to be published, or an agent asks a question,
        it is here.</p><//>`}
    <div class="asks">${found?.map((ask) => html`<${Ask} key=${(ask.approval ?? ask.question).created_at + ask.run.sandbox_id} place=${place} ...${ask} />`)}</div>
    ${more.value && html`<p class="quiet">More runs wait for a person than this page shows: these are of the newest ${MOST}.</p>`}
  </div>`;
}

export async function start(show) {
  let isReading = false;
  await new Promise((begun) => {
    stream = follow("/api/v1/events/stream?types=approval.*,question.*,run.state_changed", null, {
      snapshot: () => (isReading ? all() : begun()), event: ({ sandbox_id: id }) => reread(id), gap: all,
    });
    pause(STREAM_MS).then(begun);
  });
  isReading = true;
  await load();
  show(html`<${Page} />`);
}
