// The files of a live workspace.

import { useEffect, useState } from "preact/hooks";
import { errorText, get, send } from "./api.js";
import { bytes, dateTime, isLive } from "./format.js";
import { Foreign, FromAgent, html } from "./parts.js";

const FILE_MAX = 262_144;

export function Files({ base, run }) {
  const [path, setPath] = useState("/workspace");
  const [found, setFound] = useState(null);
  const [file, setFile] = useState(null);
  const [fault, setFault] = useState("");
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let closed = false;
    get(`${base}/files?path=${encodeURIComponent(path)}`).then(
      (page) => !closed && (setFound(page), setFault("")),
      (error) => !closed && (setFound(null), setFault(errorText(error))),
    );
    return () => {
      closed = true;
    };
  }, [path, turn]);
  if (!isLive(run)) return html`<p class="quiet">The workspace is removed at the end of a run. What it left in <code>/workspace/out</code> is kept: <code>sluice artifacts</code> lists it.</p>`;
  const open = async ({ name, size }) => {
    const whole = `${path}/${name}`;
    if (size > FILE_MAX) return setFile({ whole, text: `This file has ${bytes(size)}; copy it with sluice cp.` });
    try {
      const route = whole.slice(1).split("/").map(encodeURIComponent).join("/");
      setFile({ whole, text: await (await send("GET", `${base}/files/${route}`)).text() });
    } catch (error) {
      setFault(errorText(error));
    }
  };
  return html`<div><div class="row"><code class="grow"><${Foreign} inline text=${path} /></code>
      ${path !== "/workspace" && html`<button onClick=${() => setPath(path.slice(0, path.lastIndexOf("/")))}>Up</button>`}
      <button onClick=${() => setTurn(turn + 1)}>Refresh</button></div>
    ${fault && html`<p class="fault-text">${fault}</p>`}
    <table><thead><tr><th scope="col">Name</th><th scope="col">Size</th><th scope="col">Changed</th></tr></thead>
    <tbody>${found?.files.filter((item) => item.name).map((item) => html`<tr key=${item.name}>
      <td>${item.kind === "directory" || item.kind === "file" ? html`<button class="link" onClick=${() => item.kind === "directory" ? setPath(`${path}/${item.name}`) : open(item)}>
        <${Foreign} inline text=${item.name} />${item.kind === "directory" ? "/" : ""}</button>` : html`<${Foreign} inline text=${item.name} /> (${item.kind})`}</td>
      <td>${item.kind === "file" ? bytes(item.size) : ""}</td><td>${dateTime(item.modified_at)}</td></tr>`)}</tbody></table>
    ${file && html`<h3><${Foreign} inline text=${file.whole} /></h3><${FromAgent} label="from the sandbox"><pre class="output"><${Foreign} text=${file.text} max=${20_000} /></pre><//>`}
  </div>`;
}
