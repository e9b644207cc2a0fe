// Updates the waiting page. The stream (live.js) reports the number that the line has reached; the position is the entry's own
// number minus that number. The status API is polled when the turn has come, or without a stream at the interval it returns.
import { isStreaming, markFresh, on } from "./live.js";
import { ring, wantsNotification } from "./notify.js";

const BACKOFF_MS_MIN = 1_000;
const BACKOFF_MS_MAX = 30_000;
const POLL_MS_MAX = 600_000; // Upper limit of any delay that the server sets; a timer over 24 days would fire immediately.
const TIMEOUT_MS = 20_000;
const ANNOUNCE_MS_MIN = 60_000;
const RELOAD_MS_MIN = 10_000;
const RING_MS = 1_300;
const STREAMING_POLL_MS = 180_000; // With the stream: for changes to this entry alone, and for a better estimate.
const TURN_SPREAD_MS = 1_200; // Spreads the requests of visitors whose turn comes at the same time.
const STATE_SPREAD_MS = 8_000; // Spreads the requests of all waiting visitors when the line is closed.
const TROUBLE = {
  away: "No connection. Your place in line is saved; this page retries automatically.",
  busy: "We’re very busy right now. Your place in line is saved; this page retries automatically.",
  wrong: "We couldn’t update your position. Your place in line is saved; this page retries automatically.",
};
const line = document.querySelector("[data-line]");
const part = (name) => document.querySelector(`[data-line-${name}]`);
const figure = (number) => number.toLocaleString("en-US");
const follows = line.classList.contains("line");
const pageTitle = document.title.replace(/^[^·]*· /, "");
let failures = 0;
let announcedAt = Date.now();
let polledAt = Date.now();
let notBefore = 0;
let isPolling = false;
let timer;
// The latest status; at first from the page. `number` is the entry's own number, absent while positions cannot be computed.
let status = {
  status: line.dataset.status,
  number: Number(line.dataset.number) || undefined,
  position_in_queue: Number(line.dataset.position) || 0,
  estimated_wait_range: (line.dataset.range ?? "").split(" ").map(Number),
};
let position = status.position_in_queue; // As last shown; it never rises.
let statusRate = 0; // The admission rate when the latest status was fetched.
let serving = null; // The latest queue event from the stream.
let pollMs = Number(line.dataset.nextPoll);

// Local storage, which survives reloads; without it only the start of the progress bar is lost.
function load(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}
function save(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // Private windows may refuse to store anything.
  }
}

// The first position of this entry, where the progress bar starts. Stored under the entry's key, so a new entry starts over.
function firstPosition(position) {
  const key = "fairgate-line";
  const [entryKey, number] = (load(key) ?? "").split(" ");
  if (entryKey === line.dataset.key && Number(number) >= position) return Number(number);
  save(key, `${line.dataset.key} ${position}`);
  return position;
}

// In minutes or hours, in halves below 10.
function rounded(seconds, unit, toWhole) {
  const count = seconds / (unit === "hour" ? 3600 : 60);
  return count < 10 ? toWhole(count * 2) / 2 : toWhole(count);
}
const numberWords = (count) => `${Math.floor(count) || ""}${count % 1 ? "½" : ""}`;
function counted(count, unit) {
  if (count === 0.5) return unit === "minute" ? "30 seconds" : "30 minutes";
  return `${numberWords(count)} ${unit}${count === 1 ? "" : "s"}`;
}

const isSpan = (range) => Array.isArray(range) && range.length === 2 && range.every(Number.isFinite) && range[0] >= 0 && range[0] <= range[1];

// The same texts as the server's, in apps/queue/status/status_messages.py.
function waitWords(status) {
  if (status.status === "paused") return "The line is paused. Your place is saved.";
  const range = status.estimated_wait_range;
  if (!isSpan(range) || status.tickets_left === 0) return "No wait estimate yet.";
  if (range[1] <= 60) return "Less than a minute.";
  const [fromUnit, unit] = range.map((end) => (end >= 5400 ? "hour" : "minute"));
  let from = rounded(range[0], fromUnit, Math.floor);
  const to = rounded(range[1], unit, unit === "hour" ? Math.round : Math.ceil);
  // Rounding must not make the interval wider than it is.
  const widestFrom = (to * (unit === fromUnit ? 1 : 60)) / 3;
  if (from < widestFrom && range[1] <= 3.1 * range[0]) from = Math.ceil(widestFrom * 2) / 2;
  if (from === to && fromUnit === unit) return `About ${counted(to, unit)} at the current pace.`;
  if (from === 0) return `Up to ${counted(to, unit)} at the current pace.`;
  if (fromUnit === unit && from > 0.5) return `Between ${numberWords(from)} and ${numberWords(to)} ${unit}s at the current pace.`;
  return `Between ${counted(from, fromUnit)} and ${counted(to, unit)} at the current pace.`;
}

function paceWords(status) {
  if (status.status === "paused") return "Paused";
  const rate = status.rate_per_second;
  if (typeof rate !== "number" || rate <= 0) return "";
  const [count, unit] = rate * 60 >= 1 ? [rate * 60, "a minute"] : [rate * 3600, "an hour"];
  let shown = Math.max(1, Math.round(count));
  if (shown >= 100) {
    const step = 10 ** (String(shown).length - 2);
    shown = Math.floor(shown / step) * step;
  }
  return `${figure(shown)} ${shown === 1 ? "person" : "people"} ${unit}`;
}

function oddsWords(ahead, left) {
  if (typeof left !== "number") return "";
  if (left === 0) return "All tickets are sold or reserved right now. Unpaid tickets go back on sale, and then the line moves on.";
  if (ahead >= left) return "There are more people ahead of you than tickets left. Some may not buy, but you are unlikely to get tickets.";
  if (ahead * 2 >= left) return "Tickets may run out before your turn: many buyers take more than one.";
  return "";
}

const stageOf = (status) => (status.status === "lobby" && status.stage === "drawing" ? "drawing" : status.status);
const STAMPS = { lobby: "Lobby", drawing: "Drawing", paused: "Paused", waiting: "In line", review: "In review", ready: "Your turn" };

// Rejects responses that are not from the status API: from a proxy, a captive portal or a server that is shutting down.
function isStatus(payload) {
  if (typeof payload?.status !== "string") return false;
  if (payload.status !== "waiting" && payload.status !== "paused") return true;
  return Number.isInteger(payload.position_in_queue) && payload.position_in_queue >= 0;
}

function setStage(stage) {
  line.dataset.status = stage;
  part("stamp").textContent = STAMPS[stage];
  part("stamp").classList.toggle("stamp--upcoming", stage === "paused");
  part("stamp").classList.toggle("stamp--on-sale", stage === "ready");
  document.querySelectorAll("[data-line-when]").forEach((block) => {
    block.hidden = !block.dataset.lineWhen.split(" ").includes(stage);
  });
}

function showMessage(text) {
  const region = part("message");
  if ((region.querySelector(".line__message-text")?.textContent ?? "") === text) return;
  region.textContent = "";
  if (!text) return;
  for (const [name, words] of [["head", "From the organizer"], ["text", text]]) {
    const paragraph = document.createElement("p");
    paragraph.className = `line__message-${name}`;
    paragraph.textContent = words;
    region.append(paragraph);
  }
}

function showProgress(position) {
  const first = Math.max(firstPosition(position), 1);
  const done = Math.floor(100 * (1 - position / first)); // 100 only when it is the visitor's turn.
  part("progress").hidden = first < 2;
  part("first").textContent = figure(first);
  part("track").setAttribute("aria-valuenow", done);
  part("track").setAttribute("aria-valuetext", position ? `${figure(position)} of ${figure(first)} to go` : "You’re next");
  part("track").firstElementChild.style.inlineSize = `${done}%`;
}

function show(status) {
  const stage = stageOf(status);
  const changed = stage !== line.dataset.status;
  setStage(stage);
  showMessage(typeof status.message === "string" ? status.message : "");
  let announcement = "";
  if (stage === "lobby") {
    document.title = `In the lobby · ${pageTitle}`;
  } else if (stage === "drawing") {
    announcement = "Your position is being drawn.";
    document.title = `Drawing · ${pageTitle}`;
  } else if (stage === "review") {
    announcement = "The organizer is checking your place in line.";
    document.title = `In review · ${pageTitle}`;
  } else {
    const number = status.position_in_queue ?? 0;
    const ahead = Math.max(0, number - 1);
    const left = status.tickets_left;
    const odds = oddsWords(ahead, left);
    part("position").textContent = number ? figure(number) : "Next";
    const pace = paceWords(status);
    part("wait").textContent = waitWords(status);
    part("moves").hidden = !pace;
    part("pace").textContent = pace;
    part("stock").hidden = typeof left !== "number";
    if (typeof left === "number") part("tickets").textContent = figure(left);
    part("odds").hidden = !odds;
    part("odds").textContent = odds;
    showProgress(number);
    announcement = `${number > 1 ? `Your position in line is ${figure(number)}.` : "You’re next."} ${waitWords(status)}`;
    document.title = `${stage === "paused" ? "Paused · " : ""}${number > 1 ? `${figure(number)} in line` : "You’re next"} · ${pageTitle}`;
  }
  // Announce at most once a minute, not every update: people who use a screen reader also do other things while waiting.
  if (announcement && announcement !== part("says").textContent && (changed || Date.now() - announcedAt > ANNOUNCE_MS_MIN)) {
    announcedAt = Date.now();
    part("says").textContent = announcement;
  }
}

function showTrouble(kind) {
  const region = part("trouble");
  const words = TROUBLE[kind] ?? "";
  if (!region || region.textContent === words) return;
  region.textContent = "";
  if (!words) return;
  const notice = document.createElement("p");
  notice.className = "notice";
  notice.textContent = words;
  region.append(notice);
}

// Reloads the page, which the server renders for the final state. Never twice within RELOAD_MS_MIN: a response that this
// script does not understand must not cause an endless reload.
function reload() {
  const since = Date.now() - (history.state?.reloadedAt ?? 0);
  if (since >= 0 && since < RELOAD_MS_MIN) return false;
  history.replaceState({ ...history.state, reloadedAt: Date.now() }, "");
  location.reload();
  return true;
}

function goOn() {
  location.replace(line.dataset.go);
}

// Opens the ticket page. A visitor who asked for a notification and is in another tab is notified first, and the page opens
// when they return: the time to choose should not start in a tab they cannot see.
function enter() {
  if (!follows) return goOn();
  const first = line.dataset.status !== "ready";
  setStage("ready");
  document.title = `Your turn! · ${pageTitle}`;
  if (first) part("says").textContent = "It’s your turn.";
  if (!wantsNotification()) return goOn();
  if (first) ring(pageTitle.split(" · ")[0]);
  if (!document.hidden) setTimeout(goOn, first ? RING_MS : 0);
}

// Retry-After in seconds or as a date, as in HTTP; 0 if it is neither.
function retryAfterMs(response) {
  const value = response.headers.get("Retry-After");
  if (!value) return 0;
  const delay = /^\d+$/.test(value) ? Number(value) * 1_000 : Date.parse(value) - Date.now();
  return delay > 0 ? Math.min(delay, POLL_MS_MAX) : 0;
}

function backOff(requestedMs) {
  failures += 1;
  const ownMs = Math.min(BACKOFF_MS_MAX, BACKOFF_MS_MIN * 2 ** Math.min(failures, 5));
  // Never sooner than the server requested, and spread over time.
  const delay = requestedMs ? Math.max(requestedMs, ownMs / 2) * (1 + 0.2 * Math.random()) : ownMs * (0.8 + 0.4 * Math.random());
  notBefore = requestedMs ? Date.now() + requestedMs : 0;
  return delay;
}

async function readStatus(response) {
  // A connection that breaks here throws and counts as offline; a complete but invalid body is not from the status API.
  const text = await response.text();
  try {
    const payload = JSON.parse(text);
    return isStatus(payload) ? payload : null;
  } catch {
    return null;
  }
}

async function poll() {
  if (isPolling) return;
  clearTimeout(timer);
  isPolling = true;
  polledAt = Date.now();
  let delay = BACKOFF_MS_MAX;
  try {
    const response = await fetch(line.dataset.statusUrl, {
      headers: { Accept: "application/json" },
      cache: "no-store",
      credentials: "same-origin",
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    if ((response.status === 401 || response.status === 404) && reload()) return;
    if (!response.ok) {
      delay = backOff(retryAfterMs(response));
      showTrouble(response.status === 429 || response.status === 503 ? "busy" : "wrong");
      return;
    }
    const latest = await readStatus(response);
    if (!latest) {
      delay = backOff(0);
      showTrouble("wrong");
      return;
    }
    failures = 0;
    notBefore = 0;
    showTrouble("");
    markFresh();
    pollMs = Math.min(POLL_MS_MAX, Math.max(BACKOFF_MS_MIN / 4, Number(latest.next_poll) || BACKOFF_MS_MAX));
    status = latest;
    position = latest.position_in_queue;
    statusRate = serving?.rate_per_second ?? 0;
    delay = nextPollMs();
    if (latest.status === "ready") enter();
    else if (follows && Object.hasOwn(STAMPS, latest.status)) show(latest);
    else if (latest.status !== line.dataset.status) reload();
  } catch {
    delay = backOff(0);
    showTrouble("away");
  } finally {
    isPolling = false;
    clearTimeout(timer);
    timer = setTimeout(poll, delay);
  }
}

// While the stream reports the line's progress, polling is rarely needed. Exceptions: the lobby, where every entry's number is
// drawn, and the front of the line, where the next status may admit the visitor.
function nextPollMs() {
  const isComputed = isStreaming() && serving && status.number > serving.now_serving && !isLetIn(serving);
  return isComputed ? Math.max(pollMs, STREAMING_POLL_MS * (0.8 + 0.4 * Math.random())) : pollMs;
}

// Whether this entry is admitted ahead of its turn, by an operator or a VIP link.
const isLetIn = (queue) => Array.isArray(queue.let_in) && queue.let_in.includes(status.number);

function pollWithin(ms) {
  if (isPolling) return;
  clearTimeout(timer);
  timer = setTimeout(poll, Math.max(notBefore - Date.now(), Math.random() * ms));
}

// Reschedules the next poll when the stream has connected or disconnected.
function reschedule() {
  if (isPolling || line.dataset.status === "ready") return;
  const left = Math.max(polledAt + nextPollMs(), notBefore) - Date.now();
  clearTimeout(timer);
  timer = setTimeout(poll, Math.max(left, Math.random() * BACKOFF_MS_MIN * 3));
}

// Handles a queue event, which is the same for every entry. Changes to this entry alone come with the next poll.
function onQueue(queue) {
  const before = serving;
  const stage = line.dataset.status;
  serving = queue;
  if (!follows || stage === "ready") return;
  if (!before) reschedule();
  if (queue.state !== before?.state && (queue.state === "drained" || queue.state === "off")) return pollWithin(STATE_SPREAD_MS);
  if (typeof queue.message === "string") showMessage(queue.message);
  if (!status.number || (stage !== "waiting" && stage !== "paused")) return;
  if (isLetIn(queue)) {
    if (!before || !isLetIn(before)) pollWithin(TURN_SPREAD_MS);
    return;
  }
  if (status.number <= queue.now_serving) {
    // Poll only once: the response contains the next state and the time of the next poll.
    if (!before || before.now_serving < status.number) pollWithin(TURN_SPREAD_MS);
    return;
  }
  position = Math.min(position, status.number - queue.now_serving);
  const current = { ...status, position_in_queue: position, status: queue.state === "paused" ? "paused" : "waiting", message: queue.message };
  if (queue.tickets_left !== undefined) current.tickets_left = queue.tickets_left;
  if (queue.rate_per_second !== undefined) current.rate_per_second = queue.rate_per_second;
  if (isSpan(status.estimated_wait_range) && status.position_in_queue > 0) {
    // Scale the server's estimate by the share of the line that is left and by the change in rate.
    const share = position / status.position_in_queue;
    const slowdown = statusRate > 0 && queue.rate_per_second > 0 ? statusRate / queue.rate_per_second : 1;
    const [from, to] = status.estimated_wait_range;
    current.estimated_wait_range = [Math.floor(from * share), Math.ceil(to * share * slowdown)];
  }
  show(current);
}

// After sleep, a lost connection or a tab switch: poll at once, because the turn may have come. Never earlier than the server
// requested, and only once if several of these events fire together.
function pollNow() {
  if (line.dataset.status === "ready") {
    if (!document.hidden) goOn();
    return;
  }
  if (Date.now() >= notBefore && Date.now() - polledAt >= BACKOFF_MS_MIN) poll();
}

// With scripts, leaving takes a second click. Without them, the page's periodic reload would close the confirmation.
if (follows) part("leave").hidden = false;
if (follows && (line.dataset.status === "waiting" || line.dataset.status === "paused")) {
  showProgress(Number(line.dataset.position));
}
timer = setTimeout(poll, pollMs);
on("queue", onQueue);
document.addEventListener("live:connection", reschedule);
addEventListener("online", pollNow);
addEventListener("offline", () => showTrouble("away"));
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && pollNow());
addEventListener("pageshow", (event) => event.persisted && pollNow());
