// Messages to a run: the box to write one, and the states of sent ones.

import { useState } from "preact/hooks";
import { changeText, post } from "./api.js";
import { time } from "./format.js";
import { Foreign, html } from "./parts.js";

const WORDS = {
  queued: "waits for the agent", leased: "taken by the worker", offered: "goes with the next call", sent: "sent with a call",
  delivered: "delivered", deleted: "removed", lost: "lost",
};
/** Kinds of messages. Those of others are here, too: of admins, of programs, and of the guardian. */
const KINDS = { user_message: "message", interrupt: "interrupt", guardian_nudge: "nudge", system: "system message" };

export function MessageBox({ base, run, messages, changed }) {
  const [text, setText] = useState("");
  const [fault, setFault] = useState("");
  const [busy, setBusy] = useState(false);
  if (["COMPLETED", "FAILED"].includes(run.state)) return null;
  const go = async (path, body) => {
    if (!text.trim() || busy) return;
    setBusy(true);
    try {
      await post(`${base}${path}`, body);
      // What was typed meanwhile stays.
      setText((now) => (now === text ? "" : now));
      setFault("");
    } catch (error) {
      setFault(changeText(error));
    }
    setBusy(false);
    changed();
  };
  const sendIt = () => go("/messages", { content: text });
  const key = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    sendIt();
  };
  return html`<div class="message-box">
    ${messages.slice(0, 5).map((message) => html`<p class="small message" key=${message.message_id}>
      <span class="quiet">${time(message.created_at)} ${KINDS[message.message_type] ?? message.message_type}:</span>
      ${" "}<${Foreign} inline text=${message.content} max=${200} />
      ${" "}<em>${WORDS[message.status] ?? message.status}${message.delivered_at && ` at ${time(message.delivered_at)}`}</em></p>`)}
    <label><span class="visually-hidden">Message to the agent</span>
      <textarea rows="2" maxlength="10000" placeholder="Message to the agent" value=${text}
        onInput=${(event) => setText(event.currentTarget.value)} onKeyDown=${key}></textarea></label>
    <div class="row wrap">
      <span class="small quiet grow">Enter sends, Shift+Enter is a new line. The agent reads it with its next call.</span>
      <button disabled=${busy || !text.trim()} onClick=${() => go("/interrupt", { message: text })}>Interrupt with it</button>
      <button class="primary" disabled=${busy || !text.trim()} onClick=${sendIt}>Send</button>
    </div>
    ${fault && html`<p role="alert" class="fault-text">${fault}</p>`}
  </div>`;
}
