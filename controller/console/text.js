// Text that a sandbox wrote. Every such text of the console passes `foreign`, which returns text nodes and spans with
// fixed classes: never HTML, never a link.

import { h } from "preact";

/** Characters that lie about a text: controls, direction, zero width, tags, variation selectors. Equal ones are one match. */
const HIDDEN = new RegExp(
  "([\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f" +
    "\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb" +
    "\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}]|\\p{Cs})\\1*",
  "gu",
);
/** Codes that one text shows. More of them would make the page slow, and nobody reads them. */
const CODES = 1000;
/** Combining marks on one letter: more than any language has. */
const MARKS = 8;
const STACK = /\p{M}+/gu;
/** Escape sequences of terminals. The first group is that of colours. A string without its end hides nothing. */
const ESCAPES =
  /(?:\u001b\[|\u009b)([0-9;]{0,64})m|(?:\u001b\[|\u009b)[0-?]*[ -/]*[@-~]|(?:\u001b[\]PX^_]|[\u0090\u0098\u009d-\u009f])[^\u0007\u001b\u0090\u0098\u009c-\u009f\n]*(?:\u0007|\u001b\\|\u009c)|\u001b[ -/]*[0-~]?/gu;
/** Colours alone: outside of a terminal's output, every other sequence is shown. */
const COLOURS_ALONE = /(?:\u001b\[|\u009b)([0-9;]{0,64})m/gu;
const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

/**
 * Returns a value of a sandbox as text. A string stays. An object is never asked for its text: an agent names its members, and
 * `toString` can be one of them.
 */
export const textOf = (value) => (typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? ""));

/** Returns the beginning of a text. It cuts no character into halves. */
export const cut = (text, max) => text.slice(0, /^[\ud800-\udbff]$/.test(text[max - 1]) ? max - 1 : max);

/** Returns a text without the marks that a letter has too many of. `shown` has those of the letter before it. */
function unstacked(text, shown) {
  if (!text) return "";
  let last = 0;
  const kept = text.replace(STACK, (stack, at) => {
    const marks = [...stack];
    const before = at === 0 ? shown.marks : 0;
    if (at + stack.length === text.length) last = before + marks.length;
    return marks.slice(0, Math.max(0, MARKS - before)).join("");
  });
  shown.marks = last;
  return kept;
}

/** Adds a piece of a text to `out`. `shown` counts over all pieces: a colour between two of them resets no counter. */
function visible(piece, out, shown) {
  let plain = "";
  let from = 0;
  const code = (words) => {
    if (plain) out.push(plain);
    out.push(h("span", { class: "codepoint" }, words));
    plain = "";
    shown.marks = 0;
  };
  for (const match of piece.matchAll(HIDDEN)) {
    const next = match.index + match[0].length;
    plain += unstacked(piece.slice(from, match.index), shown);
    from = next;
    if (shown.codes > CODES || (match[0] === "\r" && piece[next] === "\n")) continue;
    shown.codes += 1;
    const point = match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    const times = match[0].length / match[1].length;
    if (shown.codes > CODES) code("more hidden characters");
    else code(times === 1 ? `U+${point}` : `U+${point} ×${times}`);
  }
  plain += unstacked(piece.slice(from), shown);
  if (plain) out.push(plain);
}

function colour(style, codes) {
  for (const code of (codes || "0").split(";").map(Number)) {
    if (code === 0) style = {};
    else if (code === 1) style = { ...style, bold: true };
    else if (code === 4) style = { ...style, under: true };
    else if (code === 22) style = { ...style, bold: false };
    else if (code === 24) style = { ...style, under: false };
    else if (code === 39) style = { ...style, colour: undefined };
    else if (code >= 30 && code <= 37) style = { ...style, colour: COLOURS[code - 30] };
    else if (code >= 90 && code <= 97) style = { ...style, colour: COLOURS[code - 90] };
    // Indexed and exact colours are left out with their values.
    else if (code === 38 || code === 48) break;
  }
  return style;
}

/**
 * Returns a text of a sandbox as children of an element. Colours stay. Other escape sequences are left out of what a terminal
 * would show, and visible elsewhere.
 */
export function foreign(value, isTerminal = false) {
  const text = textOf(value);
  const shown = { marks: 0, codes: 0 };
  const out = [];
  let style = {};
  let from = 0;
  const add = (piece) => {
    const children = [];
    visible(piece, children, shown);
    if (children.length === 0) return;
    const classes = [style.colour && `ansi-${style.colour}`, style.bold && "ansi-bold", style.under && "ansi-under"];
    const names = classes.filter(Boolean).join(" ");
    if (names) out.push(h("span", { class: names }, children));
    else out.push(...children);
  };
  for (const match of text.matchAll(isTerminal ? ESCAPES : COLOURS_ALONE)) {
    add(text.slice(from, match.index));
    if (match[1] !== undefined) style = colour(style, match[1]);
    from = match.index + match[0].length;
  }
  add(text.slice(from));
  return out;
}
