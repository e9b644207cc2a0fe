// The personal parts of every page's header, from one call that no cache stores: the holds with the time left to pay, links
// for staff and, on pages that are the same for every visitor, the account's navigation and one-time messages.
//
// [data-header=URL]          the list of the site navigation, with the call's URL
//   data-header-shared       the page was rendered without the request: also show the account and messages
// [data-account-items]       the template of a logged-in user's items
// [data-holds]               where holds are shown
//
// Only a browser with the cookie signed_in or holds sends the call. The last holds are kept for the tab, so that the next page
// shows them before the response. Pages of a reservation (its own URL and those below it, and its open order's with data-shows-hold) show its time
// themselves.

const RECHECK_MS_MIN = 5_000;
const PATH_LENGTH_MAX = 200; // As the server accepts.
const WARNINGS = [[30, "30 seconds"], [120, "2 minutes"]]; // In seconds; the shortest first.
const KEPT = "fairgate-holds";
const DISMISSED = "fairgate-dismissed-hold";

const list = document.querySelector("[data-header]");
const place = document.querySelector("[data-holds]");
const anonymousItems = [...list.children];
const isShared = "headerShared" in list.dataset;
const cookies = () => document.cookie.split("; ");
const isLoggedIn = () => cookies().includes("signed_in=1");
const isAsked = () => isLoggedIn() || cookies().some((cookie) => cookie.startsWith("holds="));
let askedAt = 0;
let clockOffset = 0; // The server's clock minus this device's.
let holds = [];
let warned = new Map(); // The last warning of each hold, in seconds.
let timer = 0;

// Session storage may be unavailable; then the pill appears a moment later.
function load(storage, key) {
  try {
    return JSON.parse(globalThis[storage].getItem(key) ?? "null");
  } catch {
    return null;
  }
}
function save(storage, key, value) {
  try {
    globalThis[storage].setItem(key, JSON.stringify(value));
  } catch {
    // Private windows may refuse to store anything.
  }
}

const voices = {};
for (const [name, role] of [["polite", "status"], ["assertive", "alert"]]) {
  const voice = document.createElement("p");
  voice.className = "visually-hidden";
  voice.setAttribute("role", role);
  document.body.append(voice);
  voices[name] = voice;
}

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function showAccount(account) {
  if (!isShared) return;
  if (!account) {
    list.replaceChildren(...anonymousItems);
    return;
  }
  const kept = anonymousItems.filter((item) => !item.hasAttribute("data-anonymous"));
  const items = document.querySelector("[data-account-items]").content.cloneNode(true);
  for (const form of items.querySelectorAll("form")) form.append(element("input", { type: "hidden", name: "csrfmiddlewaretoken", value: account.csrf_token }));
  for (const name of items.querySelectorAll("[data-account-name]")) name.textContent = ` ${account.name}`;
  list.replaceChildren(...kept, items);
}

function showMessages(messages) {
  if (!messages.length) return;
  const box = element("div", { class: "messages", role: "status" });
  document.querySelector("main").before(box);
  box.append(...messages.map(({ level, text }) => element("p", { class: `message message--${level}` }, text)));
}

function showStaffLinks(links) {
  document.querySelector(".staff-links")?.remove();
  if (!links.length) return;
  const items = links.map(({ label, url }) => element("li", {}, element("a", { href: url }, label)));
  document.querySelector(".site-header").prepend(element("nav", { class: "staff-links", "aria-label": "Staff" }, element("ul", {}, ...items)));
}

const countWords = ({ count, noun }) => `${count} ${count === 1 ? noun.slice(0, -1) : noun}`;
const digits = (seconds) => `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
const secondsLeft = (hold) => Math.ceil((Date.parse(hold.deadline) - Date.now() - clockOffset) / 1_000);
const isShownByPage = (hold) =>
  location.pathname.startsWith(hold.url) || document.querySelector(`[data-shows-hold="${hold.reservation_id}"]`) !== null;

function liveBar(hold) {
  const words = element("span", { class: "hold-bar__words" }, element("strong", {}, countWords(hold)), ` for ${hold.event_name}`);
  if (hold.status === "paying") return [words, element("a", { class: "button", href: hold.checkout_url }, "View payment")];
  const face = element("span", { class: "hold-bar__digits", role: "timer", "data-hold-left": "" });
  const time = element("span", { class: "hold-bar__time" }, face, element("span", { class: "hold-bar__label" }, " left to pay"));
  return [words, time, element("a", { class: "button", href: hold.checkout_url }, "Check out")];
}

function expiredBar(hold) {
  const words = element("span", { class: "hold-bar__words" });
  words.append(element("strong", {}, "Time is up."), ` Your ${countWords(hold)} for ${hold.event_name} went back on sale. You were not charged.`);
  const close = element("button", { class: "button button--quiet", type: "button" }, "Dismiss");
  close.addEventListener("click", () => {
    save("localStorage", DISMISSED, hold.reservation_id);
    show();
    document.querySelector("main").focus();
  });
  return [words, element("a", { class: "button", href: hold.url }, "See what is left"), close];
}

function show() {
  const dismissed = load("localStorage", DISMISSED);
  const shown = holds.filter((hold) => !isShownByPage(hold) && !(hold.status === "expired" && hold.reservation_id === dismissed));
  place.replaceChildren(
    ...shown.map((hold) => {
      const bar = element("div", { class: `hold-bar hold-bar--${hold.status}`, "data-hold": hold.reservation_id });
      bar.append(...(hold.status === "expired" ? expiredBar(hold) : liveBar(hold)));
      return bar;
    }),
  );
  place.hidden = shown.length === 0;
  clearInterval(timer);
  if (shown.some((hold) => hold.status === "pending_payment")) timer = setInterval(tick, 250);
  tick();
}

function tick() {
  for (const hold of holds) {
    const bar = place.querySelector(`[data-hold="${hold.reservation_id}"]`);
    if (!bar || hold.status !== "pending_payment") continue;
    const left = secondsLeft(hold);
    if (left <= 0) {
      hold.status = "expired";
      save("sessionStorage", KEPT, holds);
      show();
      voices.assertive.textContent = `Time is up. Your ${countWords(hold)} for ${hold.event_name} went back on sale.`;
      setTimeout(update, 2_000 + 2_000 * Math.random()); // A payment may have begun in another tab.
      return;
    }
    bar.querySelector("[data-hold-left]").textContent = digits(left);
    bar.classList.toggle("is-soon", left <= 120);
    bar.classList.toggle("is-urgent", left <= 30);
    const due = WARNINGS.find(([seconds]) => left <= seconds);
    if (!due || warned.get(hold.reservation_id) === due[0]) continue;
    // A warning that was due before the page was opened is given with the time that is left.
    const time = left > due[0] - 3 ? due[1] : `${left} seconds`;
    warned.set(hold.reservation_id, due[0]);
    voices[due[0] <= 30 ? "assertive" : "polite"].textContent = `${time} left to pay for your ${countWords(hold)}. Then they go back on sale.`;
  }
}

async function update() {
  if (!isAsked()) {
    holds = [];
    save("sessionStorage", KEPT, holds);
    showAccount(null);
    showStaffLinks([]);
    show();
    return;
  }
  askedAt = Date.now();
  try {
    const url = new URL(list.dataset.header, location.href);
    url.searchParams.set("path", location.pathname.slice(0, PATH_LENGTH_MAX));
    if (isShared) url.searchParams.set("shared", "1");
    const response = await fetch(url, { headers: { Accept: "application/json" }, cache: "no-store", credentials: "same-origin" });
    if (!response.ok) return; // The page is complete without it.
    const header = await response.json();
    clockOffset = Date.parse(header.now) - Date.now();
    holds = header.holds;
    save("sessionStorage", KEPT, holds);
    showAccount(header.account);
    showStaffLinks(header.staff_links);
    showMessages(header.messages);
    show();
  } catch {
    // As above.
  }
}

if (isAsked()) {
  holds = load("sessionStorage", KEPT) ?? [];
  show();
}
update();
// Restored from the back/forward cache, or in front again: the visitor may have paid, logged in or logged out elsewhere.
addEventListener("pageshow", (event) => event.persisted && update());
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible" && isAsked() && Date.now() - askedAt > RECHECK_MS_MIN) update();
});
