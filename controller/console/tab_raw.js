// Events as they are in the log.

import { Foreign, FromAgent, html } from "./parts.js";

export function Raw({ log }) {
  const events = log.events.value.slice(-200).reverse();
  return html`<div><p class="quiet small">The newest ${events.length} events that this page has loaded.</p>${events.map((event) => html`<details key=${event.seq} class="other">
    <summary>${event.seq} ${event.event_type} <span class="quiet">${event.source}</span></summary>
    <p><a href=${`#seq-${event.seq}`}>In the transcript</a></p><${FromAgent} label=${`data of the event, source ${event.source}`}><${Foreign} text=${event} /><//></details>`)}</div>`;
}
