// Edits of files that an agent reports, as events. Pure.
import { cutText } from "./bounded_json.mjs";

const PREVIEW_LINES = 100;
const PREVIEW_MAX = 5000; // characters
const DIFF_MAX = 32_000; // characters: the longest text that an event holds whole

const textOf = (value) => (typeof value === "string" ? value : "");

/** The data of agent.file_edited from a unified diff without a head. */
export function fileEdited(path, changeType, diff) {
  const lines = diff === "" ? [] : diff.replace(/\n$/, "").split("\n");
  const data = {
    file_path: path,
    change_type: changeType,
    lines_added: lines.filter((line) => line.startsWith("+")).length,
    lines_removed: lines.filter((line) => line.startsWith("-")).length,
    diff_preview: cutText(lines.slice(0, PREVIEW_LINES).join("\n"), PREVIEW_MAX),
  };
  if (lines.length > PREVIEW_LINES || diff.length > PREVIEW_MAX) data.full_diff = cutText(diff, DIFF_MAX);
  return data;
}

/** A diff from the hunks that Claude Code reports: {oldStart, oldLines, newStart, newLines, lines}. */
export function diffOfHunks(hunks) {
  return hunks
    .filter((hunk) => Array.isArray(hunk?.lines))
    .map((hunk) => {
      const lines = hunk.lines.map(textOf);
      const range = (start, count) => [start, count].map((n) => (Number.isInteger(n) ? n : 0)).join();
      return [
        `@@ -${range(hunk.oldStart, hunk.oldLines)} +${range(hunk.newStart, hunk.newLines)} @@`,
        ...lines,
      ].join("\n");
    })
    .join("\n");
}

/** The diff of a new file. */
export function diffOfNewFile(content) {
  const lines = textOf(content).replace(/\n$/, "").split("\n");
  return content ? [`@@ -0,0 +1,${lines.length} @@`, ...lines.map((line) => `+${line}`)].join("\n") : "";
}
