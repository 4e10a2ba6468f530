// Signs of a run's state outside of its page: the title, the icon of the tab, and notifications for those who ask for them.

import { effect, signal } from "@preact/signals";

/** True if this reader wants notifications, and the browser lets the page send them. */
export const notifies = signal(false);

const ICONS = { green: "icon-running.svg", blue: "icon-running.svg", yellow: "icon-waiting.svg", red: "icon-failed.svg", done: "icon-done.svg" };

/** Number of runs that wait for a person. */
export const waiting = signal(0);
const title = signal(document.title);
effect(() => {
  document.title = waiting.value > 0 ? `(${waiting.value}) ${title.value}` : title.value;
});

/** Shows a state in the title and in the icon. The words are those of this page. */
export function sign(words, tone, name) {
  title.value = `${words}: ${name} - Sluice`;
  const icon = document.querySelector("link[rel=icon]");
  const href = new URL(`./${ICONS[tone] ?? "icon.svg"}`, import.meta.url).pathname;
  if (icon.getAttribute("href") !== href) icon.setAttribute("href", href);
}

/** Asks the browser, which asks the reader. */
export async function askForNotifications() {
  notifies.value = "Notification" in window && (await Notification.requestPermission()) === "granted";
  return notifies.value;
}

/** Tells a reader who looks elsewhere. The text has ids and words of this page: none of an agent. */
export function tell(words, id) {
  if (!notifies.value || !document.hidden) return;
  const notification = new Notification(`Sluice: ${words}`, { body: id, tag: `${id} ${words}` });
  notification.addEventListener("click", () => window.focus());
}
