// Values as JSON within the daemon's limits for the data of an event. Pure.

export const DATA_MAX = 100_000; // bytes
const DEPTH_MAX = 30; // the daemon takes 32
const NAME_MAX = 200; // characters of a member's name

// Bounds of a cut value, from the widest to the narrowest: characters of a string, items of an array or object.
const STEPS = [[32_768, 900], [8192, 400], [2048, 100], [512, 30], [128, 10]];

const wellFormed = (text) => text.toWellFormed().replaceAll("\0", "\ufffd");

/** Cuts a text in its middle, with a marker: its beginning and its end are what a reader needs. */
export function cutText(text, max) {
  if (text.length <= max) return text;
  const head = Math.ceil((max * 3) / 4);
  const tail = max - head;
  return `${text.slice(0, head)}\n[… ${text.length - max} characters left out …]\n${tail > 0 ? text.slice(-tail) : ""}`;
}

/** A text of at most so many characters that any reader of JSON takes. */
export const plainText = (text, max) => wellFormed(cutText(text, max));

function limited(value, [textMax, itemsMax], depth) {
  if (typeof value === "string") return plainText(value, textMax);
  if (typeof value === "number") return Number.isFinite(value) ? value : null;
  if (typeof value === "boolean" || value === null) return value;
  if (typeof value !== "object") return undefined;
  if (depth >= DEPTH_MAX) return "[… nested too deep …]";
  if (Array.isArray(value)) {
    const kept = value.slice(0, itemsMax).map((item) => limited(item, [textMax, itemsMax], depth + 1) ?? null);
    if (value.length > itemsMax) kept.push(`[… ${value.length - itemsMax} items left out …]`);
    return kept;
  }
  // Without a prototype: a member may be called __proto__.
  const kept = Object.create(null);
  const names = Object.keys(value);
  for (const name of names.slice(0, itemsMax)) {
    const inner = limited(value[name], [textMax, itemsMax], depth + 1);
    if (inner !== undefined) kept[plainText(name, NAME_MAX)] = inner;
  }
  if (names.length > itemsMax) kept["…"] = `${names.length - itemsMax} members left out`;
  return kept;
}

/** The value as JSON of at most `max` bytes, without U+0000, half characters and deep nesting. What is cut has a marker. */
export function boundedJson(value, max = DATA_MAX) {
  for (const step of STEPS) {
    const json = JSON.stringify(limited(value, step, 0) ?? null);
    if (Buffer.byteLength(json) <= max) return json;
  }
  return '{"truncated":true}';
}
