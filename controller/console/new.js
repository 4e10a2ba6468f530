// The form of a new run, which the daemon has rendered: it is sent as JSON, with the commands that do the same beside it.

import { render } from "preact";
import { signal } from "@preact/signals";
import { ApiError, changeText, errorText, post, RETRY_MS } from "./api.js";
import { dollars, duration, now } from "./format.js";
import { Badge, Commands, Fault, html, Live } from "./parts.js";
import { follow, looks } from "./stream.js";

const LIMITS = ["timeout", "memory", "cpus"];
const REPOSITORY = ["base", "ticket", "title", "type", "pull_request"];
/** Milliseconds after the last key. */
const QUIET = 300;
/** Texts of a click after one without an answer. */
const REPEATED = {
  idempotency_in_use: "An earlier click is still at work. Click again in a moment: the same form creates one run.",
  idempotency_conflict: "An earlier click has created a run from the form as it was then. Look at the sandboxes. To create a further run, click again.",
};

/** Returns the request of the form: what is left out is that of the host. */
function request(form) {
  const body = {};
  const limits = {};
  const repository = {};
  for (const [name, value] of new FormData(form)) {
    if (name === "on_repository") continue;
    const text = name === "task" ? value : value.trim();
    if (!text.trim()) continue;
    if (LIMITS.includes(name)) limits[name] = text;
    else if (REPOSITORY.includes(name)) repository[name] = name === "pull_request" ? true : text;
    else body[name] = text;
  }
  if (Object.keys(limits).length > 0) body.limits = limits;
  if (isOnRepository(form)) body.repository = repository;
  return body;
}

/** True if the run is to work on the repository of its project. */
const isOnRepository = (form) => form.elements.on_repository?.checked === true && !document.getElementById("repository").hidden;

/** Shows the members of a repository with a project that has one. */
function showRepository(form) {
  const part = document.getElementById("repository");
  if (!part) return;
  part.hidden = !part.dataset.projects.split(" ").includes(form.elements.project.value);
  for (const name of REPOSITORY) form.elements[name].disabled = !isOnRepository(form);
}

const begin = looks();

/** Shows the commands of the form as it is. Returns false if the daemon has to be asked again. */
async function showCommands(form, box) {
  const look = begin();
  const body = request(form);
  let shown = html`<p class="quiet">The commands come with the task.</p>`;
  let isDone = true;
  try {
    const { commands } = body.task ? await post("/api/v1/commands", body) : {};
    if (commands) {
      shown = html`<${Commands} commands=${commands} />
        ${!commands[0].cli && html`<p class="small quiet">The program has no flag for all of this, or the task has several lines: curl takes both.</p>`}`;
    }
  } catch (error) {
    isDone = error instanceof ApiError && error.status < 500;
    const text = isDone ? "There is no command to copy for a text with characters that a terminal does not show." : errorText(error);
    shown = html`<p class="quiet">${text}</p>`;
  }
  if (!look.take()) return true;
  render(shown, box);
  return isDone;
}

const run = signal(null);
const seen = signal([]);
const fault = signal("");

const has = (test) => seen.value.find(test);
const entered = (state) => has((event) => event.event_type === "run.state_changed" && event.event_data.to === state);

/** The steps of a creation: words, and the event that ends each. */
const STEPS = [
  ["In the queue", () => entered("CREATING")],
  ["Sidecar and container are made", () => entered("RUNNING")],
  ["First call of the agent", () => has((event) => event.event_type.startsWith("llm.call"))],
  ["First answer", () => has((event) => event.event_type === "llm.call")],
  ["The end", () => entered("COMPLETED") ?? entered("FAILED")],
];

function Step({ words, end, since, isPresent }) {
  const took = end && since ? duration(Date.parse(end.created_at) - Date.parse(since)) : "";
  const [mark, tone] = end ? ["✓", "green"] : isPresent ? ["●", "blue"] : ["–", "grey"];
  return html`<li aria-current=${isPresent ? "step" : undefined}><span class="mark ${tone}" aria-hidden="true">${mark}</span>
    <span><strong>${words}</strong> <span class="quiet">${end ? took : isPresent && since ? `for ${duration(now.value - Date.parse(since))}` : ""}</span></span></li>`;
}

function Progress({ stream, id, name }) {
  const ends = STEPS.map(([, find]) => find());
  const state = seen.value.findLast((event) => event.event_type === "run.state_changed")?.event_data;
  const present = state && ["COMPLETED", "FAILED"].includes(state.to) ? -1 : ends.findIndex((end) => !end);
  const begin = seen.value[0]?.created_at;
  const cost = seen.value.filter((event) => event.event_type === "llm.call").reduce((sum, { event_data: data }) => sum + Number(data.cost?.known?.usd ?? 0), 0);
  return html`<div class="page"><div class="row wrap"><h1 class="grow">${name ?? id}</h1><${Badge} run=${{ state: state?.to ?? "PENDING" }} />
      <${Live} state=${stream.state.value} /></div>
    ${fault.value && html`<${Fault} text=${fault.value} />`}
    <ol class="panel checks">${STEPS.map(([words], at) => html`<${Step} key=${words} words=${words} end=${ends[at]}
      since=${at === 0 ? begin : (ends[at - 1]?.created_at ?? begin)} isPresent=${at === present} />`)}</ol>
    ${state?.to === "FAILED" && html`<p class="fault-text">${state.reason}</p>`}
    <p><a class="button primary" href=${`/sandboxes/${id}`}>Open its page</a> ${cost > 0 && html`<span class="quiet">${dollars(cost)} so far</span>`}</p></div>`;
}

function follows(id, name, show) {
  const types = "run.state_changed,llm.call,llm.call_started,sandbox.created";
  const add = (event) => {
    if (types.split(",").includes(event.event_type)) seen.value = [...seen.value, event].slice(-500);
  };
  const stream = follow(`/api/v1/sandboxes/${id}/stream`, 0, { snapshot: ({ sandbox }) => { run.value = sandbox; }, event: add });
  history.replaceState(null, "", `/sandboxes/${id}`);
  show(html`<${Progress} stream=${stream} id=${id} name=${name} />`);
}

export function start(show) {
  const form = document.getElementById("new-run");
  const box = document.getElementById("commands");
  const refusal = document.getElementById("refusal");
  box.replaceChildren();
  let timer;
  const soon = (ms) => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const mine = timer;
      if (!(await showCommands(form, box)) && mine === timer) soon(RETRY_MS);
    }, ms);
  };
  form.addEventListener("input", () => {
    showRepository(form);
    soon(QUIET);
  });
  showRepository(form);
  soon(0);
  // The same key makes one run of two clicks.
  const key = crypto.randomUUID();
  let tries = 0;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("button.primary");
    button.disabled = true;
    refusal.textContent = "";
    const body = request(form);
    try {
      const created = await post("/api/v1/sandboxes", body, { "Idempotency-Key": `${key}-${tries}` });
      follows(created.sandbox_id, body.name, show);
    } catch (error) {
      // Without an answer the run may exist already: the next click has the same key, and finds it. A further run needs another
      // key once the form was changed.
      if (error.code === "idempotency_conflict") tries += 1;
      refusal.textContent = REPEATED[error.code] ?? changeText(error);
      button.disabled = false;
    }
  });
}
