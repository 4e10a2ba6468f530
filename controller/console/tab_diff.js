// The changes of a run in its workspace, by file, as observed by Sluice and in their order.

import { useEffect, useState } from "preact/hooks";
import { get, readText, send } from "./api.js";
import { count, time } from "./format.js";
import { DiffLines } from "./diff.js";
import { Foreign, FromAgent, html } from "./parts.js";

/** Changes that are read. */
const CHANGES_MAX = 2000;

async function changes(base) {
  const found = [];
  let cursor = "";
  do {
    const page = await get(`${base}/events?event_type=agent.file_edited&limit=500${cursor}`);
    // Edits that an agent claims are in the transcript.
    found.push(...page.events.filter((event) => event.source === "system"));
    cursor = page.has_more ? `&cursor=${page.next_cursor}` : "";
  } while (cursor && found.length < CHANGES_MAX);
  return { events: found.reverse(), isCut: cursor !== "" };
}

function byFile(events) {
  const files = new Map();
  for (const event of events) {
    const path = event.event_data.file_path ?? "";
    files.set(path, [...(files.get(path) ?? []), event]);
  }
  return [...files].sort(([a], [b]) => (a < b ? -1 : 1));
}

function Change({ event, base }) {
  const { change_type: change, diff_preview: preview, diff_truncated: truncated, diff_omitted: omitted } = event.event_data;
  const [whole, setWhole] = useState(null);
  const load = async () => {
    try {
      setWhole(await (await send("GET", `${base}/file-diffs/${event.id}`)).text());
    } catch (error) {
      setWhole(readText(error));
    }
  };
  return html`<div><p class="small quiet"><a href=${`#seq-${event.seq}`}>${time(event.created_at)}</a> ${change}</p>
    ${preview || whole ? html`<${DiffLines} text=${whole ?? preview} />` : html`<p class="quiet">No diff${omitted && `: ${omitted}`}</p>`}
    ${truncated && whole === null && html`<button class="link" onClick=${load}>Show the whole diff</button>`}</div>`;
}

function File({ path, events, base }) {
  const [open, setOpen] = useState(false);
  const sum = (name) => events.reduce((total, { event_data: data }) => total + Number(data[name] ?? 0), 0);
  const kinds = new Set(events.map(({ event_data: data }) => data.change_type));
  const word = events.at(-1).event_data.change_type === "deleted" ? "deleted" : kinds.has("created") ? "new" : "modified";
  return html`<details class="file" onToggle=${({ currentTarget }) => setOpen(currentTarget.open)}>
    <summary><code class="one-line"><${Foreign} inline text=${path} /></code> <span class="quiet">${word}</span>
      ${" "}<span class="add">+${count(sum("lines_added"))}</span> <span class="del">−${count(sum("lines_removed"))}</span></summary>
    ${open && html`<${FromAgent}>${events.map((event) => html`<${Change} key=${event.id} event=${event} base=${base} />`)}<//>`}</details>`;
}

export function Diff({ base, log }) {
  const [found, setFound] = useState(null);
  const [fault, setFault] = useState("");
  const newest = log.events.value.findLast((event) => event.event_type === "agent.file_edited")?.seq;
  useEffect(() => {
    let closed = false;
    changes(base).then(
      (read) => !closed && (setFound(read), setFault("")),
      (error) => !closed && setFault(readText(error)),
    );
    return () => {
      closed = true;
    };
  }, [newest]);
  if (fault) return html`<p class="fault-text" role="alert">${fault}</p>`;
  if (!found) return html`<p class="quiet">The changes are being read.</p>`;
  if (found.events.length === 0) return html`<p class="quiet">No file of the workspace has changed.</p>`;
  const files = byFile(found.events);
  return html`<div><p class="small quiet">${count(files.length)} files that have changed since the run began, as seen from the
      outside.${found.isCut ? ` The newest ${count(CHANGES_MAX)} changes.` : ""}</p>
    ${files.map(([path, events]) => html`<${File} key=${path} path=${path} events=${events} base=${base} />`)}</div>`;
}
