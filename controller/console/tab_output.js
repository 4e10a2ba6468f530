// The output of a run: what its program has written to stdout and stderr.

import { useEffect, useRef, useState } from "preact/hooks";
import { errorText, send } from "./api.js";
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

/** Saves the whole output as a file. The address alone would not do: a request of this session has a header. */
async function save(base, name) {
  const answer = await send("GET", `${base}/logs`, undefined, { headers: { Accept: "text/plain" } });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = `${name}.txt`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function Piece({ piece }) {
  const text = piece.text ?? "[bytes that are not text]\n";
  if (piece.missing) return html`<span class=${piece.stream}>[${piece.missing} bytes left out]${"\n"}</span>`;
  return html`<span class=${piece.stream}><${Foreign} inline terminal text=${text} max=${SHOWN} />
    ${piece.length > SHOWN && html`<em class="quiet">[${count(piece.length - SHOWN)} characters more: download the output]${"\n"}</em>`}</span>`;
}

export function Output({ base, run }) {
  const [pieces, setPieces] = useState([]);
  const [only, setOnly] = useState("");
  const [fault, setFault] = useState("");
  const at = useRef(0);
  const box = useRef(null);
  const follows = useRef(true);
  useEffect(() => {
    let timer;
    let closed = false;
    const load = async () => {
      const reads = !document.hidden;
      if (reads) {
        try {
          const text = await (await send("GET", `${base}/logs?after=${at.current}`)).text();
          const lines = text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
          if (closed) return;
          if (lines.length > 0) {
            at.current = lines.at(-1).position;
            setPieces((all) => newest([...all, ...lines.map((line) => ({ ...line, text: line.text?.slice(0, SHOWN), length: line.text?.length ?? 0 }))]));
          }
          setFault("");
        } catch (error) {
          setFault(errorText(error));
        }
      }
      if (!closed && (isLive(run) || !reads)) timer = setTimeout(load, 2000);
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
  const shown = pieces.filter((piece) => !only || piece.stream === only);
  const scrolled = ({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
    follows.current = scrollHeight - scrollTop - clientHeight < 40;
  };
  return html`<div>
    <div class="row wrap">${[["", "Both"], ["stdout", "stdout"], ["stderr", "stderr"]].map(([value, words]) =>
      html`<button key=${value} aria-pressed=${only === value} onClick=${() => setOnly(value)}>${words}</button>`)}
      <button onClick=${() => save(base, run.run_id).catch((error) => setFault(errorText(error)))}>Download</button></div>
    ${fault && html`<p class="fault-text">${fault}</p>`}
    ${shown.length === 0 && !fault && html`<p class="quiet">No output${isLive(run) ? " yet" : ""}.</p>`}
    ${shown.length > 0 && html`<${FromAgent} label="from the sandbox"><pre class="output" ref=${box} onScroll=${scrolled} tabindex="0">${shown.map((piece) =>
      html`<${Piece} key=${piece.position} piece=${piece} />`)}</pre><//>`}
  </div>`;
}
