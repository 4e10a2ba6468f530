// The verification of a run's audit file by the daemon: the chain of its lines, the lines that were seen, and the signature.

import { useEffect, useState } from "preact/hooks";
import { errorText, get, isFinal } from "./api.js";
import { count, isLive } from "./format.js";
import { Command, html } from "./parts.js";

/** Milliseconds between two verifications of a live run. */
const EVERY = 5000;

const VERDICTS = {
  complete: ["Complete", "green", "Each call has its record, from the first line to the last."],
  incomplete: ["Incomplete", "yellow", "The lines are as they were written, but the file has no end, or a call has no outcome."],
  live: ["Valid so far", "green", "The run goes on: each line is as it was written."],
  tampered: ["Altered", "red", "The file is not as it was written, or it is gone. Keep what is there, and look at it with the command below."],
  none: ["No records", "grey", "The sidecar of this run has written nothing yet."],
};

function Check({ is, words, detail }) {
  return html`<li><span class="mark ${is ? "green" : "grey"}" aria-hidden="true">${is ? "✓" : "–"}</span>
    <span><strong>${words}</strong> <span class="quiet">${detail}</span></span></li>`;
}

export function Audit({ base, run }) {
  const [found, setFound] = useState(null);
  const [fault, setFault] = useState("");
  useEffect(() => {
    let closed = false;
    let timer;
    const load = async () => {
      let isComplete = !isLive(run) && !document.hidden;
      if (!document.hidden) {
        try {
          const verification = await get(`${base}/audit/verification`);
          if (closed) return;
          setFound(verification);
          setFault("");
        } catch (error) {
          if (closed) return;
          setFault(errorText(error));
          isComplete = isComplete && isFinal(error);
        }
      }
      if (!closed && !isComplete) timer = setTimeout(load, EVERY);
    };
    load();
    return () => {
      closed = true;
      clearTimeout(timer);
    };
  }, [run.state, run.attempt]);
  if (fault) return html`<p class="fault-text" role="alert">${fault}</p>`;
  if (!found) return html`<p class="quiet">The file is being verified.</p>`;
  const isOpen = found.verdict === "incomplete" && isLive(run);
  const [words, tone, text] = VERDICTS[isOpen ? "live" : found.verdict];
  return html`<div>
    <p><span class="badge ${tone}">${words}</span> ${text}</p>
    ${found.fault_line && html`<p class="fault-text">Line ${found.fault_line}: ${found.fault}</p>`}
    ${found.lines > 0 && html`<ul class="checks">
      <${Check} is=${true} words="Chain" detail=${`${count(found.lines)} lines, each with the hash of the one before`} />
      <${Check} is=${found.witnesses > 0} words="Witness" detail=${found.witnesses > 0
        ? `${count(found.witnesses)} lines that the daemon saw while they were written are there` : "no line has been seen yet"} />
      <${Check} is=${found.signature === "valid"} words="Signature" detail=${found.signature === "valid"
        ? html`by the key <code>${found.key_id}</code>` : "comes with the end of the file"} />
    </ul>
    <p class="small">Last line: <code class="hash">${found.head}</code></p>`}
    ${found.open_calls > 0 && html`<p class="small">${count(found.open_calls)} calls are without an outcome.</p>`}
    <p class="small quiet">The same on the host of the daemon, from the file itself:</p>
    <${Command} words=${["sluice", "audit", "verify", `${run.run_id}.${found.attempt}`]} />
  </div>`;
}
