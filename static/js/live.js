// The live connection of a page: one event stream, open while the page is visible, whose events are dispatched on the
// document. Load it by import only: a second copy of this module would open a second stream.
//
// [data-live=URL]            the stream's URL
//   data-live-poll           without a stream, poll the same URL every few seconds; if absent, other modules poll for
//                            themselves and the status shows data-live-else
//   data-live-order=ID, data-live-reservation=ID    also subscribe to these, as their owner
// [data-live-state]          shows how fresh the page is; data-live-words replaces "Live"
//
// Dispatches live:sections, live:queue, live:seats, live:reservation, live:order and live:announcement with the event's
// data as detail; live:connection {way} when the connection changes: "stream", "poll" or "" (none);
// live:refused {status, type} when this visitor may not, or no longer, subscribe to personal data.
//
// Uses fetch, not EventSource: EventSource hides heartbeats, so a quiet stream would look like a dead connection, and
// hides the response status, so an overloaded server would look like a refusal.

const FIRST_MS_MAX = 8_000; // The server sends an event at once; if none arrives, a proxy is buffering the stream.
const SILENT_MS_MAX = 40_000; // The server sends a heartbeat every 15 seconds.
const RECONNECT_MS = 2_500; // Mean random delay after a connection breaks without a retry time.
const GRACE_MS = 6_000; // How long the connection may be lost before the page reports it.
const HIDDEN_MS = 30_000; // A browser allows six connections per host (HTTP/1.1); a hidden page should not use one.
const OFFLINE_MS_MIN = 2_000;
const OFFLINE_MS_MAX = 30_000;
const POLL_MS = 4_000;
const POLL_MS_MAX = 60_000;
const STREAM_RETRY_MS = 30_000;
const STREAM_RETRY_MS_MAX = 300_000;
const TIMEOUT_MS = 15_000;

const root = document.querySelector("[data-live]");
const indicators = document.querySelectorAll("[data-live-state]");
const latest = new Map();
let sections = [];
let isPersonal = true; // Until the server refuses the personal subscriptions.
let generation = 0; // Each new connection invalidates pending responses of earlier ones.
let request = null; // The AbortController of the current request.
let lastId = "";
let way = "";
let isStreamLive = true; // False while the server reports that its updates are late.
let freshAt = 0;
let lostAt = 0;
let graceTimer = 0;
let hideTimer = 0;
let wasOffline = false;
let isRunning = false;
let hasTried = false;

export const isConnected = () => way !== "";
export const isStreaming = () => way === "stream";

// Calls `handler` with every later event of this kind, and at once with the latest one received.
export function on(kind, handler) {
  document.addEventListener(`live:${kind}`, (event) => handler(event.detail));
  if (latest.has(kind)) handler(latest.get(kind));
}

// Subscribes to the seats of these sections, four at most. Restarts the stream, which sends each section in full first.
export function watchSections(wanted) {
  if (wanted.join("\n") === sections.join("\n") && isPersonal) return;
  sections = wanted;
  isPersonal = true;
  if (root?.dataset.live && !document.hidden) connect();
}

// Records that another module has fetched fresh data by itself.
export function markFresh() {
  freshAt = Date.now();
  show();
}

// Closes the connection permanently, once nothing on this page can change any more.
export function disconnect() {
  if (!root) return;
  root.removeAttribute("data-live");
  close();
  indicators.forEach((indicator) => (indicator.hidden = true));
}

function dispatch(kind, detail) {
  document.dispatchEvent(new CustomEvent(`live:${kind}`, { detail }));
}

function streamUrl() {
  const url = new URL(root.dataset.live, location.href);
  if (isPersonal) {
    sections.forEach((section) => url.searchParams.append("section", section));
    for (const thing of ["order", "reservation"]) {
      const id = root.dataset[`live${thing[0].toUpperCase()}${thing.slice(1)}`];
      if (id) url.searchParams.set(thing, id);
    }
  }
  return url;
}

const isSubscribedToPersonal = () => isPersonal && [...streamUrl().searchParams].length > 0;

// ---- how fresh the page is

const WORDS = { stream: "Live", poll: "Updating every few seconds" };
const clock = (at) => new Date(at).toLocaleTimeString("en-GB");
// The waiting room and the order and reservation pages report a lost connection in their own words.
const isReportedElsewhere = document.querySelector("[data-line-trouble], [data-follow-says]") !== null;
const voice = document.createElement("p");
voice.className = "visually-hidden";
voice.setAttribute("role", "status");

function show() {
  const isOffline = way === "" && lostAt > freshAt;
  let kind = way || "else";
  let words = WORDS[way] ?? root.dataset.liveElse ?? "";
  if (way === "stream" && !isStreamLive) [kind, words] = ["poll", WORDS.poll];
  if (isOffline) {
    kind = "away";
    words = freshAt ? `No connection, last updated ${clock(freshAt)}` : "No connection";
  } else if (way === "" && !hasTried) return; // Still connecting for the first time.
  for (const indicator of indicators) {
    const shown = kind === "stream" ? (indicator.dataset.liveWords ?? words) : words;
    if (indicator.textContent === shown) continue;
    indicator.textContent = shown;
    indicator.dataset.liveState = kind;
  }
  if (isOffline === wasOffline) return;
  wasOffline = isOffline;
  if (isReportedElsewhere || indicators.length === 0) return;
  voice.textContent = isOffline ? `${words}.` : "Connected again.";
}

function setWay(next) {
  clearTimeout(graceTimer);
  graceTimer = 0;
  if (next !== way) {
    way = next;
    dispatch("connection", { way });
  }
  show();
}

// The connection is lost; report it only if it stays lost.
function lose() {
  if (way !== "" && !graceTimer) graceTimer = setTimeout(() => setWay(""), GRACE_MS);
}

function goOffline() {
  lostAt = Date.now();
  hasTried = true;
  if (way === "" || !navigator.onLine) setWay("");
  else lose();
}

// ---- received events

function handle({ event, id, data }) {
  if (id) lastId = id;
  if (event === "state") isStreamLive = data.live !== false;
  else if (event !== "bye") {
    latest.set(event, data);
    dispatch(event, data);
  }
}

function parse(block) {
  const frame = { event: "message", id: "", text: [], retry: 0 };
  for (const row of block.split("\n")) {
    const [, name, value] = /^(\w+): ?(.*)$/.exec(row) ?? [];
    if (name === "data") frame.text.push(value);
    else if (name === "retry") frame.retry = Number(value) || 0;
    else if (name) frame[name] = value;
  }
  return frame;
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const jitter = (ms) => ms * (0.8 + 0.4 * Math.random());

class Refused extends Error {
  constructor(response, problem) {
    super(String(response.status));
    this.status = response.status;
    this.type = problem.type ?? "";
    const retryAfter = response.headers.get("Retry-After");
    this.waitMs = /^\d+$/.test(retryAfter ?? "") ? Number(retryAfter) * 1_000 : 0;
  }

  // Whether the server refused this visitor or this request, rather than reporting overload.
  get isFinal() {
    return [400, 401, 403, 404, 410, 422].includes(this.status) || (this.status === 429 && this.type === "not-admitted");
  }
}

async function open(accept, headers, limit) {
  const url = streamUrl();
  if (lastId) url.searchParams.set("since", lastId);
  request = new AbortController();
  const timeout = setTimeout(() => request.abort(), limit);
  try {
    const response = await fetch(url, { headers: { Accept: accept, ...headers }, cache: "no-store", credentials: "same-origin", signal: request.signal });
    if (!response.ok && response.status !== 304) throw new Refused(response, await response.json().catch(() => ({})));
    return response;
  } finally {
    clearTimeout(timeout);
  }
}

// Reads the stream until it ends. Returns the delay before reconnecting, or null if no stream is available here. Throws if
// the request fails or is refused.
async function listen(mine) {
  const response = await open("text/event-stream", {}, FIRST_MS_MAX);
  if (mine !== generation) return 0;
  const controller = request;
  if (!response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
    controller.abort();
    return null;
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let silenceTimer = setTimeout(() => controller.abort(), FIRST_MS_MAX);
  let buffer = "";
  let retry = 0;
  let isOpen = false;
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done || mine !== generation) break;
      clearTimeout(silenceTimer);
      silenceTimer = setTimeout(() => controller.abort(), SILENT_MS_MAX);
      isOpen = true;
      freshAt = Date.now();
      setWay("stream");
      const blocks = (buffer + value).split("\n\n");
      buffer = blocks.pop();
      for (const block of blocks) {
        const { event, id, text, retry: sent } = parse(block);
        retry = sent || retry;
        if (text.length) handle({ event, id, data: JSON.parse(text.join("\n")) });
      }
    }
  } catch {
    // Broken or silent for too long: treat it as ended.
  } finally {
    clearTimeout(silenceTimer);
    controller.abort();
  }
  return isOpen ? retry || Math.random() * RECONNECT_MS * 2 : null;
}

async function poll(known) {
  const response = await open("application/json", known ? { "If-None-Match": known } : {}, TIMEOUT_MS);
  freshAt = Date.now();
  if (response.status === 304) return { etag: known, next: POLL_MS };
  const { frames, next_poll: next } = await response.json();
  frames.forEach(handle);
  return { etag: response.headers.get("ETag") ?? "", next: Math.min(POLL_MS_MAX, Number(next) || POLL_MS) };
}

// Drops the personal subscriptions after a refusal. On an order or reservation page it closes the connection, because the
// page needs nothing else. Returns whether there were any, so that the caller tries again without them.
function dropPersonal(refusal) {
  if (!isSubscribedToPersonal()) return false;
  isPersonal = false;
  if (root.dataset.liveOrder || root.dataset.liveReservation) close();
  dispatch("refused", { status: refusal.status, type: refusal.type });
  return true;
}

async function connect() {
  isRunning = true;
  request?.abort();
  const mine = ++generation;
  let retryMs = STREAM_RETRY_MS;
  let failures = 0;
  while (mine === generation) {
    let waitMs = 0;
    try {
      const reconnectMs = await listen(mine);
      if (mine !== generation) return;
      if (reconnectMs !== null) {
        [retryMs, failures] = [STREAM_RETRY_MS, 0];
        lose();
        await sleep(reconnectMs);
        continue;
      }
    } catch (error) {
      if (mine !== generation) return;
      if (error instanceof Refused) {
        if (error.isFinal && dropPersonal(error)) continue;
        waitMs = error.waitMs;
      } else if (error.name !== "AbortError") {
        // No network: back off, and reconnect at once when the browser reports that it is online again.
        goOffline();
        failures += 1;
        await sleep(jitter(Math.min(OFFLINE_MS_MAX, OFFLINE_MS_MIN * 2 ** Math.min(failures - 1, 4))));
        continue;
      }
    }
    // No stream for now: poll until it is time to try the stream again.
    hasTried = true;
    await pollUntil(mine, Date.now() + Math.max(jitter(retryMs), waitMs), waitMs);
    retryMs = Math.min(STREAM_RETRY_MS_MAX, retryMs * 2);
  }
}

async function pollUntil(mine, until, waitMs) {
  if (!("livePoll" in root.dataset)) {
    lose();
    show();
    return sleep(until - Date.now());
  }
  let etag = "";
  let failures = 0;
  if (waitMs) await sleep(Math.min(waitMs, POLL_MS_MAX));
  while (mine === generation && Date.now() < until) {
    let delay = POLL_MS;
    try {
      ({ etag, next: delay } = await poll(etag));
      if (mine !== generation) return;
      failures = 0;
      setWay("poll");
    } catch (error) {
      if (mine !== generation) return;
      if (error instanceof Refused && error.isFinal && dropPersonal(error)) continue;
      failures += 1;
      delay = Math.max(error.waitMs ?? 0, Math.min(OFFLINE_MS_MAX, OFFLINE_MS_MIN * 2 ** Math.min(failures, 4)));
      if (error instanceof Refused) lose();
      else goOffline();
    }
    await sleep(jitter(delay));
  }
}

function close() {
  isRunning = false;
  generation += 1;
  request?.abort();
  setWay("");
}

function onVisibilityChange() {
  clearTimeout(hideTimer);
  if (!root.dataset.live) return;
  if (document.hidden) hideTimer = setTimeout(close, HIDDEN_MS);
  else if (!isRunning) connect();
}

if (root) {
  document.body.append(voice);
  document.addEventListener("visibilitychange", onVisibilityChange);
  addEventListener("online", () => document.hidden || !root.dataset.live || connect());
  addEventListener("offline", () => {
    if (!root.dataset.live) return;
    request?.abort();
    goOffline();
  });
  // A page in the back/forward cache must not keep its connection.
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && onVisibilityChange());
  onVisibilityChange();
}
