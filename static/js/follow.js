// A page that follows what it shows: it looks again by itself, and puts in what changed.
//
// [data-follow=WORD]         what it shows, in one word: another word in the fresh page is news
//   data-follow-open         it is looked at again while this is there
//   data-follow-ms=N         how often at first; the longer nothing happens, the less often
//   data-follow-reload       the whole page is loaded again when there is news
//   data-follow-known=WORDS  how the order or the reservation stands, as the page's stream tells it (live.js): other
//                            words are a reason to look at once; while they come the page looks by itself but seldom
// [data-follow-says]         takes the news for those who listen
// [data-follow-trouble]      shown while the network is away: nothing is lost by that

import { heardElsewhere, isHeard, on, stopListening } from "./live.js";

const FIRST_MS = 1500;
const SLOWEST_MS = 6000;
const TROUBLED_MS = 15_000;
const HIDDEN_MS = 20_000;
const ANSWER_MS = 8000;
const QUIET_MS = 25_000;
const TROUBLES_SHOWN_FROM = 2;
const voice = document.querySelector("[data-follow-says]");
const trouble = document.querySelector("[data-follow-trouble]");
let wait = FIRST_MS;
let troubles = 0;
let timer;
let looking = false;
let lookAgain = false;

async function look() {
  const shown = document.querySelector("[data-follow]");
  if (!shown || !("followOpen" in shown.dataset) || looking) return;
  looking = true;
  let asked = 0;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
    asked = Number(answer.headers.get("Retry-After")) * 1000 || 0;
    if (!answer.ok) throw new Error(String(answer.status));
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("[data-follow]");
    if (!fresh) throw new Error("the page is not the one it was");
    isWell();
    heardElsewhere();
    if (fresh.dataset.follow === shown.dataset.follow) wait = Math.min(wait * 1.15, SLOWEST_MS);
    else if ("followReload" in shown.dataset) return location.reload();
    else takeIn(shown, fresh, page.title);
  } catch {
    // What it shows goes on without us; only the looking slows down.
    wait = Math.min(Math.max(wait, FIRST_MS) * 2, TROUBLED_MS);
    troubles += 1;
    if (trouble && troubles >= TROUBLES_SHOWN_FROM) trouble.hidden = false;
  } finally {
    looking = false;
  }
  if (lookAgain) return soon();
  again(Math.max(wait, asked));
}

function isWell() {
  if (troubles >= TROUBLES_SHOWN_FROM && voice) voice.textContent = "Connected again.";
  if (troubles) wait = firstWait();
  troubles = 0;
  if (trouble) trouble.hidden = true;
}

function takeIn(shown, fresh, title) {
  const held = shown.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const before = shown.querySelector("h1")?.textContent;
  shown.replaceWith(fresh);
  document.title = title;
  wait = firstWait();
  if (!("followOpen" in fresh.dataset)) stopListening();
  const heading = fresh.querySelector("h1");
  if (voice && heading && heading.textContent !== before) voice.textContent = heading.textContent;
  // Who stood on a link with the keyboard stands on it still, or at the top of the news.
  if (held !== null) ([...fresh.querySelectorAll("a[href]")].find((link) => link.getAttribute("href") === held) ?? focusable(heading))?.focus();
  fresh.dispatchEvent(new CustomEvent("follow:news", { bubbles: true }));
}

function focusable(element) {
  if (element) element.tabIndex = -1;
  return element;
}

function firstWait() {
  return Number(document.querySelector("[data-follow]")?.dataset.followMs) || FIRST_MS;
}

function again(ms) {
  clearTimeout(timer);
  const pause = document.hidden ? Math.max(ms, HIDDEN_MS) : isHeard() ? Math.max(ms, QUIET_MS) : ms;
  timer = setTimeout(look, pause * (0.9 + Math.random() * 0.2));
}

function atOnce() {
  if (document.hidden) return;
  wait = firstWait();
  clearTimeout(timer);
  look();
}

// The stream has told of something that the page does not show. What is told while a look is under way may have happened
// after it was answered.
function heard(words) {
  const shown = document.querySelector("[data-follow]");
  if (!shown || words === shown.dataset.followKnown) return;
  if (looking) lookAgain = true;
  else soon();
}

function soon() {
  lookAgain = false;
  clearTimeout(timer);
  look();
}

on("order", (order) => heard([order.status, order.payment_state, order.attempt, order.refunded_minor, order.action ?? ""].join(" ")));
on("reservation", (reservation) => heard(reservation.status));
document.addEventListener("live:connection", () => again(wait));
addEventListener("online", atOnce);
document.addEventListener("visibilitychange", atOnce);
wait = firstWait();
again(wait);
