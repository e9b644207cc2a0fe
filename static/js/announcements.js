// Shows new announcements as they are published: from the page's stream (live.js) if it has one, else by polling every
// few seconds while the page is visible. Load it before live.js, so that it misses no event of that module.
//
// [data-announcements=URL]      the list, newest first; URL returns announcements since a number
//   data-announcements-since    the latest number on the page; -most, the maximum shown; -zone, the venue's time zone
//   [data-announcement=ID]      one announcement, with its data-announcement-version
// [data-announcements-box]      hidden while the list is empty; [data-announcements-more] links to older announcements
// [data-announcements-says]     the live region for screen readers
//
// Listens on the document for live:announcement (detail: an announcement as in the API) and live:connection (detail:
// {way}).

const POLL_MS = 5_000;
const POLL_MS_MAX = 60_000;
const TIMEOUT_MS = 10_000;
const CATCH_UP_MS = 3_000; // Spreads the requests of clients whose streams reconnect at the same time.
const list = document.querySelector("[data-announcements]");
const box = document.querySelector("[data-announcements-box]");
const more = document.querySelector("[data-announcements-more]");
const voice = document.querySelector("[data-announcements-says]");
const known = new Map(); // Latest version by announcement id, including retracted announcements.
let since = Number(list?.dataset.announcementsSince) || 0;
let isStreaming = false;
let isPolling = false;
let polledAt = 0;
let timer = 0;
let failures = 0;

function formatTime(moment) {
  const format = { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  const zone = list.dataset.announcementsZone;
  const parts = new Intl.DateTimeFormat("en-GB", zone ? { ...format, timeZone: zone } : format).formatToParts(new Date(moment));
  const of = (type) => parts.find((part) => part.type === type)?.value ?? "";
  // American English knows the most names of zones, such as CST; others are written as an offset.
  const named = new Intl.DateTimeFormat("en-US", { timeZone: zone || undefined, timeZoneName: "short" }).formatToParts(new Date(moment));
  const name = named.find((part) => part.type === "timeZoneName")?.value ?? "";
  return `${of("weekday")} ${of("day")} ${of("month").slice(0, 3)}, ${of("hour")}:${of("minute")} ${name}`;
}

function element(name, className, ...content) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...content);
  return made;
}

function render({ announcement_id: id, version, text, posted_at: postedAt, changed_at: changedAt }) {
  const time = element("time", "", formatTime(postedAt));
  time.dateTime = postedAt;
  const head = element("p", "news__when", time);
  if (changedAt) head.append(" ", element("span", "", "corrected"));
  const item = element("li", "news__item", head, element("p", "news__text", text));
  item.dataset.announcement = id;
  item.dataset.announcementVersion = version;
  return item;
}

function isAnnouncement(value) {
  return Number.isSafeInteger(value?.announcement_id) && Number.isSafeInteger(value.version) && (value.text === null || typeof value.text === "string");
}

const items = () => [...list.querySelectorAll("[data-announcement]")];

// Shows this version unless the page already has it or a newer one. So duplicates and late deliveries are ignored.
function apply(announcement) {
  if (!isAnnouncement(announcement) || announcement.version <= (known.get(announcement.announcement_id) ?? 0)) return;
  known.set(announcement.announcement_id, announcement.version);
  const current = items().find((item) => item.dataset.announcement === String(announcement.announcement_id));
  if (announcement.text === null) current?.remove();
  else if (current) {
    current.replaceWith(render(announcement));
    voice.textContent = `Corrected: ${announcement.text}`;
  } else insert(announcement);
  box.hidden = items().length === 0 && more.hidden;
}

function insert(announcement) {
  const after = items().find((item) => Number(item.dataset.announcement) < announcement.announcement_id);
  const most = Number(list.dataset.announcementsMost);
  if (!after && items().length >= most) return; // It is older than all announcements that fit on the page.
  const item = render(announcement);
  item.classList.add("news__item--new");
  if (after) after.before(item);
  else list.append(item);
  for (const old of items().slice(most)) {
    old.remove();
    more.hidden = false;
  }
  voice.textContent = announcement.text;
}

async function poll() {
  clearTimeout(timer);
  if (isPolling || document.hidden) return;
  isPolling = true;
  polledAt = Date.now();
  let delay = POLL_MS;
  try {
    const url = new URL(list.dataset.announcements, location.href);
    url.searchParams.set("since", since);
    const response = await fetch(url, { headers: { Accept: "application/json" }, signal: AbortSignal.timeout(TIMEOUT_MS) });
    delay = Math.max(delay, Number(response.headers.get("Retry-After")) * 1_000 || 0);
    if (!response.ok) throw new Error(String(response.status));
    const { announcements, latest, next_poll: next, has_older: hasOlder } = await response.json();
    // Oldest first, so that each is inserted in order.
    announcements.sort((one, other) => one.announcement_id - other.announcement_id).forEach(apply);
    if (hasOlder) more.hidden = false;
    since = latest; // May be lower than before, if the database was restored from a backup.
    delay = Math.min(POLL_MS_MAX, Number(next) || POLL_MS);
    failures = 0;
  } catch {
    // Keep showing the last known announcements and back off.
    failures += 1;
    delay = Math.max(delay, Math.min(POLL_MS_MAX, POLL_MS * 2 ** Math.min(failures, 4)));
  } finally {
    isPolling = false;
    if (!isStreaming) timer = setTimeout(poll, delay * (0.9 + 0.2 * Math.random()));
  }
}

function pollSoon(spreadMs = 0) {
  clearTimeout(timer);
  // A page that is hidden and shown again polls no more often than one that stays visible.
  timer = setTimeout(poll, Math.max(0, polledAt + POLL_MS - Date.now()) + Math.random() * spreadMs);
}

if (list) {
  for (const item of items()) known.set(Number(item.dataset.announcement), Number(item.dataset.announcementVersion));
  document.addEventListener("live:announcement", ({ detail }) => apply(detail));
  document.addEventListener("live:connection", ({ detail }) => {
    isStreaming = detail.way === "stream";
    pollSoon(CATCH_UP_MS); // A stream starts with the newest few announcements; one poll fetches any others that were missed.
  });
  document.addEventListener("visibilitychange", () => document.hidden || pollSoon());
  addEventListener("pageshow", (event) => event.persisted && pollSoon());
  poll();
}
