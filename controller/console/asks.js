// Decisions that wait for a person: approvals, which the system asks for, and questions of agents.

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { changeText, get, post, RETRY_MS } from "./api.js";
import { age, dollars } from "./format.js";
import { Command, Foreign, html, useSettled } from "./parts.js";

const CAPS = { max_calls: "calls", max_tokens: "tokens", max_cost_usd: "dollars" };

/** Dollars up to which this session may raise a cap of cost; null if it may raise none. */
const mostHere = signal(null);
function readSession() {
  get("/api/v1/session").then(({ approval_max_usd: most }) => { mostHere.value = most; }, () => setTimeout(readSession, RETRY_MS));
}
readSession();

function amount(approval, value) {
  return approval.cap === "max_cost_usd" ? dollars(value) : Number(value).toLocaleString("en");
}

/** Returns why a session cannot approve. */
function limitOf(approval) {
  if (!approval.cap) return "A browser session publishes nothing.";
  if (mostHere.value === null) return "A browser session cannot raise a cap here.";
  const most = `A browser session can raise a cap of cost to at most ${dollars(mostHere.value)}`;
  if (approval.cap !== "max_cost_usd") return `${most}.`;
  return `${most}, and this run with all its attempts would have ${dollars(approval.new_run_cap)}.`;
}

/** The cap that is to be raised. */
function Cap({ approval }) {
  return html`<p>The cap of ${CAPS[approval.cap]} is ${approval.held_at ? "reached, and a call waits" : "nearly reached"}.
    Proposed: from <strong>${amount(approval, approval.old)}</strong> to
    ${" "}<strong>${amount(approval, approval.new)}</strong>.</p>`;
}

/** The branch that is to be published. Names of files are the agent's. The page of the run itself needs no link. */
function Publication({ subject, hasLink }) {
  const more = subject.guarded_count - subject.guarded_paths.length;
  return html`<p>The branch <strong><${Foreign} inline text=${subject.branch} /></strong> with ${subject.commits} commits and
      ${" "}${subject.files} changed files is to be published at <${Foreign} inline text=${subject.url} />, on
      ${" "}<${Foreign} inline text=${subject.base_branch} />${subject.pull_request && ", with a pull request"}.
      Commit <code>${subject.head_sha.slice(0, 12)}</code>.</p>
    ${subject.guarded_count > 0 && html`<p><strong>CI or the forge obey these changed files:</strong></p>
      <ul>${subject.guarded_paths.map((path) => html`<li key=${path}><${Foreign} inline text=${path} /></li>`)}
        ${more > 0 && html`<li>and ${more} more</li>`}</ul>`}
    ${hasLink && html`<p class="small"><a href=${`/sandboxes/${subject.run_id}`}>See the change in the Git tab of its run</a></p>`}`;
}

/** An approval. All its words are those of this page, from typed members. */
export function Approval({ approval, changed, title, place = "" }) {
  const isAllowed = approval.cap === "max_cost_usd" && mostHere.value !== null && Number(approval.new_run_cap) <= Number(mostHere.value);
  const settled = useSettled(`${place} ${approval.approval_id} ${approval.digest} ${isAllowed}`);
  const [fault, setFault] = useState("");
  const [busy, setBusy] = useState(false);
  const path = `/api/v1/sandboxes/${approval.sandbox_id}/approvals/${approval.approval_id}/decision`;
  const decide = async (decision) => {
    setBusy(true);
    setFault("");
    try {
      await post(path, { decision, digest: approval.digest });
    } catch (error) {
      setFault(changeText(error));
    }
    setBusy(false);
    changed();
  };
  const words = ["sluice", "approve", approval.sandbox_id, approval.approval_id, "--digest", approval.digest];
  return html`<section class="ask approval" aria-label="Approval">
    <h3>Approval${title && html`: ${title}`}</h3>
    ${approval.cap ? html`<${Cap} approval=${approval} />` : html`<${Publication} subject=${approval.subject} hasLink=${Boolean(title)} />`}
    <p class="small">Asked ${age(approval.created_at)} ago. Digest <code>${approval.digest.slice(0, 8)}</code>.</p>
    <div class="row">
      ${isAllowed && html`<button class="primary" disabled=${!settled || busy} onClick=${() => decide("approve")}>
        Approve: ${amount(approval, approval.new)}</button>`}
      <button class="danger" disabled=${!settled || busy} onClick=${() => decide("deny")}>Deny</button>
    </div>
    ${!isAllowed && html`<p class="small">${limitOf(approval)} To approve, run:</p>
      <${Command} words=${words} />`}
    ${fault && html`<p role="alert" class="fault-text">${fault}</p>`}
  </section>`;
}

/** A question of an agent, in the frame of its own. An answer is data for the agent, and changes nothing else. */
export function Question({ question, changed, title, place = "" }) {
  const settled = useSettled(`${place} ${question.question_id}`);
  const [text, setText] = useState("");
  const [fault, setFault] = useState("");
  const [busy, setBusy] = useState(false);
  const path = `/api/v1/sandboxes/${question.sandbox_id}/questions/${question.question_id}/answer`;
  const answer = async (words) => {
    setBusy(true);
    setFault("");
    try {
      await post(path, { answer: words });
    } catch (error) {
      setFault(changeText(error));
    }
    setBusy(false);
    changed();
  };
  const field = html`<form class="row" onSubmit=${(event) => {
    event.preventDefault();
    if (settled && text.trim()) answer(text);
  }}>
    <label class="grow"><span class="visually-hidden">Your answer</span>
      <input value=${text} maxlength="1000" onInput=${(event) => setText(event.currentTarget.value)} /></label>
    <button disabled=${!settled || busy || !text.trim()}>Answer</button>
  </form>`;
  return html`<section class="ask question" aria-label="Question from the agent">
    <h3>Question${title && html`: ${title}`}</h3>
    <div class="from-agent"><span class="label">from the agent</span>
      <${Foreign} text=${question.question} />
    </div>
    <p class="small">Asked ${age(question.created_at)} ago. Your answer is data for the agent; it approves nothing.</p>
    ${question.options.length === 0 ? field : html`<div class="row wrap">${question.options.map((option) =>
      html`<button key=${option} disabled=${!settled || busy} onClick=${() => answer(option)}>
        Answer: <${Foreign} inline text=${option} /></button>`)}</div>`}
    ${fault && html`<p role="alert" class="fault-text">${fault}</p>`}
  </section>`;
}
