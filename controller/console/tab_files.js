// The files of a live workspace, and after the end those that the run has left.

import { useEffect, useRef, useState } from "preact/hooks";
import { errorText, get, isFinal, readText, RETRY_MS, saveAs, send } from "./api.js";
import { bytes, count, dateTime, isLive } from "./format.js";
import { Foreign, FromAgent, html } from "./parts.js";
import { looks } from "./stream.js";

const FILE_MAX = 262_144;

const route = (path) => path.split("/").map(encodeURIComponent).join("/");

/** What the run has left in `/workspace/out`. */
function Artifacts({ base, run }) {
  const [found, setFound] = useState(null);
  const [fault, setFault] = useState("");
  useEffect(() => {
    let closed = false;
    let timer;
    const load = () => get(`${base}/artifacts?limit=500`).then(
      (page) => !closed && (setFound(page), setFault("")),
      (error) => {
        if (closed) return;
        setFault(errorText(error));
        if (!isFinal(error)) timer = setTimeout(load, RETRY_MS);
      },
    );
    load();
    return () => {
      closed = true;
      clearTimeout(timer);
    };
  }, [run.state, run.attempt]);
  const save = ({ name }) => saveAs(`${base}/artifacts/${route(name)}`, name.split("/").at(-1)).catch((error) => setFault(readText(error)));
  return html`<div><p class="quiet">The workspace is removed at the end of a run. What it left in <code>/workspace/out</code> is kept as its artifacts.</p>
    ${fault && html`<p class="fault-text" role="alert">${fault}</p>`}
    ${found && (found.artifacts.length === 0
    ? html`<p>It has left no artifacts.</p>`
    : html`<table><thead><tr><th scope="col">Artifact</th><th scope="col">Size</th><th scope="col">Changed</th><th scope="col">File</th></tr></thead>
      <tbody>${found.artifacts.map((artifact) => html`<tr key=${artifact.name ?? artifact.name_base64}>
        <td><${Foreign} inline text=${artifact.name ?? "[a name that is not text]"} max=${300} /></td><td>${bytes(artifact.size)}</td><td>${dateTime(artifact.modified_at)}</td>
        <td>${artifact.name && html`<button class="link" onClick=${() => save(artifact)}>Download</button>`}</td></tr>`)}</tbody></table>`)}
    ${found?.left_out > 0 && html`<p class="small quiet">${count(found.left_out)} files are left out: ${[...new Set(found.first_left_out.map(({ reason }) => reason))].join(", ")}.</p>`}
    ${found?.has_more && html`<p class="small quiet">The first 500. <code>GET ${base}/artifacts</code> lists all.</p>`}</div>`;
}

export const Files = (props) => (isLive(props.run) ? html`<${Workspace} ...${props} />` : html`<${Artifacts} ...${props} />`);

function Workspace({ base }) {
  const [path, setPath] = useState("/workspace");
  const [found, setFound] = useState(null);
  const [file, setFile] = useState(null);
  const [fault, setFault] = useState("");
  const [turn, setTurn] = useState(0);
  const begin = useRef(looks());
  useEffect(() => {
    let closed = false;
    get(`${base}/files?path=${encodeURIComponent(path)}`).then(
      (page) => !closed && (setFound(page), setFault("")),
      (error) => !closed && (setFound(null), setFault(readText(error))),
    );
    return () => {
      closed = true;
    };
  }, [path, turn]);
  const open = async ({ name, size }) => {
    const whole = `${path}/${name}`;
    const look = begin.current();
    let text = `This file has ${bytes(size)}; copy it with sluice cp.`;
    let problem = "";
    try {
      if (size <= FILE_MAX) text = await (await send("GET", `${base}/files/${route(whole.slice(1))}`)).text();
    } catch (error) {
      problem = readText(error);
    }
    // The answer about another file may come later.
    if (!look.take()) return;
    setFault(problem);
    setFile(problem ? null : { whole, text });
  };
  return html`<div><div class="row"><code class="grow"><${Foreign} inline text=${path} /></code>
      ${path !== "/workspace" && html`<button onClick=${() => setPath(path.slice(0, path.lastIndexOf("/")))}>Up</button>`}
      <button onClick=${() => setTurn(turn + 1)}>Refresh</button></div>
    ${fault && html`<p class="fault-text" role="alert">${fault}</p>`}
    <table><thead><tr><th scope="col">Name</th><th scope="col">Size</th><th scope="col">Changed</th></tr></thead>
    <tbody>${found?.files.filter((item) => item.name).map((item) => html`<tr key=${item.name}>
      <td>${item.kind === "directory" || item.kind === "file" ? html`<button class="link" onClick=${() => item.kind === "directory" ? setPath(`${path}/${item.name}`) : open(item)}>
        <${Foreign} inline text=${item.name} />${item.kind === "directory" ? "/" : ""}</button>` : html`<${Foreign} inline text=${item.name} /> (${item.kind})`}</td>
      <td>${item.kind === "file" ? bytes(item.size) : ""}</td><td>${dateTime(item.modified_at)}</td></tr>`)}</tbody></table>
    ${found?.has_more && html`<p class="small quiet">The first ${count(found.files.length)} names. <code>GET ${base}/files</code> lists all.</p>`}
    ${file && html`<h3><${Foreign} inline text=${file.whole} /></h3><${FromAgent} label="from the sandbox"><pre class="output"><${Foreign} text=${file.text} max=${20_000} /></pre><//>`}
  </div>`;
}
