// The page of one run: its state, its transcript, its open decisions, messages, and its details in tabs.

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { changeText, errorText, get, isFinal, RETRY_MS, send } from "./api.js";
import { Approval, Question } from "./asks.js";
import { count, dollars, duration, isLive, now } from "./format.js";
import { MessageBox } from "./messages.js";
import { Badge, Fault, Guard, html, Live, Refusal, stateWords } from "./parts.js";
import { collect, follow, looks, pause } from "./stream.js";
import { askForNotifications, notifies, sign, tell } from "./state_signs.js";
import { Tabs } from "./tabs.js";
import { Log, Transcript } from "./transcript.js";

const id = document.body.dataset.id;
const base = `/api/v1/sandboxes/${id}`;
const CALLS_MAX = 5000;

const run = signal(null);
const asks = signal({ approvals: [], questions: [] });
const messages = signal([]);
const calls = signal([]);
/** Why the newest state could not be read: gone once it is read. */
const fault = signal("");
/** Why the last action was refused. */
const refusal = signal("");
const stream = signal(null);
/** What follows a run that has ended; null while its own stream is open. */
let afterEnd = null;
/** Number of events after which the repository of the run is looked at again. */
const gitChanges = signal(0);
const log = new Log(base);
/** State that the reader knows. */
let told = "";
/** True if the reader has seen the run at work. The place of its buttons stays, so that nothing below moves up at the end. */
let wasLive = false;

const live = () => isLive(run.value);

const begin = looks();

/** Reads the run, and what is open in it. Returns the run; null if it cannot be read now, and undefined if it is gone. */
async function load() {
  const look = begin();
  try {
    const [detail, approvals, questions, sent] = await Promise.all([
      get(base), get(`${base}/approvals`), get(`${base}/questions`), get(`${base}/messages?limit=100`),
    ]);
    if (!look.take()) return detail;
    run.value = detail;
    asks.value = {
      approvals: approvals.approvals.filter((approval) => !approval.decision),
      questions: questions.questions.filter((question) => question.state === "open"),
    };
    messages.value = sent.messages;
    fault.value = "";
    const [words, tone] = stateWords(detail);
    sign(words, tone, detail.name ?? id);
    if (told !== "" && told !== words && /^(Awaiting|Completed|Failed|Cancelled)/.test(words)) tell(words, id);
    told = words;
    return detail;
  } catch (error) {
    if (!look.isOld()) fault.value = errorText(error);
    return isFinal(error) ? undefined : null;
  }
}

const soon = collect(load, 150);

/** Reads what the calls have used: their ends change nothing else. */
const sumsSoon = collect(async () => {
  try {
    const { calls: ended, cost_usd: cost, unknown_costs: unknown } = await get(base);
    if (ended > run.value.calls) run.value = { ...run.value, calls: ended, cost_usd: cost, unknown_costs: unknown };
  } catch {
    // The next look has them.
  }
}, 500);

/** The newest calls so far, oldest first, for their tabs. */
async function loadCalls() {
  const found = [];
  let cursor = "";
  try {
    do {
      const page = await get(`${base}/events?event_type=llm.call&limit=500${cursor}`);
      found.push(...page.events);
      cursor = page.has_more && found.length < CALLS_MAX ? `&cursor=${page.next_cursor}` : "";
    } while (cursor);
  } catch (error) {
    fault.value = `The calls are not complete: ${errorText(error)}`;
    if (isFinal(error)) return;
    await pause(RETRY_MS);
    await loadCalls();
    return;
  }
  // The stream may have added some of them meanwhile.
  const known = new Map([...found.reverse(), ...calls.value].map((call) => [call.id, call]));
  calls.value = [...known.values()].slice(-CALLS_MAX);
}

function note(event) {
  log.add(event);
  if (event.event_type === "llm.call") {
    // The page of calls that was read meanwhile may have it.
    if (!calls.value.some((call) => call.id === event.id)) calls.value = [...calls.value, event].slice(-CALLS_MAX);
    sumsSoon();
  }
  if (event.event_type.startsWith("git.")) gitChanges.value += 1;
  if (/^(run|sandbox|approval|question|message|budget)\./.test(event.event_type)) soon();
}

function missed(gap) {
  log.gap(gap);
  gitChanges.value += 1;
}

function watch() {
  stream.value?.close();
  afterEnd?.close();
  afterEnd = null;
  stream.value = follow(`${base}/stream`, log.newest, { snapshot: soon, event: note, gap: missed, end: followEnded }, () => notifies.value);
}

/** Follows what is done with a run that has ended, and with its branch: the stream of the run has ended with it. */
async function followEnded() {
  const own = stream.value;
  let ended = await load();
  while (ended === null && stream.value === own) {
    await pause(RETRY_MS);
    ended = await load();
  }
  // A retry has a stream of its own.
  if (!ended || stream.value !== own) return;
  if (isLive(ended)) return watch();
  const again = async () => {
    gitChanges.value += 1;
    const seen = await load();
    if (seen && isLive(seen) && stream.value === own) watch();
  };
  const path = `/api/v1/events/stream?sandbox=${ended.run_id}&types=run.state_changed,git.*,approval.*`;
  const soonAgain = collect(again, 150);
  afterEnd = follow(path, null, { snapshot: soonAgain, event: soonAgain, gap: soonAgain });
}

function Action({ words, method = "POST", path, body, sure, tone, after }) {
  const [busy, setBusy] = useState(false);
  const act = async () => {
    if (sure && !confirm(sure)) return;
    setBusy(true);
    refusal.value = "";
    try {
      await send(method, `${base}${path}`, body);
      after?.();
    } catch (error) {
      refusal.value = changeText(error);
    }
    setBusy(false);
    soon();
  };
  return html`<button class=${tone} disabled=${busy} onClick=${act}>${words}</button>`;
}

function Actions() {
  const { state, observed_state: observed, desired_state: desired } = run.value;
  const works = state === "RUNNING";
  const paused = observed === "paused" || desired === "paused";
  return html`<div class=${`row wrap actions ${wasLive ? "kept" : ""}`}>
    ${works && !paused && html`<${Action} words="Pause" path="/pause" />`}
    ${works && paused && html`<${Action} words="Resume" path="/resume" tone="primary" />`}
    ${works && html`<${Action} words="Interrupt" path="/interrupt" body=${{}} />`}
    ${live() && html`<${Action} words="Cancel" method="DELETE" path="" tone="danger" sure="Cancel this run? Its sandbox is removed, and its record stays." />`}
    ${live() && "Notification" in window && !notifies.value && html`<button onClick=${askForNotifications}
      title="A notification when this run waits for you or ends, while you look elsewhere">Notify me</button>`}
    ${live() && notifies.value && html`<span class="small quiet">You are notified when it waits or ends.</span>`}
    ${state === "FAILED" && html`<${Action} words="Retry" path="/retry" tone="primary" after=${watch} />`}
  </div>`;
}

function Facts() {
  const { max_cost_usd: cap, deadline_at: deadline, started_at: started, ended_at: ended, unknown_costs: unknown, branch } = run.value;
  const sum = Number(run.value.cost_usd ?? 0);
  const minutes = started ? ((ended ? Date.parse(ended) : now.value) - Date.parse(started)) / 60_000 : 0;
  return html`<dl class="facts">
    <div class="wide"><dt>Cost</dt><dd>${dollars(sum)}${cap !== null && html` of ${dollars(cap)}
      <progress max=${cap} value=${Math.min(sum, Number(cap))} aria-label="Cost against the cap"></progress>`}
      ${unknown > 0 && html` <span class="quiet">${count(unknown)} of unknown cost</span>`}</dd></div>
    ${minutes >= 1 && sum > 0 && html`<div><dt>Per minute</dt><dd>${dollars(sum / minutes)}</dd></div>`}
    <div><dt>Calls</dt><dd>${count(run.value.calls)}</dd></div>
    ${started && html`<div><dt>Time</dt><dd>${duration(minutes * 60_000)}</dd></div>`}
    ${live() && deadline && html`<div><dt>Time left</dt><dd>${duration(Date.parse(deadline) - now.value)}</dd></div>`}
    ${branch && html`<div><dt>Branch</dt><dd><code>${branch}</code></dd></div>`}
    <div><dt>Model</dt><dd>${run.value.models.join(", ") || "none"}</dd></div>
    <div><dt>Image</dt><dd>${run.value.image}</dd></div>
  </dl>`;
}

function Header() {
  const { name, reason, failure_code: code, error_message: message, attempt } = run.value;
  return html`<header class="run-header">
    <div class="row wrap">
      <h1 class="grow">${name ?? id}</h1>
      <${Badge} run=${run.value} /><${Live} state=${stream.value.state.value} />
    </div>
    <p class="small"><code>${id}</code>${attempt > 0 && ` · attempt ${attempt + 1}`}${reason && ` · ${reason}`}</p>
    ${code && html`<p class="fault-text"><strong>${code}</strong>${message && `: ${message}`}</p>`}
    <${Facts} /><${Actions} />
  </header>`;
}

function Page() {
  const { approvals, questions } = asks.value;
  // Buttons that move under the pointer must settle again before they react.
  const place = [...approvals.map((one) => one.approval_id), ...questions.map((one) => one.question_id)].join(" ");
  return html`<div class="page run">
    <p class="crumb"><a href="/sandboxes">Sandboxes</a></p>
    <${Header} />
    <${Refusal} of=${refusal} />
    ${fault.value && html`<${Fault} text=${fault.value} retry=${load} />`}
    ${approvals.map((approval) => html`<${Approval} key=${approval.approval_id} approval=${approval} changed=${load} place=${place} />`)}
    ${questions.map((question) => html`<${Question} key=${question.question_id} question=${question} changed=${load} place=${place} />`)}
    <div class="columns">
      <section class="left" aria-label="Transcript">
        <${Guard} text="The transcript cannot be shown."><${Transcript} log=${log} base=${base} /><//>
        <${MessageBox} base=${base} run=${run.value} messages=${messages.value} changed=${load} />
      </section>
      <section class="right" aria-label="Details">
        <${Tabs} base=${base} run=${run.value} calls=${calls.value} log=${log} gitChanges=${gitChanges.value} />
      </section>
    </div>
  </div>`;
}

export async function start(show) {
  await load();
  if (!run.value) return show(html`<div class="page"><${Fault} text=${fault.value} retry=${() => location.reload()} /></div>`);
  wasLive = live();
  await log.open(Number(location.hash.match(/^#seq-(\d+)$/)?.[1] ?? 0));
  watch();
  show(html`<${Page} />`);
  await loadCalls();
}
