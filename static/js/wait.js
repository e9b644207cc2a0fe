// The line moves while one waits: the stream tells how far it is (live.js), one's place is the own number less that, and
// the house is asked when the turn has come. While nothing is heard it is asked again when the answer said to.
import { heardElsewhere, isStreaming, on } from "./live.js";
import { ring, wantsToBeTold } from "./tell.js";

const AGAIN_MS_MIN = 1_000;
const AGAIN_MS_MAX = 30_000;
const REST_MS_MAX = 600_000; // Nobody is sent away for longer; a timer of more than 24 days would even go off at once.
const ANSWER_MS_MAX = 20_000;
const SPEAK_MS_MIN = 60_000;
const RELOAD_MS_MIN = 10_000;
const RING_MS = 1_300;
const QUIET_MS = 180_000; // With the stream: for what is about this place alone, and for a better estimate.
const TURN_SPREAD_MS = 1_200; // Those whose turn comes together do not ask together.
const NEWS_SPREAD_MS = 8_000; // Nor do all who wait when the line is closed.
const TROUBLE = {
  away: "No connection right now. Your place is kept; this page tries again by itself.",
  busy: "Very many people are here right now. Your place is kept; this page asks again by itself.",
  wrong: "We could not look up your place just now. It is kept; this page asks again by itself.",
};
const line = document.querySelector("[data-line]");
const part = (name) => document.querySelector(`[data-line-${name}]`);
const figure = (number) => number.toLocaleString("en-US");
const follows = line.classList.contains("line");
const pageTitle = document.title.replace(/^[^·]*· /, "");
let trouble = 0;
let spokenAt = Date.now();
let askedAt = Date.now();
let notBefore = 0;
let asking = false;
let timer;
// The last answer; at first what the page says. `number` is one's own, absent where there is nothing to reckon with.
let told = {
  status: line.dataset.status,
  number: Number(line.dataset.number) || undefined,
  position_in_queue: Number(line.dataset.place) || 0,
  estimated_wait_range: (line.dataset.range ?? "").split(" ").map(Number),
};
let place = told.position_in_queue; // As it was shown last: nobody's ever rises.
let rateThen = 0; // How fast the line was said to be when that answer came.
let serving = null; // What the stream told last of the line.
let pollMs = Number(line.dataset.nextPoll);

// What is kept over reloads; a browser that keeps nothing only forgets where one began.
function recall(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}
function keep(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // Private windows may refuse.
  }
}

// Where this place began, so that the way to the front has a length. Told apart by the place's own key: a new place
// begins anew.
function firstPlace(place) {
  const key = "fairgate-line";
  const [whose, number] = (recall(key) ?? "").split(" ");
  if (whose === line.dataset.key && Number(number) >= place) return Number(number);
  keep(key, `${line.dataset.key} ${place}`);
  return place;
}

function spanWords(seconds) {
  const minutes = Math.ceil(seconds / 60);
  return minutes < 90 ? [minutes, "minute"] : [Math.round(minutes / 60), "hour"];
}

const isSpan = (range) => Array.isArray(range) && range.length === 2 && range.every(Number.isFinite) && range[0] >= 0 && range[0] <= range[1];

// The same words as the page's own, in apps/queue/status/status_messages.py.
function waitWords(place) {
  if (place.status === "paused") return "The line stands still for a moment. Your place is safe.";
  const range = place.estimated_wait_range;
  if (!isSpan(range) || place.tickets_left === 0) return "Nobody can say yet how long it takes.";
  if (range[1] <= 60) return "Less than a minute.";
  const [from, fromUnit] = spanWords(range[0]);
  const [to, unit] = spanWords(range[1]);
  const counted = (count, name) => `${count} ${name}${count === 1 ? "" : "s"}`;
  if (from === to && fromUnit === unit) return `About ${counted(to, unit)}, as things go now.`;
  if (from === 0) return `Up to ${counted(to, unit)}, as things go now.`;
  if (fromUnit === unit) return `Between ${from} and ${to} ${unit}s, as things go now.`;
  return `Between ${counted(from, fromUnit)} and ${counted(to, unit)}, as things go now.`;
}

function oddsWords(ahead, left) {
  if (typeof left !== "number") return "";
  if (left === 0) return "Every ticket is sold or held right now. Whatever is not paid for comes back, and the line goes on.";
  if (ahead >= left) return "More people are ahead of you than tickets are left. Some will not buy, so it is not over, but it is unlikely.";
  if (ahead * 2 >= left) return "It may be close: many buy more than one ticket.";
  return "";
}

const stageOf = (place) => (place.status === "lobby" && place.stage === "drawing" ? "drawing" : place.status);
const STAMPS = { lobby: "Lobby", drawing: "Drawing", paused: "Paused", waiting: "In line", ready: "Your turn" };

// A proxy on the way, a hotel's log-in page, a server half way down: what is no answer of ours changes nothing here.
function isPlace(answer) {
  if (typeof answer?.status !== "string") return false;
  if (answer.status !== "waiting" && answer.status !== "paused") return true;
  return Number.isInteger(answer.position_in_queue) && answer.position_in_queue >= 0;
}

function turnTo(stage) {
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
  for (const [name, words] of [["head", "From the organiser"], ["text", text]]) {
    const paragraph = document.createElement("p");
    paragraph.className = `line__message-${name}`;
    paragraph.textContent = words;
    region.append(paragraph);
  }
}

function showProgress(place) {
  const first = Math.max(firstPlace(place), 1);
  const done = Math.floor(100 * (1 - place / first)); // Full is when it is one's turn, not a little before.
  part("progress").hidden = first < 2;
  part("first").textContent = figure(first);
  part("track").setAttribute("aria-valuenow", done);
  part("track").setAttribute("aria-valuetext", place ? `${figure(place)} of ${figure(first)} to go` : "You are next");
  part("track").firstElementChild.style.inlineSize = `${done}%`;
}

function show(place) {
  const stage = stageOf(place);
  const changed = stage !== line.dataset.status;
  turnTo(stage);
  showMessage(typeof place.message === "string" ? place.message : "");
  let said = "";
  if (stage === "lobby") {
    document.title = `In the lobby · ${pageTitle}`;
  } else if (stage === "drawing") {
    said = "Your place is being drawn.";
    document.title = `Drawing · ${pageTitle}`;
  } else {
    const number = place.position_in_queue ?? 0;
    const ahead = Math.max(0, number - 1);
    const left = place.tickets_left;
    const odds = oddsWords(ahead, left);
    part("place").textContent = number ? figure(number) : "Next";
    part("ahead").textContent = figure(ahead);
    part("wait").textContent = waitWords(place);
    part("stock").hidden = typeof left !== "number";
    if (typeof left === "number") part("tickets").textContent = figure(left);
    part("odds").hidden = !odds;
    part("odds").textContent = odds;
    showProgress(number);
    said = `${number > 1 ? `Number ${figure(number)} in line.` : "You are next."} ${waitWords(place)}`;
    document.title = `${stage === "paused" ? "Paused, " : ""}${number > 1 ? `${figure(number)} in line` : "You are next"} · ${pageTitle}`;
  }
  // Said now and then, not at every answer: who listens wants to do something else meanwhile.
  if (said && said !== part("says").textContent && (changed || Date.now() - spokenAt > SPEAK_MS_MIN)) {
    spokenAt = Date.now();
    part("says").textContent = said;
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

// The page itself says how it ended. Not twice in a row: an answer that only this script does not understand must not
// make the page load for ever.
function loadAgain() {
  const since = Date.now() - (history.state?.loadedAgainAt ?? 0);
  if (since >= 0 && since < RELOAD_MS_MIN) return false;
  history.replaceState({ ...history.state, loadedAgainAt: Date.now() }, "");
  location.reload();
  return true;
}

function goOn() {
  location.replace(line.dataset.go);
}

// Whoever looks at the page goes straight on. Whoever asked to be told and looks elsewhere is called first, and goes on
// with the first look: the seats would otherwise wait in a tab that nobody knows of.
function comeIn() {
  if (!follows) return goOn();
  const first = line.dataset.status !== "ready";
  turnTo("ready");
  document.title = `Your turn! · ${pageTitle}`;
  if (first) part("says").textContent = "It is your turn.";
  if (!wantsToBeTold()) return goOn();
  if (first) ring(pageTitle.split(" · ")[0]);
  if (!document.hidden) setTimeout(goOn, first ? RING_MS : 0);
}

// Seconds or a date, as HTTP has it; what is neither counts as nothing.
function retryAfterMs(answer) {
  const said = answer.headers.get("Retry-After");
  if (!said) return 0;
  const wanted = /^\d+$/.test(said) ? Number(said) * 1_000 : Date.parse(said) - Date.now();
  return wanted > 0 ? Math.min(wanted, REST_MS_MAX) : 0;
}

function backOff(wantedMs) {
  trouble += 1;
  const own = Math.min(AGAIN_MS_MAX, AGAIN_MS_MIN * 2 ** Math.min(trouble, 5));
  // Never sooner than was asked for, and not all at once.
  const again = wantedMs ? Math.max(wantedMs, own / 2) * (1 + 0.2 * Math.random()) : own * (0.8 + 0.4 * Math.random());
  notBefore = wantedMs ? Date.now() + wantedMs : 0;
  return again;
}

async function readPlace(answer) {
  // A line that breaks half-way is no connection; what came whole and makes no sense is not ours.
  const text = await answer.text();
  try {
    const place = JSON.parse(text);
    return isPlace(place) ? place : null;
  } catch {
    return null;
  }
}

async function ask() {
  if (asking) return;
  clearTimeout(timer);
  asking = true;
  askedAt = Date.now();
  let again = AGAIN_MS_MAX;
  try {
    const answer = await fetch(line.dataset.statusUrl, {
      headers: { Accept: "application/json" },
      cache: "no-store",
      credentials: "same-origin",
      signal: AbortSignal.timeout(ANSWER_MS_MAX),
    });
    if ((answer.status === 401 || answer.status === 404) && loadAgain()) return;
    if (!answer.ok) {
      again = backOff(retryAfterMs(answer));
      showTrouble(answer.status === 429 || answer.status === 503 ? "busy" : "wrong");
      return;
    }
    const said = await readPlace(answer);
    if (!said) {
      again = backOff(0);
      showTrouble("wrong");
      return;
    }
    trouble = 0;
    notBefore = 0;
    showTrouble("");
    heardElsewhere();
    pollMs = Math.min(REST_MS_MAX, Math.max(AGAIN_MS_MIN / 4, Number(said.next_poll) || AGAIN_MS_MAX));
    told = said;
    place = said.position_in_queue;
    rateThen = serving?.rate_per_second ?? 0;
    again = restMs();
    if (said.status === "ready") comeIn();
    else if (follows && Object.hasOwn(STAMPS, said.status)) show(said);
    else if (said.status !== line.dataset.status) loadAgain();
  } catch {
    again = backOff(0);
    showTrouble("away");
  } finally {
    asking = false;
    clearTimeout(timer);
    timer = setTimeout(ask, again);
  }
}

// While the stream says how far the line is, there is next to nothing to ask for: but in a lobby, whose numbers are drawn
// for each, and at the front, where the answer may be that it is one's turn.
function restMs() {
  const isReckoned = isStreaming() && serving && told.number > serving.now_serving && !isLetIn(serving);
  return isReckoned ? Math.max(pollMs, QUIET_MS * (0.8 + 0.4 * Math.random())) : pollMs;
}

// Ahead of its turn, by hand or by a link.
const isLetIn = (news) => Array.isArray(news.let_in) && news.let_in.includes(told.number);

function askWithin(ms) {
  if (asking) return;
  clearTimeout(timer);
  timer = setTimeout(ask, Math.max(notBefore - Date.now(), Math.random() * ms));
}

// What is left of the time that goes with the last answer, now that the stream has come or gone.
function setTimer() {
  if (asking || line.dataset.status === "ready") return;
  const left = Math.max(askedAt + restMs(), notBefore) - Date.now();
  clearTimeout(timer);
  timer = setTimeout(ask, Math.max(left, Math.random() * AGAIN_MS_MIN * 3));
}

// How far the line is, for everybody in it. What only this place can be told the next answer says.
function follow(news) {
  const before = serving;
  const stage = line.dataset.status;
  serving = news;
  if (!follows || stage === "ready") return;
  if (!before) setTimer();
  if (news.state !== before?.state && (news.state === "drained" || news.state === "off")) return askWithin(NEWS_SPREAD_MS);
  if (typeof news.message === "string") showMessage(news.message);
  if (!told.number || (stage !== "waiting" && stage !== "paused")) return;
  if (isLetIn(news)) {
    if (!before || !isLetIn(before)) askWithin(TURN_SPREAD_MS);
    return;
  }
  if (told.number <= news.now_serving) {
    // Once: the answer says what becomes of it, and when to ask again.
    if (!before || before.now_serving < told.number) askWithin(TURN_SPREAD_MS);
    return;
  }
  place = Math.min(place, told.number - news.now_serving);
  const said = { ...told, position_in_queue: place, status: news.state === "paused" ? "paused" : "waiting", message: news.message };
  if (news.tickets_left !== undefined) said.tickets_left = news.tickets_left;
  if (isSpan(told.estimated_wait_range) && told.position_in_queue > 0) {
    // As the answer reckoned it, for the way that is left and the speed of now.
    const way = place / told.position_in_queue;
    const slower = rateThen > 0 && news.rate_per_second > 0 ? rateThen / news.rate_per_second : 1;
    const [from, to] = told.estimated_wait_range;
    said.estimated_wait_range = [Math.floor(from * way), Math.ceil(to * way * slower)];
  }
  show(said);
}

// After sleep, a lost network or another tab: at once, for a turn may have come. But never before the time that the
// house has asked for, and not twice for one waking.
function askNow() {
  if (line.dataset.status === "ready") {
    if (!document.hidden) goOn();
    return;
  }
  if (Date.now() >= notBefore && Date.now() - askedAt >= AGAIN_MS_MIN) ask();
}

// With scripts leaving takes a second press. Without them the page looks again every few seconds and would take it back.
if (follows) part("leave").hidden = false;
if (follows && (line.dataset.status === "waiting" || line.dataset.status === "paused")) {
  showProgress(Number(line.dataset.place));
}
timer = setTimeout(ask, pollMs);
on("queue", follow);
document.addEventListener("live:connection", setTimer);
addEventListener("online", askNow);
addEventListener("offline", () => showTrouble("away"));
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && askNow());
addEventListener("pageshow", (event) => event.persisted && askNow());
