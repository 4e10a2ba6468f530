// The tabs beside the transcript. Each is drawn only while it is shown.

import { useEffect, useState } from "preact/hooks";
import { Guard, html } from "./parts.js";
import { Audit } from "./tab_audit.js";
import { Calls } from "./tab_calls.js";
import { Cost } from "./tab_cost.js";
import { Details } from "./tab_details.js";
import { Diff } from "./tab_diff.js";
import { Files } from "./tab_files.js";
import { Outline } from "./tab_outline.js";
import { Output } from "./tab_output.js";
import { Raw } from "./tab_raw.js";

/** Another attempt has an output of its own. */
const OutputOfAttempt = (props) => html`<${Output} key=${props.run.attempt} ...${props} />`;

/** Only some runs have a repository: its tab is read when it is shown first. */
function Git(props) {
  const [Shown, setShown] = useState(null);
  const [fault, setFault] = useState("");
  useEffect(() => {
    import("./tab_git.js").then((module) => setShown(() => module.Git), () => setFault("This tab could not be read. Load the page again."));
  }, []);
  if (fault) return html`<p class="fault-text" role="alert">${fault}</p>`;
  return Shown ? html`<${Shown} ...${props} />` : html`<p class="quiet">The repository is being read.</p>`;
}

const TABS = [
  ["Output", OutputOfAttempt], ["Outline", Outline], ["Diff", Diff], ["Git", Git], ["Calls", Calls], ["Cost", Cost], ["Audit", Audit],
  ["Files", Files], ["Details", Details], ["Raw events", Raw],
];
/** Tabs of some runs alone. */
const OF_SOME = { Git: (run) => run.has_repository };

export function Tabs(props) {
  const [chosen, setChosen] = useState(0);
  const tabs = TABS.filter(([name]) => OF_SOME[name]?.(props.run) ?? true);
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = (chosen + step + tabs.length) % tabs.length;
    setChosen(next);
    event.currentTarget.children[next].focus();
  };
  const [name, Shown] = tabs[chosen];
  return html`<div class="tabs"><div role="tablist" aria-label="Details" onKeyDown=${move}>${tabs.map(([name], at) => html`<button role="tab"
      key=${name} id=${`tab-${at}`} aria-selected=${chosen === at} aria-controls="tab-panel" tabindex=${chosen === at ? 0 : -1}
      onClick=${() => setChosen(at)}>${name}</button>`)}</div>
    <div role="tabpanel" id="tab-panel" aria-labelledby=${`tab-${chosen}`} tabindex="0">
      <${Guard} key=${name} text="This tab cannot be shown."><${Shown} ...${props} /><//></div></div>`;
}
