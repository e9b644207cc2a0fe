// What changes, heard by one stream for the whole page while somebody looks at it, and told to its parts. Only ever
// imported: a second copy of this module would be a second stream.
//
// [data-live=URL]            where the stream is
//   data-live-poll           without a stream the same is asked for every few seconds; else the page's parts ask for
//                            themselves, and the state says data-live-else
//   data-live-order=ID, data-live-reservation=ID    its owner hears of these
// [data-live-state]          says how fresh the page is
//
// Tells on the document: live:sections, live:queue, live:seats, live:reservation, live:order, live:announcement with
// what came as detail; live:connection {way} when that changes: "stream", "poll" or "" (nothing is heard);
// live:refused {status, type} when what is personal is not, or no longer, for this visitor.
//
// Read by fetch and not by EventSource: that one hides the heartbeats, so it cannot tell a quiet house from a dead line,
// and the status, so it cannot tell a house that is full from somebody who may not listen.

const FIRST_MS_MAX = 8_000; // Something is told at once; who hears nothing sits behind a proxy that gathers it.
const SILENT_MS_MAX = 40_000; // The heart beats every 15 seconds.
const BACK_MS = 2_500; // After a line that broke without a word, each at another moment.
const GRACE_MS = 6_000; // So long a line may be away before anybody says so.
const HIDDEN_MS = 30_000; // A browser has six connections to a house, and who looks elsewhere needs none of them.
const AWAY_MS_MIN = 2_000;
const AWAY_MS_MAX = 30_000;
const POLL_MS = 4_000;
const POLL_MS_MAX = 60_000;
const STREAM_AGAIN_MS = 30_000;
const STREAM_AGAIN_MS_MAX = 300_000;
const ANSWER_MS_MAX = 15_000;

const home = document.querySelector("[data-live]");
const faces = document.querySelectorAll("[data-live-state]");
const latest = new Map();
let sections = [];
let isPersonal = true; // Until the house says that it is not for us.
let round = 0; // Each new beginning ends what the one before still waits for.
let line = null; // Ends the request that is under way.
let lastId = "";
let way = "";
let isCountedForAll = true;
let heardAt = 0;
let lostAt = 0;
let grace = 0;
let hiding = 0;
let wasAway = false;
let isRunning = false;
let hasTried = false;

export const isHeard = () => way !== "";
export const isStreaming = () => way === "stream";

// Calls `act` with everything of this kind from now on, and with what was told of it last.
export function on(kind, act) {
  document.addEventListener(`live:${kind}`, (event) => act(event.detail));
  if (latest.has(kind)) act(latest.get(kind));
}

// The seats of these sections are wanted, four at most: each is told whole at first. The stream begins anew.
export function watchSections(wanted) {
  if (wanted.join("\n") === sections.join("\n") && isPersonal) return;
  sections = wanted;
  isPersonal = true;
  if (home?.dataset.live && !document.hidden) begin();
}

// A part of the page has asked for itself, and was answered.
export function heardElsewhere() {
  heardAt = Date.now();
  show();
}

// Nothing more is to come for this page.
export function stopListening() {
  if (!home) return;
  home.removeAttribute("data-live");
  end();
  faces.forEach((face) => (face.hidden = true));
}

function tell(kind, detail) {
  document.dispatchEvent(new CustomEvent(`live:${kind}`, { detail }));
}

function address() {
  const url = new URL(home.dataset.live, location.href);
  if (isPersonal) {
    sections.forEach((section) => url.searchParams.append("section", section));
    for (const thing of ["order", "reservation"]) {
      const id = home.dataset[`live${thing[0].toUpperCase()}${thing.slice(1)}`];
      if (id) url.searchParams.set(thing, id);
    }
  }
  return url;
}

const asksForPersonal = () => isPersonal && [...address().searchParams].length > 0;

// ---- how fresh the page is

const WORDS = { stream: "Live", poll: "Updating every few seconds" };
const clock = (at) => new Date(at).toLocaleTimeString("en-GB");
// Pages on which something is at stake say by themselves what a lost line means there.
const isSaidElsewhere = document.querySelector("[data-line-trouble], [data-follow-says]") !== null;
const voice = document.createElement("p");
voice.className = "visually-hidden";
voice.setAttribute("role", "status");

function show() {
  const isAway = way === "" && lostAt > heardAt;
  let kind = way || "else";
  let words = WORDS[way] ?? home.dataset.liveElse ?? "";
  if (way === "stream" && !isCountedForAll) [kind, words] = ["poll", WORDS.poll];
  if (isAway) {
    kind = "away";
    words = heardAt ? `No connection, what you see is from ${clock(heardAt)}` : "No connection just now";
  } else if (way === "" && !hasTried) return; // It has only just begun.
  for (const face of faces) {
    if (face.textContent === words) continue;
    face.textContent = words;
    face.dataset.liveState = kind;
  }
  if (isAway === wasAway) return;
  wasAway = isAway;
  if (isSaidElsewhere || faces.length === 0) return;
  voice.textContent = isAway ? `${words}.` : "Connected again.";
}

function turnTo(next) {
  clearTimeout(grace);
  grace = 0;
  if (next !== way) {
    way = next;
    tell("connection", { way });
  }
  show();
}

// The line is away; nobody needs to know unless it stays away.
function lose() {
  if (way !== "" && !grace) grace = setTimeout(() => turnTo(""), GRACE_MS);
}

function noConnection() {
  lostAt = Date.now();
  hasTried = true;
  if (way === "" || !navigator.onLine) turnTo("");
  else lose();
}

// ---- what is heard

function take({ event, id, data }) {
  if (id) lastId = id;
  if (event === "state") isCountedForAll = data.live !== false;
  else if (event !== "bye") {
    latest.set(event, data);
    tell(event, data);
  }
}

function read(block) {
  const found = { event: "message", id: "", text: [], retry: 0 };
  for (const row of block.split("\n")) {
    const [, name, value] = /^(\w+): ?(.*)$/.exec(row) ?? [];
    if (name === "data") found.text.push(value);
    else if (name === "retry") found.retry = Number(value) || 0;
    else if (name) found[name] = value;
  }
  return found;
}

const pause = (ms) => new Promise((go) => setTimeout(go, ms));
const spread = (ms) => ms * (0.8 + 0.4 * Math.random());

class Refused extends Error {
  constructor(answer, problem) {
    super(String(answer.status));
    this.status = answer.status;
    this.type = problem.type ?? "";
    const said = answer.headers.get("Retry-After");
    this.waitMs = /^\d+$/.test(said ?? "") ? Number(said) * 1_000 : 0;
  }

  // It is about who asks, or what is asked for; not about how much there is to do.
  get isFinal() {
    return [400, 401, 403, 404, 410, 422].includes(this.status) || (this.status === 429 && this.type === "not-admitted");
  }
}

async function open(accept, headers, limit) {
  const url = address();
  if (lastId) url.searchParams.set("since", lastId);
  line = new AbortController();
  const late = setTimeout(() => line.abort(), limit);
  try {
    const answer = await fetch(url, { headers: { Accept: accept, ...headers }, cache: "no-store", credentials: "same-origin", signal: line.signal });
    if (!answer.ok && answer.status !== 304) throw new Refused(answer, await answer.json().catch(() => ({})));
    return answer;
  } finally {
    clearTimeout(late);
  }
}

// Returns when the stream has ended: how long to stay away, or null where no stream is to be had this way. Raises what
// came of asking for it.
async function listen(mine) {
  const answer = await open("text/event-stream", {}, FIRST_MS_MAX);
  if (mine !== round) return 0;
  const mineAlone = line;
  if (!answer.headers.get("Content-Type")?.startsWith("text/event-stream")) {
    mineAlone.abort();
    return null;
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let silence = setTimeout(() => mineAlone.abort(), FIRST_MS_MAX);
  let gathered = "";
  let retry = 0;
  let isOpen = false;
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done || mine !== round) break;
      clearTimeout(silence);
      silence = setTimeout(() => mineAlone.abort(), SILENT_MS_MAX);
      isOpen = true;
      heardAt = Date.now();
      turnTo("stream");
      const blocks = (gathered + value).split("\n\n");
      gathered = blocks.pop();
      for (const block of blocks) {
        const { event, id, text, retry: asked } = read(block);
        retry = asked || retry;
        if (text.length) take({ event, id, data: JSON.parse(text.join("\n")) });
      }
    }
  } catch {
    // Broken, or silent for too long: as if it had ended.
  } finally {
    clearTimeout(silence);
    mineAlone.abort();
  }
  return isOpen ? retry || Math.random() * BACK_MS * 2 : null;
}

async function poll(known) {
  const answer = await open("application/json", known ? { "If-None-Match": known } : {}, ANSWER_MS_MAX);
  heardAt = Date.now();
  if (answer.status === 304) return { etag: known, next: POLL_MS };
  const { frames, next_poll: next } = await answer.json();
  frames.forEach(take);
  return { etag: answer.headers.get("ETag") ?? "", next: Math.min(POLL_MS_MAX, Number(next) || POLL_MS) };
}

// What is not for us is asked for no more; the rest is, where the page has a use for it.
function refuse(fault) {
  if (!asksForPersonal()) return false;
  isPersonal = false;
  if (home.dataset.liveOrder || home.dataset.liveReservation) end();
  tell("refused", { status: fault.status, type: fault.type });
  return true;
}

async function begin() {
  isRunning = true;
  line?.abort();
  const mine = ++round;
  let again = STREAM_AGAIN_MS;
  let troubles = 0;
  while (mine === round) {
    let rest = 0;
    try {
      const back = await listen(mine);
      if (mine !== round) return;
      if (back !== null) {
        [again, troubles] = [STREAM_AGAIN_MS, 0];
        lose();
        await pause(back);
        continue;
      }
    } catch (fault) {
      if (mine !== round) return;
      if (fault instanceof Refused) {
        if (fault.isFinal && refuse(fault)) continue;
        rest = fault.waitMs;
      } else if (fault.name !== "AbortError") {
        // No line at all: it is tried more and more calmly, and at once when the device says that it is back.
        noConnection();
        troubles += 1;
        await pause(spread(Math.min(AWAY_MS_MAX, AWAY_MS_MIN * 2 ** Math.min(troubles - 1, 4))));
        continue;
      }
    }
    // No stream for now. Its place is taken by questions, until it is tried again.
    hasTried = true;
    await askUntil(mine, Date.now() + Math.max(spread(again), rest), rest);
    again = Math.min(STREAM_AGAIN_MS_MAX, again * 2);
  }
}

async function askUntil(mine, until, rest) {
  if (!("livePoll" in home.dataset)) {
    lose();
    show();
    return pause(until - Date.now());
  }
  let etag = "";
  let troubles = 0;
  if (rest) await pause(Math.min(rest, POLL_MS_MAX));
  while (mine === round && Date.now() < until) {
    let wait = POLL_MS;
    try {
      ({ etag, next: wait } = await poll(etag));
      if (mine !== round) return;
      troubles = 0;
      turnTo("poll");
    } catch (fault) {
      if (mine !== round) return;
      if (fault instanceof Refused && fault.isFinal && refuse(fault)) continue;
      troubles += 1;
      wait = Math.max(fault.waitMs ?? 0, Math.min(AWAY_MS_MAX, AWAY_MS_MIN * 2 ** Math.min(troubles, 4)));
      if (fault instanceof Refused) lose();
      else noConnection();
    }
    await pause(spread(wait));
  }
}

function end() {
  isRunning = false;
  round += 1;
  line?.abort();
  turnTo("");
}

function look() {
  clearTimeout(hiding);
  if (!home.dataset.live) return;
  if (document.hidden) hiding = setTimeout(end, HIDDEN_MS);
  else if (!isRunning) begin();
}

if (home) {
  document.body.append(voice);
  document.addEventListener("visibilitychange", look);
  addEventListener("online", () => document.hidden || !home.dataset.live || begin());
  addEventListener("offline", () => {
    if (!home.dataset.live) return;
    line?.abort();
    noConnection();
  });
  // A page that a browser keeps for going back to must not keep its line.
  addEventListener("pagehide", end);
  addEventListener("pageshow", (event) => event.persisted && look());
  look();
}
