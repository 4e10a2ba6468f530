// All approvals and questions that wait, over all runs.

import { signal } from "@preact/signals";
import { errorText, get, isFinal } from "./api.js";
import { Approval, Question } from "./asks.js";
import { Empty, Fault, html, Live } from "./parts.js";
import { collect, follow, looks } from "./stream.js";

/** Number of runs that the page shows at most. */
const MOST = 500;

const asks = signal(null);
const fault = signal("");
/** True if more runs wait than the page shows. */
const more = signal(false);
let stream;

/** Returns what waits in a run; nothing for one that was removed meanwhile. */
async function asksOf(path) {
  try {
    return [await get(`${path}/approvals`), await get(`${path}/questions`)];
  } catch (error) {
    if (error.status === 404) return [{ approvals: [] }, { questions: [] }];
    throw error;
  }
}

const begin = looks();

async function load() {
  const look = begin();
  try {
    const { sandboxes, has_more: hasMore } = await get(`/api/v1/sandboxes?waiting_for=person&limit=${MOST}`);
    const found = [];
    // A few at a time: a browser has six connections, and one is the stream.
    const left = sandboxes.slice();
    const work = async () => {
      for (let run = left.pop(); run; run = left.pop()) {
        const path = `/api/v1/sandboxes/${run.sandbox_id}`;
        const [{ approvals }, { questions }] = await asksOf(path);
        for (const approval of approvals) if (!approval.decision) found.push({ run, approval, at: approval.created_at });
        for (const question of questions) if (question.state === "open") found.push({ run, question, at: question.created_at });
      }
    };
    await Promise.all([work(), work(), work()]);
    if (!look.take()) return;
    more.value = hasMore;
    asks.value = found.sort((a, b) => a.at.localeCompare(b.at));
    fault.value = "";
  } catch (error) {
    if (!look.isOld()) fault.value = errorText(error);
    return isFinal(error) ? undefined : null;
  }
}

const soon = collect(load, 200);

function Ask({ run, approval, question, place }) {
  const title = html`<a href=${`/sandboxes/${run.sandbox_id}`}>${run.name ?? run.sandbox_id}</a>`;
  return approval
    ? html`<${Approval} approval=${approval} changed=${load} title=${title} place=${place} />`
    : html`<${Question} question=${question} changed=${load} title=${title} place=${place} />`;
}

function Page() {
  const found = asks.value;
  // Buttons that move under the pointer must settle again before they react.
  const place = found?.map(({ approval, question }) => approval?.approval_id ?? question.question_id).join(" ");
  return html`<div class="page">
    <div class="row"><h1 class="grow">Approvals and questions</h1><${Live} state=${stream.state.value} /></div>
    ${fault.value && html`<${Fault} text=${fault.value} retry=${load} />`}
    ${found?.length === 0 && html`<${Empty} title="Nothing waits for you">
      <p>When a run reaches a cap with <code>on_cap = ask</code>, its branch is to be published, or an agent asks a question,
        it is here.</p><//>`}
    <div class="asks">${found?.map((ask) => html`<${Ask} key=${(ask.approval ?? ask.question).created_at + ask.run.sandbox_id} place=${place} ...${ask} />`)}</div>
    ${more.value && html`<p class="quiet">More runs wait for a person than this page shows: these are of the newest ${MOST}.</p>`}
  </div>`;
}

export async function start(show) {
  stream = follow("/api/v1/events/stream?types=approval.*,question.*,run.state_changed", null, {
    snapshot: soon, event: soon, gap: soon,
  });
  await load();
  show(html`<${Page} />`);
}
