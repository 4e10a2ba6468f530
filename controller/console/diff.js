// A diff, line by line.

import { Foreign, html } from "./parts.js";
import { textOf } from "./text.js";

const META = /^(\+\+\+|---|diff |index |new file|deleted file|@@)/;

export function DiffLines({ text }) {
  const tone = (line) => (META.test(line) ? "meta" : { "+": "add", "-": "del" }[line[0]] ?? "");
  return html`<pre class="diff">${textOf(text).replace(/\n$/, "").split("\n").map((line, at) =>
    html`<span key=${at} class=${tone(line)}><${Foreign} inline text=${line} />${"\n"}</span>`)}</pre>`;
}
