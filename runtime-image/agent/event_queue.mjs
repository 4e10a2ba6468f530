// The events of a run on their way to the controller: one at a time, bounded, retried.
import { setTimeout as pause } from "node:timers/promises";

import { boundedJson } from "./bounded_json.mjs";
import { meaning } from "./relay.mjs";

const EVENTS_MAX = 1000;
const BYTES_MAX = 8 * 1024 * 1024;
const MERGED_MAX = 16_384; // characters of events that were joined
const RETRY_MS = [1000, 2000, 4000]; // the last one again and again
const RATE = 8; // events a second, and at once after a pause: the sidecar takes 10 requests
const FLUSH_KEEPS = 30; // events that are sent at the end beside those that must not be lost

// Events that a full buffer drops first, and events that it drops last.
const DROPPED_FIRST = new Set(["agent.message", "agent.progress", "agent.system_message", "agent.thinking"]);
const DROPPED_LAST = new Set([
  "agent.completed", "agent.error", "agent.failed", "agent.interrupted", "agent.message_injected", "agent.shutdown",
  "agent.started", "agent.stream_error",
]);

export class EventQueue {
  /** `post` sends one event, as JSON, and resolves with an answer of the relay. */
  constructor(post, { say = () => {}, retryMs = RETRY_MS, eventsMax = EVENTS_MAX, bytesMax = BYTES_MAX } = {}) {
    Object.assign(this, { post, say, retryMs, eventsMax, bytesMax });
    this.waiting = [];
    this.bytes = 0;
    this.dropped = { events: 0, bytes: 0, types: {} };
    this.isGone = false;
    this.isSending = false;
    this.idle = []; // who waits for an empty queue
    this.wake = new AbortController();
    this.said = new Set();
    this.tokens = RATE;
    this.filledAt = performance.now();
  }

  /**
   * Adds an event. An event with `merge` is joined with the last one, if that has the same key and waits still. One with
   * `first` goes before those that wait.
   */
  push(type, data, { merge, first } = {}) {
    if (this.isGone) return;
    const last = this.waiting.at(-1);
    if (merge && last?.merge === merge && last.size + data.text.length <= MERGED_MAX) {
      last.texts.push(data.text);
      last.size += data.text.length;
      this.bytes += data.text.length;
    } else {
      // The JSON of joined texts is made when they are sent: more texts may be added until then.
      const json = merge ? undefined : boundedJson(data);
      const event = { type, json, size: json?.length ?? data.text.length, data: merge && data, texts: merge && [data.text], merge };
      if (first) this.waiting.unshift(event);
      else this.waiting.push(event);
      this.bytes += event.size;
    }
    while (this.waiting.length > this.eventsMax || this.bytes > this.bytesMax) this.#drop();
    if (!this.isSending) this.#send();
  }

  /** Waits until all events are sent, at most so long; true if they are. What a full rate could not send is dropped. */
  async flush(ms) {
    const spare = () => this.waiting.findIndex(({ type }) => !DROPPED_LAST.has(type));
    while (this.waiting.length > FLUSH_KEEPS && spare() !== -1) this.#drop();
    this.wake.abort(); // an event that waits for its retry is tried at once
    this.wake = new AbortController();
    if (!this.isSending) return true;
    const timer = new AbortController();
    const empty = new Promise((resolve) => this.idle.push(() => resolve(true)));
    const late = pause(ms, false, { signal: timer.signal }).catch(() => false);
    const isEmpty = await Promise.race([empty, late]);
    timer.abort();
    return isEmpty;
  }

  #drop() {
    let at = this.waiting.findIndex(({ type }) => DROPPED_FIRST.has(type));
    if (at === -1) at = this.waiting.findIndex(({ type }) => !DROPPED_LAST.has(type));
    const [event] = this.waiting.splice(at === -1 ? 0 : at, 1);
    this.bytes -= event.size;
    this.#count(event);
  }

  #count({ type, size }) {
    this.dropped.events += 1;
    this.dropped.bytes += size;
    this.dropped.types[type] = (this.dropped.types[type] ?? 0) + 1;
  }

  /** The event that says how many were dropped goes before the next one. */
  #next() {
    if (this.dropped.events > 0) {
      const data = { dropped_events: this.dropped.events, dropped_bytes: this.dropped.bytes, dropped_types: this.dropped.types };
      this.dropped = { events: 0, bytes: 0, types: {} };
      return { type: "agent.progress", json: boundedJson(data), isMarker: true };
    }
    const event = this.waiting.shift();
    if (event) this.bytes -= event.size;
    if (event?.texts) event.json = boundedJson({ ...event.data, text: event.texts.join("") });
    return event;
  }

  async #send() {
    this.isSending = true;
    // Events of one moment are joined before the first one is sent.
    await null;
    for (let event = this.#next(); event && !this.isGone; event = this.#next()) await this.#deliver(event);
    this.isSending = false;
    if (this.isGone) this.waiting = [];
    for (const resolve of this.idle.splice(0)) resolve();
  }

  async #deliver(event) {
    for (let attempt = 0; ; attempt += 1) {
      await this.#pace();
      const answer = await this.post({ event_type: event.type, event_data: JSON.parse(event.json) });
      const what = meaning(answer);
      if (what === "done") return;
      if (what === "gone") {
        this.isGone = true;
        return;
      }
      // An internal fault of the daemon may be caused by this event, which must not delay the others.
      const isPoison = ![0, 429, 502, 503, 504].includes(answer.status) && attempt >= this.retryMs.length;
      if (what === "refused" || isPoison) {
        this.#complain(answer);
        // A refused marker must not create the next one.
        if (!event.isMarker) this.#count(event);
        return;
      }
      if (![0, 502, 503].includes(answer.status)) this.#complain(answer);
      const wait = answer.retryMs ?? this.retryMs[Math.min(attempt, this.retryMs.length - 1)];
      await pause(wait, undefined, { signal: this.wake.signal }).catch(() => {});
    }
  }

  /** Once for each kind of answer. */
  #complain({ status, code }) {
    const what = code ? `${status} ${code}` : `${status}`;
    if (this.said.has(what) || this.said.size >= 10) return;
    this.said.add(what);
    this.say(`the daemon does not take an event: ${what}`);
  }

  async #pace() {
    const now = performance.now();
    this.tokens = Math.min(RATE, this.tokens + ((now - this.filledAt) * RATE) / 1000);
    this.filledAt = now;
    this.tokens -= 1;
    if (this.tokens < 0) await pause((-this.tokens * 1000) / RATE);
  }
}
