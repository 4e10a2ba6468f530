// Messages for the agent: requested by one long poll after the other, handed over once, and acknowledged.
//
// The daemon lends a message for 60 s and gives it again until it is acknowledged; a lost acknowledgement brings a message
// a second time, which is only acknowledged again.
import { setTimeout as pause } from "node:timers/promises";

import { LONGEST_WAIT, meaning } from "./relay.mjs";

const BETWEEN_MS = 500; // polls; 240 a minute are taken
const EMPTY_AT_ONCE_MS = 2000; // after an empty answer that did not wait
const RETRY_MS = [1000, 2000, 4000, 8000, 15_000];
const ACK_RETRY_MS = [1000, 2000, 4000];
const KNOWN_MAX = 1000; // ids of acknowledged messages

const TYPES = new Set(["user_message", "interrupt", "guardian_nudge", "system"]);
const THEN = new Set(["wait", "end"]); // of an interrupt whose text begins no turn

/** The messages in an answer; what is not a message is left out. */
export function messagesOf(json) {
  if (!Array.isArray(json)) return [];
  return json
    .filter((item) => typeof item?.id === "string" && typeof item.content === "string" && item.content !== "")
    .map(({ id, content, message_type, then }) => ({
      id, content, type: TYPES.has(message_type) ? message_type : "user_message",
      ...(message_type === "interrupt" && THEN.has(then) && { then }),
    }));
}

export class Inbox {
  /**
   * `deliver` gets each message once; it calls `acknowledge` when the agent has it. A message for which it returns false is
   * delivered again when the daemon gives it again.
   */
  constructor(relay, deliver, { retryMs = RETRY_MS, ackRetryMs = ACK_RETRY_MS } = {}) {
    Object.assign(this, { relay, deliver, retryMs, ackRetryMs });
    this.known = new Map(); // id -> whether it was acknowledged
    this.ended = new AbortController();
    this.acks = new Set();
  }

  start() {
    this.polling = this.#poll();
  }

  /** Ends the polls, and waits a moment for acknowledgements under way. */
  async stop(ms = 2000) {
    this.ended.abort();
    await Promise.race([Promise.allSettled([...this.acks]), pause(ms, undefined, { ref: false })]);
  }

  /** Looks once, beside the long poll, before an agent ends. */
  async look() {
    this.#take(await this.relay.send("look", "GET", "messages?wait=0&ack=manual"));
  }

  acknowledge(ids) {
    for (const id of ids) this.#remember(id, true);
    const sent = this.#acknowledge(ids).finally(() => this.acks.delete(sent));
    this.acks.add(sent);
    return sent;
  }

  async #acknowledge(message_ids) {
    for (let attempt = 0; ; attempt += 1) {
      const answer = await this.relay.send("control", "POST", "messages/ack", { body: { message_ids } });
      // An unacknowledged message comes again, and is acknowledged then.
      if (meaning(answer) !== "retry" || attempt >= this.ackRetryMs.length) return;
      await pause(answer.retryMs ?? this.ackRetryMs[attempt], undefined, { ref: false });
    }
  }

  #remember(id, isAcknowledged) {
    this.known.delete(id);
    this.known.set(id, isAcknowledged);
    for (const [old, isDone] of this.known) {
      if (this.known.size <= KNOWN_MAX) break;
      if (isDone) this.known.delete(old);
    }
  }

  #take({ json }) {
    const messages = messagesOf(json);
    const again = messages.filter(({ id }) => this.known.get(id) === true).map(({ id }) => id);
    if (again.length > 0) this.acknowledge(again);
    for (const message of messages) {
      if (this.known.has(message.id)) continue;
      this.#remember(message.id, false);
      if (this.#delivers(message) === false) this.known.delete(message.id);
    }
    return messages.length;
  }

  /** A message that the agent cannot take does not keep the next ones from it. */
  #delivers(message) {
    try {
      return this.deliver(message);
    } catch (error) {
      console.error(`message ${message.id} was not taken: ${error?.stack ?? error}`);
      return undefined;
    }
  }

  async #poll() {
    const rest = (ms) => pause(ms, undefined, { signal: this.ended.signal, ref: false }).catch(() => {});
    for (let failures = 0; !this.ended.signal.aborted; ) {
      const start = performance.now();
      const path = `messages?wait=${LONGEST_WAIT}&ack=manual`;
      const answer = await this.relay.send("poll", "GET", path, { waitSeconds: LONGEST_WAIT });
      if (this.ended.signal.aborted) return;
      if (meaning(answer) === "done") {
        failures = 0;
        const count = this.#take(answer);
        await rest(count === 0 && performance.now() - start < 1000 ? EMPTY_AT_ONCE_MS : BETWEEN_MS);
      } else if (meaning(answer) === "retry") {
        await rest(answer.retryMs ?? this.retryMs[Math.min(failures, this.retryMs.length - 1)]);
        failures += 1;
      } else return;
    }
  }
}
