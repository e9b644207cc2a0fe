// Keeps an order or reservation page up to date: refetches it and replaces the part that changed.
//
// [data-follow=WORD]         the state shown; a refetch with another word means that the page has changed
//   data-follow-open         refetch while this attribute is present
//   data-follow-ms=N         the first interval; it grows while nothing changes
//   data-follow-reload       reload the whole page when it has changed
//   data-follow-known=WORDS  the order's or reservation's state in the format of the stream's events (live.js): an event
//                            with another state triggers a refetch; while the stream is connected, polling is rare
// [data-follow-says]         the live region for screen readers
// [data-follow-trouble]      shown while the network is down

import { disconnect, isConnected, markFresh, on } from "./live.js";

const FIRST_MS = 1500;
const SLOWEST_MS = 6000;
const FAILED_MS_MAX = 15_000;
const HIDDEN_MS = 20_000;
const TIMEOUT_MS = 8000;
const STREAMING_MS = 25_000;
const FAILURES_SHOWN_FROM = 2;
const voice = document.querySelector("[data-follow-says]");
const trouble = document.querySelector("[data-follow-trouble]");
let wait = FIRST_MS;
let failures = 0;
let timer;
let isFetching = false;
let fetchAgain = false;

async function refetch() {
  const shown = document.querySelector("[data-follow]");
  if (!shown || !("followOpen" in shown.dataset) || isFetching) return;
  isFetching = true;
  let retryAfter = 0;
  try {
    const response = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
    retryAfter = Number(response.headers.get("Retry-After")) * 1000 || 0;
    if (!response.ok) throw new Error(String(response.status));
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const fresh = page.querySelector("[data-follow]");
    if (!fresh) throw new Error("the response is another page");
    recover();
    markFresh();
    if (fresh.dataset.follow === shown.dataset.follow) wait = Math.min(wait * 1.15, SLOWEST_MS);
    else if (response.redirected) return location.replace(response.url); // This page is the answer to a form: the new state has a page of its own.
    else if ("followReload" in shown.dataset) return location.reload();
    else replace(shown, fresh, page);
  } catch {
    // The server processes the order or reservation without this page; back off.
    wait = Math.min(Math.max(wait, FIRST_MS) * 2, FAILED_MS_MAX);
    failures += 1;
    if (trouble && failures >= FAILURES_SHOWN_FROM) trouble.hidden = false;
  } finally {
    isFetching = false;
  }
  if (fetchAgain) return refetchNow();
  schedule(Math.max(wait, retryAfter));
}

function recover() {
  if (failures >= FAILURES_SHOWN_FROM && voice) voice.textContent = "Connected again.";
  if (failures) wait = firstWait();
  failures = 0;
  if (trouble) trouble.hidden = true;
}

function replace(shown, fresh, page) {
  const focusedHref = shown.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const before = shown.querySelector("h1")?.textContent;
  shown.replaceWith(fresh);
  document.title = page.title;
  // The new state may need another width.
  document.getElementById("main").className = page.getElementById("main").className;
  wait = firstWait();
  if (!("followOpen" in fresh.dataset)) disconnect();
  const heading = fresh.querySelector("h1");
  if (voice && heading && heading.textContent !== before) voice.textContent = heading.textContent;
  // Keep the keyboard focus on the same link, else move it to the new heading.
  if (focusedHref !== null) ([...fresh.querySelectorAll("a[href]")].find((link) => link.getAttribute("href") === focusedHref) ?? focusable(heading))?.focus();
  fresh.dispatchEvent(new CustomEvent("follow:news", { bubbles: true }));
}

function focusable(element) {
  if (element) element.tabIndex = -1;
  return element;
}

function firstWait() {
  return Number(document.querySelector("[data-follow]")?.dataset.followMs) || FIRST_MS;
}

function schedule(ms) {
  clearTimeout(timer);
  const delay = document.hidden ? Math.max(ms, HIDDEN_MS) : isConnected() ? Math.max(ms, STREAMING_MS) : ms;
  timer = setTimeout(refetch, delay * (0.9 + Math.random() * 0.2));
}

function onReturn() {
  if (document.hidden) return;
  wait = firstWait();
  clearTimeout(timer);
  refetch();
}

// Handles a state from the stream that the page may not show yet. An event that arrives during a refetch may have happened
// after its response was rendered, so another refetch follows.
function onState(state) {
  const shown = document.querySelector("[data-follow]");
  if (!shown || state === shown.dataset.followKnown) return;
  if (isFetching) fetchAgain = true;
  else refetchNow();
}

function refetchNow() {
  fetchAgain = false;
  clearTimeout(timer);
  refetch();
}

on("order", (order) => onState([order.status, order.payment_state, order.attempt, order.refunded_minor, order.action ?? ""].join(" ")));
on("reservation", (reservation) => onState(reservation.status));
document.addEventListener("live:connection", () => schedule(wait));
addEventListener("online", onReturn);
document.addEventListener("visibilitychange", onReturn);
wait = firstWait();
schedule(wait);
