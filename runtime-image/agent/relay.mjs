// Requests of a run to its controller, through the sidecar: one kind of request a connection, which stays open.
//
// The sidecar takes 8 requests at once, 10 a second, and one long poll.
import http from "node:http";

const ANSWER_MAX = 2 * 1024 * 1024; // bytes
const PATIENCE_MS = 30_000; // for an answer that is not a long poll
export const LONGEST_WAIT = 25; // seconds of a long poll

/** Where a run reaches its controller, from the variables of the sandbox. Nothing where they are not set. */
export function relayAddress(env) {
  const port = env.LLM_PROXY_PORT || "8080";
  if (!/^[1-9]\d{0,4}$/.test(port) || Number(port) > 65535) return undefined;
  if (!/^[A-Za-z0-9._-]{1,64}$/.test(env.RUN_ID ?? "")) return undefined;
  return { host: "localhost", port: Number(port), path: `/api/v1/sandboxes/${env.RUN_ID}/` };
}

/** What an answer means for the request: `done`, `retry`, `refused` (this request), `gone` (all requests of the run). */
export function meaning({ status, code }) {
  if (status >= 200 && status < 300) return "done";
  if (status === 0 || status === 408 || status === 429 || status >= 500) return "retry";
  if ([401, 403, 404, 405, 410].includes(status) || code === "run_finished") return "gone";
  return "refused";
}

export class Relay {
  constructor(address) {
    this.address = address;
    this.agents = new Map();
    this.requests = new Set();
  }

  /**
   * Sends a request, and resolves with {status, json, code, retryMs}, whatever comes of it. Status 0 is no answer.
   * `lane` names the connection; requests of one lane go one after the other.
   */
  send(lane, method, resource, { body, waitSeconds = 0 } = {}) {
    const text = body === undefined ? undefined : JSON.stringify(body);
    const headers = text === undefined
      ? { accept: "application/json" }
      : { "content-type": "application/json", "content-length": Buffer.byteLength(text) };
    const { host, port, path } = this.address;
    return new Promise((resolve) => {
      let timer;
      const finish = (answer) => {
        clearTimeout(timer);
        this.requests.delete(request);
        resolve(answer);
      };
      const lost = () => finish({ status: 0 });
      const request = http.request(
        { host, port, path: path + resource, method, headers, agent: this.#agent(lane) },
        (response) => {
          request.off("close", lost);
          readAnswer(response).then(finish, lost);
        },
      );
      this.requests.add(request);
      timer = setTimeout(() => request.destroy(), PATIENCE_MS + waitSeconds * 1000);
      request.on("error", lost);
      request.on("close", lost);
      request.end(text);
    });
  }

  /** Ends all requests; their answers are those of a lost connection. */
  close() {
    for (const request of this.requests) request.destroy();
    for (const agent of this.agents.values()) agent.destroy();
  }

  #agent(lane) {
    if (!this.agents.has(lane)) {
      this.agents.set(lane, new http.Agent({ keepAlive: true, maxSockets: 1, maxFreeSockets: 1 }));
    }
    return this.agents.get(lane);
  }
}

async function readAnswer(response) {
  const chunks = [];
  let length = 0;
  for await (const chunk of response) {
    length += chunk.length;
    if (length > ANSWER_MAX) {
      response.destroy();
      return { status: 0 };
    }
    chunks.push(chunk);
  }
  let json;
  try {
    json = JSON.parse(Buffer.concat(chunks).toString());
  } catch {
    json = undefined;
  }
  const code = json?.error?.code ?? json?.error?.type;
  const after = Number(response.headers["retry-after"]);
  return {
    status: response.statusCode,
    json,
    code: typeof code === "string" ? code : undefined,
    retryMs: after > 0 ? Math.min(after, 60) * 1000 : undefined,
  };
}
