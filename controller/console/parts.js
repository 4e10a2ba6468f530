// Pieces that more than one page has.

import { Component, h } from "preact";
import { useEffect, useState } from "preact/hooks";
import htm from "htm";
import { cut, foreign, textOf } from "./text.js";

export const html = htm.bind(h);

const TONES = {
  PENDING: "grey", CREATING: "blue", RUNNING: "green", COMPLETING: "yellow", COMPLETED: "done", FAILED: "red",
};
/** Words for the states, in the order of a life. */
export const STATE_WORDS = {
  PENDING: "Queued", CREATING: "Creating", RUNNING: "Running", COMPLETING: "Completing", COMPLETED: "Completed",
  FAILED: "Failed",
};

/** Returns the words for the state of a run. */
export function stateWords(run) {
  if (run.state === "RUNNING" && run.observed_state === "paused") return ["Paused", "yellow"];
  if (run.waiting_for === "approval" || run.observed_state === "held") return ["Awaiting approval", "yellow"];
  if (run.waiting_for === "answer") return ["Awaiting answer", "yellow"];
  if (run.state === "COMPLETED" && run.outcome === "cancelled") return ["Cancelled", "grey"];
  return [STATE_WORDS[run.state] ?? run.state, TONES[run.state] ?? "grey"];
}

export function Badge({ run }) {
  const [words, tone] = stateWords(run);
  return html`<span class="badge ${tone}">${words}</span>`;
}

export function Live({ state }) {
  const [words, tone] = {
    live: ["Live", "green"], connecting: ["Connecting", "grey"], reconnecting: ["Reconnecting", "yellow"],
    paused: ["Paused while hidden", "grey"], ended: ["Ended", "grey"],
  }[state];
  return html`<span class="live ${tone}" role="status">${words}</span>`;
}

/** A text of a sandbox in its own frame, with a label that the text cannot reach. */
export function FromAgent({ children, label = "from the agent" }) {
  return html`<div class="from-agent"><span class="label">${label}</span>${children}</div>`;
}

/** A text of a sandbox. Long ones begin folded; in a line, the rest is counted. */
export function Foreign({ text, max = 4096, inline = false, terminal = false }) {
  const [all, setAll] = useState(false);
  const whole = textOf(text);
  const shown = all ? whole : cut(whole, max);
  const body = html`<bdi class="foreign">${foreign(shown, terminal)}</bdi>`;
  const left = whole.length - shown.length;
  if (inline) return left === 0 ? body : html`${body} <em class="quiet">[${left.toLocaleString("en")} characters more]</em>`;
  return html`<div class="foreign-block">${body}${whole.length > shown.length &&
    html`<button class="link" onClick=${() => setAll(true)}>Show all ${whole.length.toLocaleString("en")} characters</button>`}
  </div>`;
}

/** Returns a command that may begin a new line after a comma or a slash: never inside of a word, where that is avoidable. */
const breakable = (text) => text.split(/(?<=[,/])/).flatMap((part, at) => (at === 0 ? [part] : [html`<wbr />`, part]));

/** A text with a button that copies it. */
export function Copyable({ text, label }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`<span class="command"><code>${breakable(text)}</code>
    <button type="button" class="link" onClick=${copy} aria-label=${`Copy: ${label}`}>${copied ? "Copied" : "Copy"}</button></span>`;
}

/** A command to copy. It has only words that this page has checked. */
export function Command({ words }) {
  if (!words.every((word) => /^[A-Za-z0-9_.=\/:@-]+$/.test(word))) return null;
  const text = words.join(" ");
  return html`<${Copyable} text=${text} label=${text} />`;
}

/** Commands that the daemon has put into quotes. */
export const Commands = ({ commands }) => commands.map(({ name, cli, curl }) => html`<div key=${name} class="stack">
  <h3>${name}</h3>${cli && html`<${Copyable} text=${cli} label=${`${name}, as a command of sluice`} />`}
  <${Copyable} text=${curl} label=${`${name}, with curl`} /></div>`);

/** True 700 ms after `key` has changed: a click cannot hit what has just appeared. */
export function useSettled(key) {
  const [settled, setSettled] = useState(null);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(key), 700);
    return () => clearTimeout(timer);
  }, [key]);
  return settled === key;
}

export const Empty = ({ title, children }) =>
  html`<div class="empty"><h2>${title}</h2><div>${children}</div></div>`;

export const Fault = ({ text, retry, close }) => html`<div class="fault" role="alert"><p>${text}</p>
  ${retry && html`<button onClick=${retry}>Try again</button>`}${close && html`<button onClick=${close}>Close</button>`}</div>`;

/** The reason why an action was refused. It stays until the next action, or until the reader closes it. */
export const Refusal = ({ of }) => of.value && html`<${Fault} text=${of.value} close=${() => { of.value = ""; }} />`;

/** Draws its children. If one of them cannot be drawn, a text is in their place, and the rest of the page stays. */
export class Guard extends Component {
  componentDidCatch(error) {
    reportError(error);
    this.setState({ isBroken: true });
  }

  render({ children, text }, { isBroken }) {
    return isBroken ? html`<p class="fault-text" role="alert">${text}</p>` : children;
  }
}
