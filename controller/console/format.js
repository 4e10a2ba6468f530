// Numbers and times as people read them.

import { signal } from "@preact/signals";

/** The time, every second while the tab is shown. */
export const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);

export function duration(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60 ? `${s % 60} s` : ""}`.trim();
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

/** Returns how long ago a time was, in its largest unit. */
export function age(text) {
  const s = Math.max(0, Math.floor((now.value - Date.parse(text)) / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86_400)} d`;
}

export function time(text) {
  return text ? new Date(text).toLocaleTimeString([], { hour12: false }) : "";
}

export function dateTime(text) {
  return text ? `${text.slice(0, 10)} ${text.slice(11, 19)} UTC` : "";
}

export function dollars(amount) {
  if (amount === null || amount === undefined) return "";
  const value = Number(amount);
  if (value > 0 && value < 0.0001) return "< $0.0001";
  return `$${value.toFixed(value !== 0 && Math.abs(value) < 0.1 ? 4 : 2)}`;
}

export function bytes(count) {
  if (count < 1024) return `${count} B`;
  if (count < 1024 * 1024) return `${(count / 1024).toFixed(1)} KiB`;
  if (count < 1024 ** 3) return `${(count / 1024 ** 2).toFixed(1)} MiB`;
  return `${(count / 1024 ** 3).toFixed(1)} GiB`;
}

export const count = (value) => Number(value ?? 0).toLocaleString("en");

/** Returns the known cost of a call in dollars; null if it is not known. */
export function callCost(data) {
  const usd = data.cost?.known?.usd;
  return usd === undefined ? null : Number(usd);
}

/** True until a run has ended. */
export const isLive = (run) => !["COMPLETED", "FAILED"].includes(run.state);

/** Returns seconds of a time in microseconds. */
export const seconds = (us) => `${(us / 1e6).toFixed(2)} s`;
