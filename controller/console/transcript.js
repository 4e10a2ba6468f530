// The transcript of a run: a window of its events, which follows the end until the reader scrolls up.

import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { get, readText } from "./api.js";
import { Row } from "./events.js";
import { html } from "./parts.js";
import { rowsOf } from "./rows.js";

const PAGE = 500;
/** Events in the page at most: the window moves over longer logs. */
const WINDOW = 1000;
/** Events that are drawn at once. */
const SLICE = 50;
/** Pixels from the end that count as the end. */
const NEAR = 48;

/** Lets the browser draw, and take what the reader does. */
const rest = () => new Promise((resolve) => setTimeout(resolve));

/** The events that the page has, by position; the oldest first. */
export class Log {
  constructor(base) {
    this.base = base;
    this.events = signal([]);
    this.hasOlder = signal(false);
    this.hasNewer = signal(false);
    this.unseen = signal(0);
    this.fault = signal("");
    this.target = signal(0);
    this.newest = 0;
    this.pending = [];
    /** Newest events of the stream, while the window ends before them. */
    this.tail = [];
    /** Position up to which the tail may lack events. */
    this.lost = 0;
    this.follows = true;
    /** Number of the last change of the window: an earlier one that is still at work ends. */
    this.turn = 0;
    /** Number of pages that are being opened in place of the window. */
    this.opening = 0;
  }

  async #page(cursor, direction) {
    const place = cursor ? `&cursor=${cursor}&direction=${direction}` : "";
    const page = await get(`${this.base}/events?limit=${PAGE}${place}`);
    page.events.sort((a, b) => a.seq - b.seq);
    return page;
  }

  /** Opens the newest events, or those around a position. */
  async open(seq = 0) {
    this.turn += 1;
    const mine = this.turn;
    this.opening += 1;
    try {
      const page = await this.#page(seq && seq + 1, "older");
      let events = page.events;
      let isEnd = true;
      let lost = 0;
      if (seq) {
        const after = await this.#page(seq, "newer");
        events = [...events, ...after.events];
        isEnd = !after.has_more;
        // The stream begins after the newest event, and the window may end before.
        if (after.has_more) lost = (await get(`${this.base}/events?limit=1`)).events[0].seq;
      }
      if (mine !== this.turn) return;
      this.newest = Math.max(this.newest, lost);
      this.lost = Math.max(this.lost, lost);
      // At first, only the newest rows are shown. An anchor needs all rows.
      const shown = seq ? events : events.slice(-SLICE);
      this.hasOlder.value = page.has_more || shown.length < events.length;
      this.#show(shown, isEnd);
      this.unseen.value = 0;
      this.target.value = seq;
      this.fault.value = "";
      this.#before(events.slice(0, events.length - shown.length), page.has_more);
    } catch (error) {
      if (mine === this.turn) this.fault.value = readText(error);
    } finally {
      this.opening -= 1;
      this.#release();
    }
  }

  async older() {
    this.turn += 1;
    const mine = this.turn;
    const page = await this.#page(this.events.value[0]?.seq, "older");
    if (mine !== this.turn) return;
    await this.#before(page.events, page.has_more);
  }

  async newer() {
    this.turn += 1;
    const mine = this.turn;
    const page = await this.#page(this.events.value.at(-1)?.seq, "newer");
    for (let at = 0; at < page.events.length && mine === this.turn; at += SLICE) {
      const events = [...this.events.value, ...page.events.slice(at, at + SLICE)];
      this.#show(events, !page.has_more && at + SLICE >= page.events.length);
      await rest();
    }
  }

  /** Adds events before the others, a slice at a time: a page of all at once would keep the reader waiting. */
  async #before(events, hasMore) {
    this.turn += 1;
    const mine = this.turn;
    for (let end = events.length; end > 0; end -= SLICE) {
      await rest();
      if (mine !== this.turn) return;
      const all = [...events.slice(Math.max(0, end - SLICE), end), ...this.events.value];
      if (all.length > WINDOW) this.hasNewer.value = true;
      this.hasOlder.value = hasMore || end > SLICE;
      this.events.value = all.slice(0, WINDOW);
    }
    this.hasOlder.value = hasMore;
  }

  /** Shows events, up to the newest one that the daemon had if `isEnd`. What the stream has had meanwhile follows them. */
  #show(events, isEnd) {
    const last = events.at(-1)?.seq ?? 0;
    this.newest = Math.max(this.newest, last);
    const isWhole = isEnd && last >= this.lost;
    const all = isWhole ? [...events, ...this.tail.filter((event) => event.seq > last)] : events;
    if (isWhole) this.tail = [];
    this.hasNewer.value = !isWhole;
    if (all.length > WINDOW) this.hasOlder.value = true;
    this.events.value = all.slice(-WINDOW);
  }

  /** Keeps events for the time when the window gets to them, as many as a page has. */
  #keep(events) {
    this.tail.push(...events);
    const extra = this.tail.splice(0, Math.max(0, this.tail.length - PAGE));
    this.lost = Math.max(this.lost, extra.at(-1)?.seq ?? 0);
  }

  /** Shows what was kept while pages were opened, if the window has stayed at the end. */
  #release() {
    if (this.opening > 0 || this.hasNewer.value || this.tail.length === 0) return;
    const last = this.events.value.at(-1)?.seq ?? 0;
    if (last < this.lost) this.hasNewer.value = true;
    else this.#append(this.tail.splice(0).filter((event) => event.seq > last));
  }

  /** Adds an event of the stream. Events of one frame of the screen are added together. */
  add(event) {
    if (event.seq <= this.newest) return;
    this.newest = event.seq;
    this.pending.push(event);
    if (this.pending.length === 1) setTimeout(() => this.#flush(), 50);
  }

  #flush() {
    // A page that was read meanwhile may have them.
    const last = this.events.value.at(-1)?.seq ?? 0;
    const added = this.pending.filter((event) => event.seq > last);
    this.pending = [];
    if (added.length === 0) return;
    if (!this.follows) this.unseen.value += added.length;
    // The reader is elsewhere in the transcript, or on the way: new rows are shown when the window gets there.
    if (this.hasNewer.value || this.opening > 0) this.#keep(added);
    else this.#append(added);
  }

  /** Adds events after the others. */
  #append(added) {
    const events = [...this.events.value, ...added];
    if (events.length <= WINDOW) {
      this.events.value = events;
    } else if (this.follows) {
      this.hasOlder.value = true;
      this.events.value = events.slice(-WINDOW);
    } else {
      this.hasNewer.value = true;
      this.#keep(added);
    }
  }

  gap({ from, to }) {
    this.fault.value = `Events ${from} to ${to} are no longer kept.`;
  }
}

/** Returns the row of an event: its own, or the one before it, which has it. */
function rowOf(box, seq) {
  const rows = [...box.querySelectorAll("article")];
  return rows.findLast((row) => Number(row.id.slice(4)) <= seq) ?? rows[0];
}

/** Keeps a row at its place, also while rows above it get their real heights. */
function hold(box, anchor, frames) {
  const row = document.getElementById(anchor.id);
  if (!row) return;
  box.scrollTop += row.getBoundingClientRect().top - anchor.top;
  if (frames > 0) requestAnimationFrame(() => hold(box, anchor, frames - 1));
}

/** Moves to the row of an event, which gets the focus. The end is not followed any more. */
function reveal(box, log, seq) {
  const row = rowOf(box, seq);
  log.follows = false;
  if (!row) return;
  row.scrollIntoView({ block: "center" });
  row.focus({ preventScroll: true });
  hold(box, { id: row.id, top: row.getBoundingClientRect().top }, 5);
}

/** Moves the focus between rows, and opens what is folded in one. */
function keys(box, event, log) {
  if (event.target.closest?.("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  const rows = [...box.querySelectorAll("article")];
  const at = rows.indexOf(document.activeElement?.closest("article"));
  const go = (index) => rows[Math.max(0, Math.min(rows.length - 1, index))]?.focus();
  const actions = {
    j: () => go(at + 1),
    k: () => go(at < 0 ? rows.length - 1 : at - 1),
    e: () => rows[at]?.querySelector("details")?.toggleAttribute("open"),
    "/": () => document.getElementById("search")?.focus(),
    g: () => go(0),
    G: async () => {
      if (log.hasNewer.value) await log.open();
      log.follows = true;
      box.scrollTop = box.scrollHeight;
    },
  };
  const act = actions[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

function Search({ base, log }) {
  const [found, setFound] = useState(null);
  const search = async (event) => {
    event.preventDefault();
    const text = new FormData(event.currentTarget).get("q").trim();
    if (!text) return setFound(null);
    try {
      const page = await get(`${base}/events?limit=50&q=${encodeURIComponent(text)}`);
      setFound({ title: `${page.total_count}${page.total_count_capped ? "+" : ""} found`, events: page.events });
    } catch (error) {
      setFound({ title: readText(error), events: [] });
    }
  };
  return html`<form class="row search" role="search" onSubmit=${search}>
    <label class="grow"><span class="visually-hidden">Search the events</span>
      <input id="search" name="q" type="search" maxlength="200" placeholder="Search the events" /></label>
    <button>Search</button>
    ${found && html`<div class="found" role="status"><strong>${found.title}</strong>
      <ul>${found.events.map((event) => html`<li key=${event.seq}><a href=${`#seq-${event.seq}`}
        onClick=${() => log.open(event.seq)}>${event.seq}</a> ${event.event_type}</li>`)}</ul>
      <button type="button" class="link" onClick=${() => setFound(null)}>Close</button></div>`}
  </form>`;
}

export function Transcript({ log, base }) {
  const box = useRef(null);
  const [loading, setLoading] = useState(false);
  const events = log.events.value;
  const anchor = useRef(null);
  const top = useRef(0);
  useLayoutEffect(() => {
    const element = box.current;
    if (log.target.value) {
      reveal(element, log, log.target.value);
      log.target.value = 0;
    } else if (log.follows) {
      element.scrollTop = element.scrollHeight;
    } else if (anchor.current) {
      hold(element, anchor.current, 5);
    }
  }, [events]);
  useEffect(() => {
    const press = (event) => keys(box.current, event, log);
    document.addEventListener("keydown", press);
    const jump = () => {
      const seq = Number(location.hash.match(/^#seq-(\d+)$/)?.[1] ?? 0);
      if (seq && document.getElementById(`seq-${seq}`)) reveal(box.current, log, seq);
      else if (seq) log.open(seq);
    };
    addEventListener("hashchange", jump);
    // Rows get their real height when they are first drawn: the end moves away from a reader who is there.
    const grow = new ResizeObserver(() => {
      if (log.follows) box.current.scrollTop = box.current.scrollHeight;
    });
    grow.observe(box.current.firstElementChild);
    return () => {
      document.removeEventListener("keydown", press);
      removeEventListener("hashchange", jump);
      grow.disconnect();
    };
  }, []);
  const load = async (side) => {
    setLoading(true);
    const row = side === "older" && box.current.querySelector("article");
    if (row) anchor.current = { id: row.id, top: row.getBoundingClientRect().top };
    try {
      await log[side]();
      log.fault.value = "";
    } catch (error) {
      log.fault.value = readText(error);
    }
    anchor.current = null;
    setLoading(false);
  };
  const scrolled = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    // Rows that come or grow move the end away before this is called: only a move upwards is one of the reader.
    const isUp = scrollTop < top.current;
    top.current = scrollTop;
    const isNear = scrollHeight - scrollTop - clientHeight < NEAR;
    log.follows = (isNear || (log.follows && !isUp)) && !log.hasNewer.value;
    if (log.follows) log.unseen.value = 0;
  };
  const toEnd = async () => {
    if (log.hasNewer.value) await log.open();
    log.follows = true;
    log.unseen.value = 0;
    box.current.scrollTop = box.current.scrollHeight;
  };
  const rows = rowsOf(events);
  return html`<div class="transcript">
    <${Search} base=${base} log=${log} />
    ${log.fault.value && html`<p class="fault-text" role="alert">${log.fault.value}</p>`}
    <div class="scroll" ref=${box} onScroll=${scrolled} tabindex="0" role="log" aria-label="Events of the run">
      <div>
        ${log.hasOlder.value && html`<p class="edge"><button disabled=${loading} onClick=${() => load("older")}>Show older events</button></p>`}
        ${rows.length === 0 && html`<p class="edge quiet">No events yet. What the agent does is here as soon as it begins.</p>`}
        ${rows.map((row) => html`<${Row} key=${row.event.seq} row=${row} base=${base} />`)}
        ${log.hasNewer.value && html`<p class="edge"><button disabled=${loading} onClick=${() => load("newer")}>Show newer events</button></p>`}
      </div>
    </div>
    ${log.unseen.value > 0 && html`<button class="unseen" onClick=${toEnd}>${log.unseen.value} new</button>`}
  </div>`;
}
