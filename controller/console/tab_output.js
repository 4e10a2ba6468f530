// The output of a run: what its program has written to stdout and stderr.

import { useEffect, useRef, useState } from "preact/hooks";
import { errorText, isFinal, readText, saveAs, send } from "./api.js";
import { count, isLive } from "./format.js";
import { Foreign, FromAgent, html } from "./parts.js";

/** Pieces of output that the page has at most. */
const PIECES = 2000;
/** Characters of output that the page has at most. */
const CHARACTERS = 2_000_000;
/** Characters of one piece that are shown: a line may have millions. */
const SHOWN = 20_000;

/** Returns the newest pieces that fit. */
function newest(pieces) {
  let left = CHARACTERS;
  const from = pieces.findLastIndex((piece) => {
    left -= piece.text?.length ?? 0;
    return left < 0;
  });
  return pieces.slice(Math.max(from + 1, pieces.length - PIECES));
}

const save = (base, { attempt, run_id: name }) => saveAs(`${base}/logs?attempt=${attempt}`, `${name}.txt`, { Accept: "text/plain" });

/** Returns the lines of pieces that contain a text. Letters match in both cases. */
function linesWith(pieces, text) {
  const wanted = text.toLowerCase();
  const has = (line) => line.toLowerCase().includes(wanted);
  const found = [];
  for (const piece of pieces) {
    const lines = (piece.text ?? "").split("\n").filter(has);
    if (lines.length > 0) found.push({ ...piece, text: `${lines.join("\n")}\n`, lines: lines.length });
  }
  return found;
}

/** A piece of a stream. Where stderr begins, it is named: colour alone would not say it. */
function Piece({ piece, begins }) {
  const text = piece.text ?? "[bytes that are not text]\n";
  const mark = begins && piece.stream === "stderr" && html`<span class="kind">stderr</span> `;
  if (piece.missing) return html`<span class=${piece.stream}>[${piece.missing} bytes left out]${"\n"}</span>`;
  return html`${mark}<span class=${piece.stream}><${Foreign} inline terminal text=${text} max=${SHOWN} />
    ${piece.length > SHOWN && html`<em class="quiet">[${count(piece.length - SHOWN)} characters more: download the output]${"\n"}</em>`}</span>`;
}

export function Output({ base, run }) {
  const [pieces, setPieces] = useState([]);
  const [only, setOnly] = useState("");
  const [wanted, setWanted] = useState("");
  const [fault, setFault] = useState("");
  const at = useRef(0);
  const box = useRef(null);
  const follows = useRef(true);
  useEffect(() => {
    let timer;
    let closed = false;
    const load = async () => {
      let isComplete = !isLive(run) && !document.hidden;
      if (!document.hidden) {
        try {
          const text = await (await send("GET", `${base}/logs?attempt=${run.attempt}&after=${at.current}`)).text();
          const lines = text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
          if (closed) return;
          if (lines.length > 0) {
            at.current = lines.at(-1).position;
            setPieces((all) => newest([...all, ...lines.map((line) => ({ ...line, text: line.text?.slice(0, SHOWN), length: line.text?.length ?? 0 }))]));
          }
          setFault("");
        } catch (error) {
          if (closed) return;
          setFault(errorText(error));
          isComplete = isComplete && isFinal(error);
        }
      }
      if (!closed && !isComplete) timer = setTimeout(load, 2000);
    };
    load();
    return () => {
      closed = true;
      clearTimeout(timer);
    };
  }, [run.state]);
  useEffect(() => {
    if (follows.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [pieces]);
  const ofStream = pieces.filter((piece) => !only || piece.stream === only);
  const shown = wanted ? linesWith(ofStream, wanted) : ofStream;
  const lines = shown.reduce((sum, piece) => sum + (piece.lines ?? 0), 0);
  const scrolled = ({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
    follows.current = scrollHeight - scrollTop - clientHeight < 40;
  };
  return html`<div>
    <div class="row wrap">${[["", "Both"], ["stdout", "stdout"], ["stderr", "stderr"]].map(([value, words]) =>
      html`<button key=${value} aria-pressed=${only === value} onClick=${() => setOnly(value)}>${words}</button>`)}
      <button onClick=${() => save(base, run).catch((error) => setFault(readText(error)))}>Download</button></div>
    <label class="row"><span class="visually-hidden">Search the output</span><input type="search" id="output-search" maxlength="200"
      placeholder="Search the output" value=${wanted} onInput=${(event) => setWanted(event.currentTarget.value)} /></label>
    ${wanted && html`<p class="small quiet" role="status">${count(lines)} ${lines === 1 ? "line" : "lines"} of the output in this page</p>`}
    ${fault && html`<p class="fault-text">${fault}</p>`}
    ${shown.length === 0 && !wanted && !fault && html`<p class="quiet">No output${isLive(run) ? " yet" : ""}.</p>`}
    ${shown.length > 0 && html`<${FromAgent} label="from the sandbox"><pre class="output" ref=${box} onScroll=${scrolled} tabindex="0">${shown.map((piece, at) =>
      html`<${Piece} key=${piece.position} piece=${piece} begins=${shown[at - 1]?.stream !== piece.stream} />`)}</pre><//>`}
  </div>`;
}
