// What the organizer says comes in by itself: by the page's stream (live.js) where there is one, and else by asking for what
// is new every few seconds while somebody looks. Load it before live.js, so that it misses nothing of what that one tells.
//
// [data-announcements=URL]      the list, newest first; URL tells what was said since
//   data-announcements-since    the number of what the page knows; -most, how many it shows; -zone, the venue's
//   [data-announcement=ID]      one of them, with its data-announcement-version
// [data-announcements-box]      hidden while there is nothing in it; [data-announcements-more] leads to the older ones
// [data-announcements-says]     takes the news for those who listen
//
// Heard on the document: live:announcement, whose detail is an announcement as the API has it, and live:connection {way}.

const AGAIN_MS = 5_000;
const AGAIN_MS_MAX = 60_000;
const ANSWER_MS_MAX = 10_000;
const CATCH_UP_MS = 3_000; // Those whose stream came back together do not ask together.
const list = document.querySelector("[data-announcements]");
const box = document.querySelector("[data-announcements-box]");
const more = document.querySelector("[data-announcements-more]");
const voice = document.querySelector("[data-announcements-says]");
const known = new Map(); // Versions by announcement, of those that were taken back too.
let since = Number(list?.dataset.announcementsSince) || 0;
let isStreaming = false;
let asking = false;
let askedAt = 0;
let timer = 0;
let troubles = 0;

function when(moment) {
  const format = { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  const zone = list.dataset.announcementsZone;
  const parts = new Intl.DateTimeFormat("en-GB", zone ? { ...format, timeZone: zone } : format).formatToParts(new Date(moment));
  const of = (type) => parts.find((part) => part.type === type)?.value ?? "";
  return `${of("weekday")} ${of("day")} ${of("month").slice(0, 3)}, ${of("hour")}:${of("minute")}`;
}

function element(name, className, ...content) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...content);
  return made;
}

function draw({ announcement_id: id, version, text, posted_at: postedAt, changed_at: changedAt }) {
  const time = element("time", "", when(postedAt));
  time.dateTime = postedAt;
  const head = element("p", "news__when", time);
  if (changedAt) head.append(" ", element("span", "", "corrected"));
  const item = element("li", "news__item", head, element("p", "news__text", text));
  item.dataset.announcement = id;
  item.dataset.announcementVersion = version;
  return item;
}

function isAnnouncement(said) {
  return Number.isSafeInteger(said?.announcement_id) && Number.isSafeInteger(said.version) && (said.text === null || typeof said.text === "string");
}

const items = () => [...list.querySelectorAll("[data-announcement]")];

// The page shows this version, or a newer one. Again, or late, is nothing.
function take(said) {
  if (!isAnnouncement(said) || said.version <= (known.get(said.announcement_id) ?? 0)) return;
  known.set(said.announcement_id, said.version);
  const stands = items().find((item) => item.dataset.announcement === String(said.announcement_id));
  if (said.text === null) stands?.remove();
  else if (stands) {
    stands.replaceWith(draw(said));
    voice.textContent = `Corrected: ${said.text}`;
  } else insert(said);
  box.hidden = items().length === 0 && more.hidden;
}

function insert(said) {
  const after = items().find((item) => Number(item.dataset.announcement) < said.announcement_id);
  const most = Number(list.dataset.announcementsMost);
  if (!after && items().length >= most) return; // Older than all that the page has room for.
  const item = draw(said);
  item.classList.add("news__item--new");
  if (after) after.before(item);
  else list.append(item);
  for (const old of items().slice(most)) {
    old.remove();
    more.hidden = false;
  }
  voice.textContent = said.text;
}

async function ask() {
  clearTimeout(timer);
  if (asking || document.hidden) return;
  asking = true;
  askedAt = Date.now();
  let again = AGAIN_MS;
  try {
    const url = new URL(list.dataset.announcements, location.href);
    url.searchParams.set("since", since);
    const answer = await fetch(url, { headers: { Accept: "application/json" }, signal: AbortSignal.timeout(ANSWER_MS_MAX) });
    again = Math.max(again, Number(answer.headers.get("Retry-After")) * 1_000 || 0);
    if (!answer.ok) throw new Error(String(answer.status));
    const { announcements, latest, next_poll: next, has_older: hasOlder } = await answer.json();
    // Oldest first, so that each finds its place.
    announcements.sort((one, other) => one.announcement_id - other.announcement_id).forEach(take);
    if (hasOlder) more.hidden = false;
    since = latest; // Lower than before where the house has gone back to an older time.
    again = Math.min(AGAIN_MS_MAX, Number(next) || AGAIN_MS);
    troubles = 0;
  } catch {
    // Away for a moment: what stands there is the last that was known.
    troubles += 1;
    again = Math.max(again, Math.min(AGAIN_MS_MAX, AGAIN_MS * 2 ** Math.min(troubles, 4)));
  } finally {
    asking = false;
    if (!isStreaming) timer = setTimeout(ask, again * (0.9 + 0.2 * Math.random()));
  }
}

function askSoon(spreadMs = 0) {
  clearTimeout(timer);
  // Going to and fro between tabs asks no more often than looking on does.
  timer = setTimeout(ask, Math.max(0, askedAt + AGAIN_MS - Date.now()) + Math.random() * spreadMs);
}

if (list) {
  for (const item of items()) known.set(Number(item.dataset.announcement), Number(item.dataset.announcementVersion));
  document.addEventListener("live:announcement", ({ detail }) => take(detail));
  document.addEventListener("live:connection", ({ detail }) => {
    isStreaming = detail.way === "stream";
    askSoon(CATCH_UP_MS); // A stream begins with the newest few; whatever else was missed is asked for once.
  });
  document.addEventListener("visibilitychange", () => document.hidden || askSoon());
  addEventListener("pageshow", (event) => event.persisted && askSoon());
  ask();
}
