// The one event stream of a tab: closed while the tab is hidden, and resumed after the last event that it has seen.

import { signal } from "@preact/signals";
import { ApiError, RETRY_MS, send } from "./api.js";

const FIRST_WAIT = 500;
const LONGEST_WAIT = 8000;
/** Milliseconds without a byte after which a stream is given up. The daemon sends one each 15 seconds. */
const QUIET = 60_000;
/** Types of events after which another number of runs may wait for a person. */
const ASKS = /^(approval|question)\.|^run\.state_changed$/;

/** Number of events of such types that this tab has seen. */
export const asksSeen = signal(0);

/** Returns the frames of a stream of server-sent events, as they come. */
export async function* frames(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const quiet = setTimeout(() => reader.cancel(), QUIET);
    let piece;
    try {
      piece = await reader.read();
    } finally {
      clearTimeout(quiet);
    }
    if (piece.done) return;
    buffer += piece.value;
    for (let end = buffer.indexOf("\n\n"); end >= 0; end = buffer.indexOf("\n\n")) {
      const frame = { event: "message", data: "" };
      for (const line of buffer.slice(0, end).split("\n")) {
        const colon = line.indexOf(":");
        if (colon > 0) frame[line.slice(0, colon)] = line.slice(colon + 1).replace(/^ /, "");
      }
      buffer = buffer.slice(end + 2);
      if (frame.data) yield frame;
    }
  }
}

/**
 * Returns a function that calls `act` once, this time after the first of several calls. While `act` is busy, it is not called
 * again: a call that comes meanwhile follows its end, so that a slow daemon is not asked faster than it answers. If `act`
 * returns null, it has failed, and is called again later.
 */
export function collect(act, ms) {
  let timer;
  let isBusy = false;
  let again = false;
  const call = () => {
    timer ??= setTimeout(run, ms);
  };
  async function run() {
    timer = undefined;
    if (isBusy) {
      again = true;
      return;
    }
    isBusy = true;
    try {
      if ((await act()) === null) setTimeout(call, RETRY_MS);
    } finally {
      isBusy = false;
    }
    if (again) {
      again = false;
      call();
    }
  }
  return call;
}

/**
 * Returns a function that begins a look. Looks can overtake each other: `take()` of a look is false, and `isOld()` true, once
 * a later one has been taken.
 */
export function looks() {
  let begun = 0;
  let taken = 0;
  return () => {
    begun += 1;
    const mine = begun;
    const isOld = () => mine < taken;
    return {
      isOld,
      take() {
        if (isOld()) return false;
        taken = mine;
        return true;
      },
    };
  };
}

/** Waits for a time, or until the tab is looked at again. */
export function pause(ms) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    document.addEventListener("visibilitychange", done);
  });
}

/**
 * Follows a stream. `on` has `snapshot(data)`, `event(data)`, `gap(data)` and `end(data)`. The state of the returned object
 * is `connecting`, `live`, `reconnecting`, `paused` or `ended`. A hidden tab closes the stream, unless `staysOpen()`.
 */
export function follow(path, after, on, staysOpen = () => false) {
  const state = signal("connecting");
  let cursor = after;
  let wait = FIRST_WAIT;
  let abort = new AbortController();
  let closed = false;

  /** Gives an event to the page. An event that the page cannot use is reported, and does not end the stream. */
  function give(handler, data) {
    try {
      handler?.(data);
    } catch (error) {
      reportError(error);
    }
  }

  async function connect() {
    abort = new AbortController();
    const headers = cursor === null ? {} : { "Last-Event-ID": String(cursor) };
    const answer = await send("GET", path, undefined, { headers, signal: abort.signal });
    for await (const frame of frames(answer.body)) {
      const data = JSON.parse(frame.data);
      state.value = "live";
      wait = FIRST_WAIT;
      if (frame.event === "end") {
        give(on.end, data);
        state.value = "ended";
        closed = true;
        return;
      }
      if (frame.event === "snapshot") {
        cursor ??= data.seq;
        give(on.snapshot, data);
      } else if (frame.event === "gap") {
        give(on.gap, data);
      } else if (cursor === null || data.seq > cursor) {
        cursor = data.seq;
        if (ASKS.test(data.event_type)) asksSeen.value += 1;
        give(on.event, data);
      }
    }
  }

  const isAway = () => document.hidden && !staysOpen();

  const hide = () => {
    if (isAway()) abort.abort();
  };

  async function run() {
    document.addEventListener("visibilitychange", hide);
    while (!closed) {
      if (isAway()) state.value = "paused";
      while (isAway()) await pause(60_000);
      if (closed) break;
      try {
        await connect();
      } catch (error) {
        if (error instanceof ApiError && error.status === 404) {
          closed = true;
          state.value = "ended";
        }
      }
      if (closed) break;
      state.value = isAway() ? "paused" : "reconnecting";
      await pause(isAway() ? 0 : wait * (0.75 + Math.random() / 2));
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
    document.removeEventListener("visibilitychange", hide);
  }

  run();
  return {
    state,
    close() {
      closed = true;
      abort.abort();
    },
  };
}
