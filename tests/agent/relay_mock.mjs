// The daemon as a worker sees it through the sidecar: strict about what a worker sends, and faulty on request.
//
// Each request that breaks the protocol is a line in `wrong`, which a test compares with []. `fault` gets every request before it
// is served, as {lane, method, resource, body, number}, and returns nothing, or what happens to it:
//   {status, headers?, json?}   this answer; the request has no effect
//   "cut"                       the connection breaks before the request has an effect
//   "lost"                      the request has its effect, and its answer is lost
//   {delayMs}                   the answer comes late
import http from "node:http";
import { setTimeout as pause } from "node:timers/promises";

export const RUN = "r-test-1";
const ROOT = `/api/v1/sandboxes/${RUN}/`;
const LEASE_MS = 60_000;
const AT_ONCE = 8;
const BURST = 20; // requests at once after a pause; 10 a second then
const RATE = 10;

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const errorBody = (code) => ({ error: { code, message: `refused: ${code}` } });

/** Reason that the daemon refuses the data of an event. */
export function faultOfData(value, depth = 0) {
  if (depth > 32) return "nested deeper than 32";
  if (typeof value === "string") {
    return value.includes("\0") ? "U+0000" : value.isWellFormed() ? undefined : "half a character";
  }
  if (Array.isArray(value)) return value.map((item) => faultOfData(item, depth + 1)).find(Boolean);
  if (!isObject(value)) return undefined;
  const entries = Object.entries(value);
  if (entries.length > 1000) return "more than 1,000 members";
  return entries.map(([name, item]) => faultOfData(name) ?? faultOfData(item, depth + 1)).find(Boolean);
}

export class RelayMock {
  constructor({ task, fault = () => undefined, leaseMs = LEASE_MS } = {}) {
    Object.assign(this, { task, fault, leaseMs });
    this.events = [];
    this.messages = []; // {id, content, message_type, timestamp, leasedUntil, isAcknowledged}
    this.questions = new Map();
    this.acks = [];
    this.wrong = [];
    this.counts = {};
    this.open = 0;
    this.mostOpen = 0;
    this.longPolls = 0;
    this.looks = 0; // polls that do not wait
    this.watchers = new Set();
    this.tokens = BURST;
    this.filledAt = performance.now();
    this.connections = 0;
  }

  async start() {
    this.server = http.createServer((request, response) => {
      this.#serve(request, response).catch((error) => {
        if (error.code !== "ECONNRESET") this.wrong.push(`the mock failed: ${error.stack}`);
        response.destroy();
      });
    });
    this.server.on("connection", () => (this.connections += 1));
    await new Promise((resolve) => this.server.listen(0, "127.0.0.1", resolve));
    this.port = this.server.address().port;
    return this;
  }

  get address() {
    return { host: "127.0.0.1", port: this.port, path: ROOT };
  }

  get env() {
    return { RUN_ID: RUN, LLM_PROXY_PORT: String(this.port) };
  }

  async stop() {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  /** Puts a message into the queue, as a person would. */
  send(content, message_type = "user_message", then) {
    const id = `msg-${String(this.messages.length + 1).padStart(12, "0")}`;
    this.messages.push({ id, content, message_type, timestamp: new Date().toISOString(), then, leasedUntil: 0 });
    this.#changed();
    return id;
  }

  /** Another worker begins: the requests of the one before do not count against its rate. */
  refill() {
    this.tokens = BURST;
  }

  answer(id, answer) {
    Object.assign(this.questions.get(id), { state: "answered", answer });
    this.#changed();
  }

  expire(id) {
    this.questions.get(id).state = "expired";
    this.#changed();
  }

  types() {
    return this.events.map(({ event_type }) => event_type.replace("agent.", "")).filter((type) => type !== "heartbeat");
  }

  dataOf(type) {
    return this.events.filter(({ event_type }) => event_type === `agent.${type}`).map(({ event_data }) => event_data);
  }

  /** Waits until the test is true; looks again at each change. */
  async until(test, ms = 90_000) {
    const late = AbortSignal.timeout(ms);
    while (!test(this)) {
      if (late.aborted) throw new Error(`it did not come: ${test}; events: ${JSON.stringify(this.events).slice(-3000)}`);
      await new Promise((resolve) => {
        this.watchers.add(resolve);
        late.addEventListener("abort", resolve, { once: true });
      });
    }
  }

  #changed() {
    for (const resolve of this.watchers) resolve();
    this.watchers.clear();
  }

  #overRate() {
    const now = performance.now();
    this.tokens = Math.min(BURST, this.tokens + ((now - this.filledAt) * RATE) / 1000) - 1;
    this.filledAt = now;
    return this.tokens < 0;
  }

  async #serve(request, response) {
    this.open += 1;
    this.mostOpen = Math.max(this.mostOpen, this.open);
    try {
      await this.#answer(request, response);
    } finally {
      this.open -= 1;
      this.#changed();
    }
  }

  async #answer(request, response) {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const text = Buffer.concat(chunks).toString();
    const url = new URL(request.url, "http://localhost");
    if (!url.pathname.startsWith(ROOT)) this.wrong.push(`${request.method} ${request.url} is not of the run`);
    const resource = url.pathname.slice(ROOT.length);
    let body;
    if (request.method === "POST") {
      if (request.headers["content-type"] !== "application/json") this.wrong.push(`content-type of ${resource}`);
      try {
        body = JSON.parse(text);
      } catch {
        this.wrong.push(`${resource}: not JSON: ${text.slice(0, 100)}`);
      }
    }
    if (this.#overRate()) this.wrong.push(`more than ${RATE} requests a second: ${resource}`);
    if (this.open > AT_ONCE) this.wrong.push(`more than ${AT_ONCE} requests at once`);
    const key = `${request.method} ${resource.replace(/\/qst-.*/, "/ID")}`;
    this.counts[key] = (this.counts[key] ?? 0) + 1;
    const asked = { method: request.method, resource, body, number: this.counts[key], query: url.searchParams };
    const fault = this.fault(asked);
    if (fault === "cut") return response.destroy();
    if (fault?.delayMs) await pause(fault.delayMs);
    if (fault?.status) return reply(response, fault.status, fault.json ?? errorBody("fault"), fault.headers);
    const [status, json, headers] = await this.#route(key, asked, request);
    if (fault === "lost") return response.destroy();
    return reply(response, status, json, headers);
  }

  async #route(key, { body, query, resource }, request) {
    for (const name of query.keys()) {
      if (!["wait", "ack", "after", "limit", "service"].includes(name)) this.wrong.push(`query member ${name}`);
    }
    const wait = Number(query.get("wait") ?? 0);
    if (!(wait >= 0 && wait <= 25)) this.wrong.push(`wait=${query.get("wait")}`);
    switch (key) {
      case "POST events": return this.#event(body);
      case "GET task": return [200, { sandbox_id: RUN, ...this.task }];
      case "GET messages":
        if (query.get("ack") !== "manual") this.wrong.push("messages without ack=manual");
        return this.#longPoll(wait, request, () => this.#lease());
      case "POST messages/ack": return this.#acknowledge(body);
      case "POST questions": return this.#ask(body);
      case "GET questions/ID": {
        const question = this.questions.get(resource.split("/")[1]);
        if (!question) return [404, errorBody("not_found")];
        const closed = () => (question.state === "open" ? undefined : question);
        return this.#longPoll(wait, request, closed, question);
      }
      default:
        this.wrong.push(`no such route: ${key}`);
        return [404, errorBody("route_not_allowed")];
    }
  }

  #event(body) {
    const names = Object.keys(body ?? {}).sort().join();
    if (names !== "event_data,event_type" && names !== "event_type") this.wrong.push(`members of an event: ${names}`);
    const { event_type, event_data = {} } = body ?? {};
    if (!/^agent\.[A-Za-z0-9_.]{1,94}$/.test(event_type)) this.wrong.push(`event_type ${event_type}`);
    if (!isObject(event_data)) this.wrong.push(`event_data of ${event_type} is no object`);
    const size = Buffer.byteLength(JSON.stringify(event_data));
    if (size > 100_000) this.wrong.push(`event_data of ${event_type} has ${size} bytes`);
    const fault = faultOfData(event_data, 1);
    if (fault) this.wrong.push(`event_data of ${event_type}: ${fault}`);
    this.events.push({ event_type, event_data, at: performance.now() });
    const event_id = `evt-${this.events.length}`;
    return [200, { status: "received", sandbox_id: RUN, event_type, event_id, timestamp: new Date().toISOString() }];
  }

  async #longPoll(wait, request, look, otherwise = []) {
    if (wait > 0 && this.longPolls > 0) return [429, errorBody("relay_busy"), { "retry-after": "1" }];
    if (wait > 0) this.longPolls += 1;
    else this.looks += 1;
    this.#changed();
    const hangUp = new Promise((resolve) => request.socket.once("close", resolve));
    try {
      const end = performance.now() + wait * 1000;
      let found = look();
      while (found === undefined && performance.now() < end && !request.socket.destroyed) {
        await Promise.race([
          new Promise((resolve) => this.watchers.add(resolve)),
          hangUp,
          pause(Math.min(end - performance.now(), 1000), undefined, { ref: false }),
        ]);
        if (request.socket.destroyed) break;
        found = look();
      }
      return [200, found ?? otherwise];
    } finally {
      if (wait > 0) this.longPolls -= 1;
    }
  }

  #lease() {
    const now = Date.now();
    const due = this.messages.filter((message) => !message.isAcknowledged && message.leasedUntil <= now);
    if (due.length === 0) return undefined;
    const first = (message) => (message.message_type === "interrupt" ? 0 : 1);
    due.sort((a, b) => first(a) - first(b));
    for (const message of due) message.leasedUntil = now + this.leaseMs;
    return due.map(({ id, content, message_type, timestamp, then }) => ({ id, content, message_type, timestamp, then }));
  }

  #acknowledge(body) {
    const ids = body?.message_ids;
    const isList = Array.isArray(ids) && ids.length > 0 && ids.every((id) => /^(msg|int)-/.test(id));
    if (!isList || Object.keys(body).length !== 1) this.wrong.push(`ack: ${JSON.stringify(body)}`);
    for (const id of ids ?? []) {
      this.acks.push(id);
      const message = this.messages.find((one) => one.id === id);
      if (message) message.isAcknowledged = true;
    }
    return [200, { acknowledged: ids ?? [] }];
  }

  #ask(body) {
    const { question, options = [], ...others } = body ?? {};
    const isRight = typeof question === "string" && question.length <= 1000 && Array.isArray(options)
      && options.length <= 6 && options.every((option) => option.length <= 80) && Object.keys(others).length === 0;
    if (!isRight) this.wrong.push(`question: ${JSON.stringify(body)}`);
    const question_id = `qst-${String(this.questions.size + 1).padStart(12, "0")}`;
    this.questions.set(question_id, { question_id, question, options, state: "open", answer: null });
    return [201, this.questions.get(question_id)];
  }
}

function reply(response, status, json, headers = {}) {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(json));
}
