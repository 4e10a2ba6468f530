// The entry of the console. The page in `data-page` replaces the server-rendered content once it has its first data. What is on
// every page does not wait for that.

import { h, render } from "preact";
import htm from "htm";
import { effect } from "@preact/signals";
import { loggedOut, send } from "./api.js";
import { start as showWaiting } from "./waiting.js";

const html = htm.bind(h);
const PAGES = {
  sandboxes: "./list.js", sandbox: "./run.js", new: "./new.js", approvals: "./approvals.js", chat: "./chat.js", agents: "./agents.js",
  spending: "./spending.js", host: "./host.js",
};

if (document.getElementById("waiting")) showWaiting();

const leave = document.getElementById("logout");
if (leave) {
  leave.hidden = false;
  leave.addEventListener("click", async () => {
    // A conversation is kept for this session alone. The page of the chat stores it once more when it is left: this comes later.
    addEventListener("pagehide", () => sessionStorage.clear());
    await send("POST", "/api/v1/session/logout");
    location.replace("/login");
  });
}

const notice = document.getElementById("notice");
effect(() => {
  const text = html`<p role="alert" class="notice">
    Your session has ended. <a href="/login" target="_blank" rel="noopener">Log in</a> with
    ${" "}<code>sluice open --print</code>; this page then goes on where it was.
  </p>`;
  render(loggedOut.value ? text : null, notice);
});

const main = document.getElementById("app");
const page = PAGES[document.body.dataset.page];
if (page) {
  const { start } = await import(page);
  await start((view) => {
    const before = [...main.childNodes];
    main.replaceChildren();
    try {
      render(view, main);
    } catch (error) {
      // What the daemon has rendered comes back, and nothing draws into it any more.
      render(null, main);
      const text = document.createElement("p");
      text.className = "fault";
      text.setAttribute("role", "alert");
      text.textContent = "This page cannot be shown. Below is its state when it was opened. The commands of sluice work in a terminal.";
      main.replaceChildren(text, ...before);
      throw error;
    }
  });
}
