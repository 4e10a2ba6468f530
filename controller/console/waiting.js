// The number of runs that wait for a person: in the navigation of each page, and at the beginning of its title.

import { effect } from "@preact/signals";
import { get } from "./api.js";
import { waiting } from "./state_signs.js";
import { asksSeen, collect } from "./stream.js";

/** Milliseconds between two looks of a page whose stream has no such events. */
const EVERY = 15_000;

async function look() {
  // Without a session, it is tried as well: a person may have logged in again in another tab.
  if (document.hidden) return;
  try {
    waiting.value = (await get("/api/v1/sandboxes?limit=1")).awaiting_person;
  } catch {
    // The page itself says that the daemon does not answer.
  }
}

export function start() {
  const badge = document.getElementById("waiting");
  const soon = collect(look, 300);
  effect(() => {
    badge.hidden = waiting.value === 0;
    badge.textContent = String(waiting.value);
    badge.setAttribute("aria-label", `${waiting.value} wait for a person`);
  });
  effect(() => {
    asksSeen.value;
    soon();
  });
  setInterval(soon, EVERY);
  document.addEventListener("visibilitychange", soon);
}
