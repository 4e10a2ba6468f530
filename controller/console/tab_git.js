// The repository of a run: its branch, commits, changed files, pull request, and the commands that publish it.

import { useEffect, useState } from "preact/hooks";
import { ApiError, errorText, get, readText, RETRY_MS } from "./api.js";
import { PatchFiles } from "./git_patch.js";
import { count, isLive } from "./format.js";
import { Commands, Foreign, FromAgent, html } from "./parts.js";

/** Milliseconds in which events lead to one look. */
const SETTLE_MS = 150;
/** Commits and files that are shown. */
const ROWS_MAX = 500;

const RULES = {
  approve: "a person publishes it", auto: "Sluice publishes it when the run succeeds", never: "it stays on this host",
};
const STATUS = { added: "new", modified: "modified", deleted: "deleted", type_changed: "another type" };

/** The pull request as the forge has it; as the daemon has recorded it while the forge does not answer. */
async function pullRequest(base, recorded) {
  if (!recorded) return null;
  try {
    return await get(`${base}/git/pr`);
  } catch (error) {
    return { ...recorded, fault: readText(error) };
  }
}

/** One look after the other: the daemon limits how many an owner has at once. */
async function look(base) {
  const branch = await get(`${base}/git`);
  const { commits } = branch.commits > 0 ? await get(`${base}/git/commits`) : { commits: [] };
  const guarded = branch.guarded_paths.length > 0;
  const query = `head_sha=${branch.head_sha}&accept_guarded_paths=${guarded}`;
  const { commands } = branch.head_sha ? await get(`${base}/git/commands?${query}`) : { commands: [] };
  return { branch, commits, commands, pull: await pullRequest(base, branch.pull_request) };
}

/** Returns an address that a link may have; none for other schemes. */
function linkOf(address) {
  try {
    const url = new URL(address);
    return ["http:", "https:"].includes(url.protocol) ? url : null;
  } catch {
    return null;
  }
}

const Sha = ({ sha }) => html`<code class="hash">${sha}</code>`;

function Pull({ pull, merged }) {
  const url = linkOf(pull.url);
  const words = `#${pull.number}`;
  const state = merged ? "merged" : pull.state;
  const tone = { open: "green", merged: "done", closed: "red" }[state] ?? "grey";
  return html`${url ? html`<a href=${url.href} target="_blank" rel="noopener noreferrer">${words} at ${url.host}</a>` : words}
    ${" "}<span class="badge ${tone}">${state ?? "State not known"}</span>
    ${state === "open" && pull.mergeable === false && html` <span class="bad">has conflicts with its base</span>`}
    ${pull.fault && html`<p class="small fault-text">The forge was not asked: <${Foreign} inline text=${pull.fault} /></p>`}`;
}

/** How far the branch and its base are apart. */
function distance({ ahead, behind, diverged, base_branch: base }) {
  if (!base || behind === null) return null;
  const words = `${count(ahead)} ahead, ${count(behind)} behind`;
  return diverged ? html`${words} <span class="badge yellow">diverged</span>` : words;
}

function Facts({ branch, pull }) {
  const { url, base_branch: from, base_sha: begun, branch: name, head_sha: head, published_sha: published, publish } = branch;
  const text = (value) => html`<${Foreign} inline text=${value} />`;
  const rows = [
    ["Repository", text(url)], ["Base", from && html`${text(from)} ${begun && html`<${Sha} sha=${begun} />`}`], ["Branch", text(name)],
    ["Head", head && html`<${Sha} sha=${head} />`], ["Against base", head && distance(branch)],
    ["Published", published ? html`<${Sha} sha=${published} />` : `not yet: ${RULES[publish]}`],
    ["Ticket", branch.ticket && text(branch.ticket)], ["Title", branch.title && text(branch.title)],
    ["Pull request", pull && html`<${Pull} pull=${pull} merged=${branch.merged_sha} />`],
    ["Merged", branch.merged_sha && html`<${Sha} sha=${branch.merged_sha} />`],
  ].filter(([, value]) => value);
  return html`<dl class="details">${rows.map(([label, value]) => html`<div key=${label}><dt>${label}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** The changed files that make more than a change of code. */
function Guarded({ paths }) {
  return html`<section class="guarded" aria-labelledby="guarded"><h3 id="guarded">Guarded files: ${count(paths.length)}</h3>
    <p class="small">CI or the forge obey these files: what an agent writes into them is executed or decides there, outside of the
      sandbox. They are published only if a person accepts them.</p>
    <${FromAgent} label="from the agent: paths"><ul>${paths.slice(0, ROWS_MAX).map((path) => html`<li key=${path}><code><${Foreign} inline text=${path} /></code></li>`)}</ul><//>
  </section>`;
}

function Commits({ commits }) {
  return html`<section class="stack" aria-labelledby="commits"><h3 id="commits">Commits: ${count(commits.length)}</h3>
    <${FromAgent} label="from the agent: subjects and authors"><ol class="outline">${commits.slice(0, ROWS_MAX).map(({ sha, author, subject }) =>
      html`<li key=${sha}><code>${sha.slice(0, 12)}</code> <${Foreign} inline text=${subject} />
        ${" "}<span class="quiet"><${Foreign} inline text=${author} /></span></li>`)}</ol><//></section>`;
}

function Files({ files, guarded }) {
  const marked = new Set(guarded);
  const lines = (sign, number) => (number === null ? "binary" : `${sign}${count(number)}`);
  return html`<section class="stack" aria-labelledby="changed"><h3 id="changed">Changed files: ${count(files.length)}</h3>
    <${FromAgent} label="from the agent: paths"><table><thead><tr><th scope="col">File</th><th scope="col">Change</th><th scope="col">Added</th>
      <th scope="col">Removed</th></tr></thead>
    <tbody>${files.slice(0, ROWS_MAX).map(({ path, status, added, removed }) => html`<tr key=${path}>
      <td><code><${Foreign} inline text=${path} /></code>${marked.has(path) && html` <span class="badge yellow">guarded</span>`}</td>
      <td>${STATUS[status] ?? status}</td><td class="add">${lines("+", added)}</td><td class="del">${lines("−", removed)}</td></tr>`)}</tbody></table><//>
    ${files.length > ROWS_MAX && html`<p class="small quiet">The first ${count(ROWS_MAX)} of them.</p>`}</section>`;
}

/** The next step of the branch. A browser session does none: it takes a token, or root on the host. */
function Next({ commands, head }) {
  return html`<section class="panel stack" aria-labelledby="next"><h3 id="next">Next step, in a terminal</h3>
    <p class="small">A browser session publishes nothing. These commands are for the commit <code>${head.slice(0, 12)}</code> that is shown
      here, and are refused once the branch has moved:</p>
    <${Commands} key=${head} commands=${commands} /></section>`;
}

function Branch({ base, found }) {
  const { branch, commits, commands, pull } = found;
  const { last_error: error, retry_count: retries, guarded_paths: guarded, head_sha: head } = branch;
  return html`<div class="stack"><${Facts} branch=${branch} pull=${pull} />
    ${error && html`<p class="fault-text" role="alert">The last step has failed${retries > 1 ? ` ${count(retries)} times` : ""}:
      ${" "}<${Foreign} inline text=${error} /></p>`}
    ${branch.is_too_large && html`<p class="fault-text">The change is too large to be reviewed, so it is not published. Its lists are not
      complete.</p>`}
    ${guarded.length > 0 && html`<${Guarded} paths=${guarded} />`}
    ${commands.length > 0 && html`<${Next} commands=${commands} head=${head} />`}
    ${commits.length > 0 ? html`<${Commits} commits=${commits} />` : html`<p class="quiet">No commit has come out of the run yet.</p>`}
    ${branch.files.length > 0 && html`<${Files} files=${branch.files} guarded=${guarded} />`}
    ${commits.length > 0 && html`<${PatchFiles} key=${head} base=${base} />`}</div>`;
}

export function Git({ base, run, gitChanges }) {
  const [found, setFound] = useState(null);
  const [fault, setFault] = useState("");
  const [turn, setTurn] = useState(0);
  const again = () => setTurn((before) => before + 1);
  useEffect(() => {
    let closed = false;
    let timer;
    const load = async () => {
      try {
        const seen = await look(base);
        if (!closed) {
          setFound(seen);
          setFault("");
        }
      } catch (error) {
        if (closed) return;
        if (error instanceof ApiError && error.code === "no_repository") return setFound("none"), setFault("");
        setFault(errorText(error));
        timer = setTimeout(load, RETRY_MS);
      }
    };
    timer = setTimeout(load, SETTLE_MS);
    return () => {
      closed = true;
      clearTimeout(timer);
    };
  }, [gitChanges, run.state, run.attempt, turn]);
  if (found === "none") return html`<p class="quiet">The run has no clone of its repository yet. It gets one when it begins.</p>`;
  const trouble = fault && html`<p class="fault-text" role="alert">${fault}</p>`;
  if (!found) return html`<div>${trouble || html`<p class="quiet">The repository is being read.</p>`}</div>`;
  return html`<div>${trouble}
    <div class="row"><p class="grow small quiet">${isLive(run) ? "What the run has pushed so far. The rest comes out at its end." : "What came out of the run."}</p>
      <button onClick=${again}>Refresh</button></div>
    <${Branch} base=${base} found=${found} /></div>`;
}
