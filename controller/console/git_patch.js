// The difference of a branch from its base, file by file. It is read when a person asks for it.

import { useState } from "preact/hooks";
import { readText, send } from "./api.js";
import { DiffLines } from "./diff.js";
import { count } from "./format.js";
import { Foreign, FromAgent, html } from "./parts.js";

/** Lines of a file that are shown at first. */
const LINES_MAX = 500;
/** Files that are listed. */
const FILES_MAX = 500;

/** Returns the files of a patch, each with its first line and the others. No line of a content begins with this word. */
export function filesOf(patch) {
  const files = [];
  for (const line of patch.replace(/\n$/, "").split("\n")) {
    if (line.startsWith("diff --git ")) files.push({ title: line.slice("diff --git ".length), lines: [] });
    else files.at(-1)?.lines.push(line);
  }
  return files;
}

function PatchFile({ title, lines }) {
  const [open, setOpen] = useState(false);
  const [all, setAll] = useState(false);
  const shown = all ? lines : lines.slice(0, LINES_MAX);
  return html`<details class="file" onToggle=${({ currentTarget }) => setOpen(currentTarget.open)}>
    <summary><code class="one-line"><${Foreign} inline text=${title} /></code> <span class="quiet">${count(lines.length)} lines</span></summary>
    ${open && html`<${DiffLines} text=${shown.join("\n")} />`}
    ${open && shown.length < lines.length && html`<button class="link" onClick=${() => setAll(true)}>Show all ${count(lines.length)} lines</button>`}
  </details>`;
}

export function PatchFiles({ base }) {
  const [files, setFiles] = useState(null);
  const [fault, setFault] = useState("");
  const [busy, setBusy] = useState(false);
  const load = async () => {
    setBusy(true);
    try {
      setFiles(filesOf(await (await send("GET", `${base}/git/diff`)).text()));
      setFault("");
    } catch (error) {
      setFault(readText(error));
    }
    setBusy(false);
  };
  return html`<section class="stack" aria-labelledby="patch"><h3 id="patch">Difference from the base</h3>
    ${fault && html`<p class="fault-text" role="alert">${fault}</p>`}
    ${files === null ? html`<button disabled=${busy} onClick=${load}>Show the difference</button>`
    : html`<${FromAgent} label="from the agent: a patch">${files.slice(0, FILES_MAX).map((file, at) =>
      html`<${PatchFile} key=${at} ...${file} />`)}<//>`}
    ${files?.length > FILES_MAX && html`<p class="small quiet">The first ${count(FILES_MAX)} files.</p>`}</section>`;
}
