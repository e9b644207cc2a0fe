// Seat selection on the map: pointer, keyboard, the tray, and changes by other buyers.

import { JustGone, listed } from "./just-gone.js";
import { isConnected, markFresh } from "./live.js";
import { watchFilter } from "./seat-map-filter.js";
import { Watch } from "./seat-map-live.js";
import { groupLike, isTogether } from "./seat-map-party.js";
import { Plan } from "./seat-map-plan.js";
import { View } from "./seat-map-view.js";
import { showTotal } from "./tray-total.js";

const POLL_MS = 3000;
const POLL_MS_STREAMING = 60_000;
const SENT_MS_MAX = 20_000;
const POLL_MS_MAX = 30_000;
const DRAG_PX = 6;
const PICK_PX_MOUSE = 6.5; // seats closer together than this are not selected: the map zooms in instead
const PICK_PX_TOUCH = 17;
const ZOOM_PX = 38;
const LOST_NAMED_MAX = 3;
const MAP_PX_MIN = 300; // The least height of the map; on lower screens the page scrolls.

const form = document.querySelector("[data-seat-map]");
form.hidden = false; // Without scripts the map and its button would not work.
const { planUrl, statusUrl, currency, eventUrl } = form.dataset;
const limit = Number(form.dataset.limit);
const limitWords = `You can select up to ${limit} seat${limit === 1 ? "" : "s"}`;
const find = (name) => form.querySelector(`[data-${name}]`);
const stage = find("map-stage");
const tip = find("map-tip");
const says = find("map-says");
const hold = find("tray-hold");
const tray = find("tray");
const where = find("map-where");
const hint = find("map-hint-touch");

const formatter = new Intl.NumberFormat("en", { style: "currency", currency });
const minorDigits = formatter.resolvedOptions().maximumFractionDigits;
const money = (minor) => formatter.format(minor / 10 ** minorDigits);

let plan;
let view;
let at = null; // {seat} or {section}: the keyboard cursor
const chosen = new Set();
const own = new Set(JSON.parse(document.getElementById("own-seats").textContent)); // Already held by this visitor, and selectable again.
const gonePanel = new JustGone(find("just-gone"), takeOffered);

// ---- descriptions

function describe(seat) {
  const parts = [plan.seatName(seat), plan.sections[plan.section[seat]].name, money(plan.price(seat))];
  const kind = plan.kind(seat);
  if (kind) parts.push(kind);
  if (plan.sections[plan.section[seat]].needs_access) parts.push("code required");
  if (plan.taken[seat] && !chosen.has(seat)) parts.push("unavailable");
  return parts.join(" · ");
}

function describeSection(index) {
  const section = plan.sections[index];
  const prices = (section.categories ?? []).map((category) => plan.categories[category].full_price_minor);
  const free = plan.countShown(section);
  const parts = [section.name, free ? `${free.toLocaleString("en")} left` : plan.shown.size && section.free ? "none at this price" : "sold out"];
  if (prices.length) parts.push(prices.length > 1 ? `${money(Math.min(...prices))} to ${money(Math.max(...prices))}` : money(prices[0]));
  if (section.kind === "general_admission") parts.push("unreserved");
  if (section.needs_access) parts.push("code required");
  return parts.join(" · ");
}

function announce(words) {
  // Repeating the same text must still be announced again.
  says.textContent = says.textContent === words ? `${words}\u00a0` : words;
}

function showTip(words, x, y) {
  tip.textContent = words;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.max(6, Math.min(view.width - width - 6, x - width / 2));
  const top = y - height - 18 < 4 ? y + 22 : y - height - 18;
  tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
}

function hideTip() {
  tip.hidden = true;
}

// ---- the selection

function choose(seat) {
  if (chosen.has(seat)) {
    chosen.delete(seat);
    announce(`${plan.seatName(seat)} removed. ${chosen.size} of ${limit} selected.`);
  } else if (plan.taken[seat]) {
    announce(`${plan.seatName(seat)} is unavailable.`);
    return;
  } else if (!plan.isShown(seat)) {
    announce(`${plan.seatName(seat)} has a different price than those you selected.`);
    return;
  } else if (chosen.size >= limit) {
    announce(`${limitWords}.`);
    const [x, y] = view.toScreen(plan.x[seat], plan.y[seat]);
    showTip(limitWords, x, y);
    return;
  } else {
    chosen.add(seat);
    if (gonePanel.isShown) endOffer();
    announce(`${plan.seatName(seat)} selected, ${money(plan.price(seat))}. ${chosen.size} of ${limit}.`);
  }
  showChoice();
}

function showChoice() {
  view.setChosen(chosen);
  watch?.settle();
  const seats = [...chosen].sort((a, b) => a - b);
  find("tray-seats").replaceChildren(...seats.map(chip));
  find("tray-empty").hidden = seats.length > 0;
  if (seats.length) showTotal(find("tray-total"), seats.reduce((sum, seat) => sum + plan.price(seat), 0), currency);
  else find("tray-total").textContent = "";
  hold.disabled = !seats.length;
  hold.textContent = seats.length === 1 ? "Reserve seat" : "Reserve seats";
  document.querySelectorAll("a[data-keep-seats]").forEach((link) => {
    const url = new URL(link.href);
    url.searchParams.delete("seats");
    seats.forEach((seat) => url.searchParams.append("seats", plan.ids[seat]));
    link.href = url;
  });
}

function chip(seat) {
  const item = document.createElement("li");
  item.className = "chip";
  const input = Object.assign(document.createElement("input"), { type: "hidden", name: "seats", value: plan.ids[seat] });
  const section = Object.assign(document.createElement("span"), { className: "chip__section", textContent: plan.sections[plan.section[seat]].name });
  const name = Object.assign(document.createElement("button"), { type: "button", className: "chip__seat", title: describe(seat) });
  const hint = Object.assign(document.createElement("span"), { className: "visually-hidden", textContent: ", show on the map" });
  name.append(section, ` Row ${plan.row[seat]} · ${plan.number[seat]}`, hint);
  name.addEventListener("click", () => flyTo(seat));
  const button = Object.assign(document.createElement("button"), { type: "button" });
  button.setAttribute("aria-label", `Remove ${plan.seatName(seat)}, ${plan.sections[plan.section[seat]].name}`);
  button.append(document.getElementById("icon-close").content.cloneNode(true));
  button.addEventListener("click", () => {
    const next = item.nextElementSibling ?? item.previousElementSibling;
    const index = [...item.parentElement.children].indexOf(next);
    choose(seat);
    // Keep the focus in the tray, or return it to the map if the tray is empty.
    (find("tray-seats").children[Math.max(0, index - 1)]?.querySelector("button:last-child") ?? view.svg).focus();
  });
  item.append(input, name, button);
  return item;
}

// Moves the map to a seat and points at it.
function flyTo(seat) {
  hideTip();
  view.zoomTo(plan.x[seat], plan.y[seat], Math.max(ZOOM_PX, view.seatPx));
  at = { seat };
  view.setCursor(at);
  announce(`${describe(seat)}. Shown on the map.`);
}

// ---- the place of the map between the page's head and the tray

// The map ends where the tray begins. If the screen is too low for that, the whole map is drawn above the tray, and the
// page scrolls.
function fitAboveTray() {
  const map = stage.parentElement;
  // Unlike innerHeight, this height stays the same while a phone's address bar hides and returns.
  const room = Math.floor(document.documentElement.clientHeight - (map.getBoundingClientRect().top + scrollY) - tray.offsetHeight);
  const height = Math.max(MAP_PX_MIN, room);
  map.style.height = `${height}px`;
  stage.style.setProperty("--map-cover", Math.min(height - room, MAP_PX_MIN / 3));
}

function showWhere() {
  const section = view.currentSection;
  where.hidden = !section;
  if (section) where.textContent = section.name;
  hint.textContent = view.seatPx >= PICK_PX_TOUCH ? "Tap a seat to select it" : "Tap to zoom in";
}

// ---- pointer: drag to move, wheel and two fingers to zoom, a tap to select

function watchPointer() {
  const { svg } = view;
  const fingers = new Map();
  let moved = 0;
  let spread = 0;
  const point = (event) => {
    const frame = svg.getBoundingClientRect();
    return [event.clientX - frame.left, event.clientY - frame.top];
  };

  svg.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    if (!fingers.size) moved = 0;
    fingers.set(event.pointerId, point(event));
    spread = 0;
  });

  svg.addEventListener("pointermove", (event) => {
    const here = point(event);
    const before = fingers.get(event.pointerId);
    if (!before) {
      if (event.pointerType === "mouse") hover(...here);
      return;
    }
    moved += Math.hypot(here[0] - before[0], here[1] - before[1]);
    fingers.set(event.pointerId, here);
    if (moved < DRAG_PX) return;
    svg.setPointerCapture(event.pointerId);
    hideTip();
    svg.classList.add("is-dragging");
    if (fingers.size === 1) view.pan(here[0] - before[0], here[1] - before[1]);
    else {
      const [a, b] = [...fingers.values()];
      const now = Math.hypot(a[0] - b[0], a[1] - b[1]);
      const middle = [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
      if (spread) view.zoom(now / spread, ...middle);
      view.pan((here[0] - before[0]) / 2, (here[1] - before[1]) / 2);
      spread = now;
    }
  });

  const lift = (event) => {
    if (!fingers.delete(event.pointerId)) return;
    spread = 0;
    if (!fingers.size) svg.classList.remove("is-dragging");
    if (event.type === "pointerup" && moved < DRAG_PX && !fingers.size) tap(...point(event), event.pointerType !== "mouse");
  };
  svg.addEventListener("pointerup", lift);
  svg.addEventListener("pointercancel", lift);
  svg.addEventListener("pointerleave", () => {
    hideTip();
    if (!document.activeElement?.isSameNode(svg)) view.setCursor(null);
  });

  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    view.zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.012 : 0.0018)), ...point(event));
  }, { passive: false });
}

// The item at a point on the screen: a seat if the zoom level shows seats, else a section.
function under(px, py) {
  const [x, y] = view.toPlan(px, py);
  if (view.level !== "far") {
    const seat = plan.nearest(x, y, plan.pitch * 0.75);
    if (seat >= 0) return { seat };
  }
  const node = document.elementsFromPoint(px + view.svg.getBoundingClientRect().left, py + view.svg.getBoundingClientRect().top).find((element) => element.classList.contains("section"));
  return node ? { section: view.outlines.indexOf(node) } : null;
}

function hover(px, py) {
  const found = under(px, py);
  view.svg.classList.toggle("is-over", Boolean(found));
  if (found?.seat !== undefined) {
    if (view.seatPx >= PICK_PX_MOUSE) view.setCursor(found);
    const [x, y] = view.toScreen(plan.x[found.seat], plan.y[found.seat]);
    showTip(describe(found.seat), x, y - view.seatPx * 0.4);
  } else if (found && (view.level === "far" || !plan.sections[found.section].seats.length)) {
    view.setCursor(found);
    showTip(describeSection(found.section), px, py);
  } else {
    view.setCursor(at && { ...at, keyboard: true });
    hideTip();
  }
}

function tap(px, py, touch) {
  const found = under(px, py);
  if (!found) return;
  if (found.seat !== undefined) {
    if (view.seatPx < (touch ? PICK_PX_TOUCH : PICK_PX_MOUSE)) {
      view.zoomTo(plan.x[found.seat], plan.y[found.seat], ZOOM_PX);
      return;
    }
    at = { seat: found.seat };
    choose(found.seat);
    view.setCursor(at);
    if (touch) {
      const [x, y] = view.toScreen(plan.x[found.seat], plan.y[found.seat]);
      showTip(describe(found.seat), x, y - view.seatPx * 0.4);
    }
  } else if (view.level === "far" || !plan.sections[found.section].seats.length) open(found.section);
}

function open(index) {
  const section = plan.sections[index];
  if (!section.seats.length) {
    const link = new URL(location.href);
    link.search = "";
    link.searchParams.set("view", "quantity");
    link.searchParams.set("ga_section", section.id);
    location.assign(link);
    return;
  }
  hideTip();
  view.openSection(index);
  at = { seat: section.seats.find((seat) => !plan.taken[seat]) ?? section.seats[0] };
  view.setCursor({ ...at, keyboard: document.activeElement === view.svg });
  announce(`${describeSection(index)}. Showing its seats.`);
}

// ---- keyboard

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function watchKeys() {
  const { svg } = view;
  svg.addEventListener("focus", () => {
    if (!svg.matches(":focus-visible")) return;
    settle();
    mark();
  });
  svg.addEventListener("blur", () => {
    view.setCursor(null);
    hideTip();
  });
  svg.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (ARROWS[event.key]) move(...ARROWS[event.key]);
    else if (event.key === "Enter" || event.key === " ") pick();
    else if (event.key === "+" || event.key === "=") zoomBy(1.6);
    else if (event.key === "-") zoomBy(1 / 1.6);
    else if (event.key === "Escape" || event.key === "0") showAll();
    else if (event.key === "Home" || event.key === "End") rowEnd(event.key === "End");
    else return;
    event.preventDefault();
  });
}

const isSelectable = (seat) => (!plan.taken[seat] && plan.isShown(seat)) || chosen.has(seat);

// Moves the keyboard cursor to an item of the current zoom level.
function settle() {
  if (view.level === "far") {
    if (at?.section === undefined) at = { section: at ? plan.section[at.seat] : plan.sections.findIndex(({ middle }) => middle) };
  } else if (at?.seat === undefined) {
    const [x, y] = at ? plan.sections[at.section].middle : view.toPlan(view.width / 2, view.height / 2);
    let best = -1;
    let bestDistance = Infinity;
    for (let seat = 0; seat < plan.count; seat++) {
      const distance = (plan.x[seat] - x) ** 2 + (plan.y[seat] - y) ** 2;
      if (distance < bestDistance && isSelectable(seat)) [best, bestDistance] = [seat, distance];
    }
    at = best < 0 ? null : { seat: best };
  }
}

function mark() {
  if (!at) return;
  const seat = at.seat;
  const [x, y] = seat === undefined ? plan.sections[at.section].middle : [plan.x[seat], plan.y[seat]];
  view.reveal(x, y);
  view.setCursor({ ...at, keyboard: true });
  const [px, py] = view.toScreen(x, y);
  showTip(seat === undefined ? describeSection(at.section) : describe(seat), px, py - view.seatPx * 0.4);
}

function move(dx, dy) {
  settle();
  if (!at) return;
  if (at.section !== undefined) {
    const next = plan.stepSection(at.section, dx, dy);
    if (next >= 0) at = { section: next };
  } else {
    const next = plan.step(at.seat, dx, dy, isSelectable);
    if (next < 0) announce("No more available seats in that direction.");
    else at = { seat: next };
  }
  mark();
}

function rowEnd(last) {
  settle();
  if (at?.seat === undefined) return;
  at = { seat: plan.rowEnd(at.seat, last, isSelectable) };
  mark();
}

function pick() {
  settle();
  if (at?.section !== undefined) open(at.section);
  else if (at) {
    choose(at.seat);
    view.setCursor({ ...at, keyboard: true });
  }
}

function zoomBy(factor) {
  const [px, py] = at?.seat === undefined ? [view.width / 2, view.height / 2] : view.toScreen(plan.x[at.seat], plan.y[at.seat]);
  view.zoom(factor, px, py, true);
}

function showAll() {
  view.fit();
  hideTip();
  announce("Showing the whole map.");
}

// ---- changes by other buyers

let etag = "";
let pollMs = POLL_MS;
let isEnded = false;
let sent = false;
let watch = null; // The stream's updates; null until the map is drawn.
let polledAt = 0;
let polling = null;
let timer = 0;
let gone = []; // Selected seats that another buyer took.
let offered = []; // The seats offered instead,
let dropped = []; // and the selected seats that are given up for them, so that the party stays together.

// Whether a 429 means too many requests, rather than the end of this visitor's admission.
async function isRateLimited(response) {
  return (await response.json().catch(() => ({}))).type === "rate-limited";
}

async function readStatus() {
  const response = await fetch(statusUrl, { headers: etag ? { "If-None-Match": etag } : {}, cache: "no-store", credentials: "same-origin" });
  if (response.status === 304) return markFresh();
  if ([401, 403, 410].includes(response.status) || (response.status === 429 && !(await isRateLimited(response)))) {
    endOfAdmission();
    return;
  }
  if (!response.ok) throw new Error(`status request failed: ${response.status}`);
  const status = await response.json();
  etag = response.headers.get("ETag") ?? "";
  markFresh();
  for (const [id, free] of Object.entries(status.general_admission ?? {})) {
    const section = plan.sections.find((one) => one.id === id);
    if (section) section.free = free;
  }
  applyChanges(plan.setTaken(status.taken, watch?.known ?? new Set()));
}

// Shows seats whose availability has changed. After the form is sent, taken seats may be this visitor's own hold.
function applyChanges(changed) {
  view.refresh(changed);
  if (sent) return;
  const lost = changed.filter((seat) => plan.taken[seat] && chosen.has(seat));
  lost.forEach((seat) => chosen.delete(seat));
  if (lost.length) showChoice();
  if (lost.length || (gonePanel.isShown && offered.some((seat) => plan.taken[seat]))) offer([...gone, ...lost]);
}

const short = (seat) => `row ${plan.row[seat]} seat ${plan.number[seat]}`;

// Offers seats instead of the lost ones. A party that sat together is offered seats together, for all of it; otherwise the
// nearest similar seat for each lost one; of equally near seats, the one closest to the rest of the selection.
function offer(lost) {
  gone = lost.filter((seat) => plan.taken[seat]);
  offered = [];
  dropped = [];
  const party = [...gone, ...[...chosen].filter((seat) => plan.section[seat] === plan.section[gone[0]])];
  const group = gone.length && party.length > 1 && isTogether(plan, party) ? groupLike(plan, party, chosen) : null;
  if (group) {
    offered = group.filter((seat) => !chosen.has(seat));
    dropped = party.filter((seat) => chosen.has(seat) && !group.includes(seat));
  }
  for (const seat of group ? [] : gone) {
    const found = plan.nearestLike(seat, new Set([...chosen, ...offered]), [...chosen, ...offered]);
    if (found >= 0) offered.push(found);
  }
  view.setOffered(offered);
  const names = gone.slice(0, LOST_NAMED_MAX).map(short);
  if (gone.length > LOST_NAMED_MAX) names.push(`${gone.length - LOST_NAMED_MAX} more`);
  const section = plan.sections[plan.section[gone[0]]].name;
  const instead = listed(offered.map(short));
  const elsewhere = offered.length && plan.section[offered[0]] !== plan.section[gone[0]] ? ` in ${plan.sections[plan.section[offered[0]]].name}` : "";
  gonePanel.show(`${listed(names)} in ${section}`, instead && `${instead}${elsewhere}`, "No similar seat is left in this section.");
  if (offered.length) view.reveal(plan.x[offered[0]], plan.y[offered[0]]);
}

function takeOffered() {
  dropped.forEach((seat) => chosen.delete(seat));
  const free = offered.filter((seat) => !plan.taken[seat] && !chosen.has(seat)).slice(0, limit - chosen.size);
  endOffer();
  free.forEach((seat) => chosen.add(seat));
  if (free.length) {
    at = { seat: free[0] };
    view.setCursor({ ...at, keyboard: document.activeElement === view.svg });
  }
  announce(free.length ? `${listed(free.map(short))} selected instead. ${chosen.size} of ${limit}.` : "Also taken. Select another seat.");
  showChoice();
  hold.focus({ preventScroll: true });
}

function endOffer() {
  [gone, offered, dropped] = [[], [], []];
  gonePanel.clear();
  view.setOffered([]);
}

function warn(words) {
  let notice = form.querySelector(".map__news");
  if (!notice) {
    notice = Object.assign(document.createElement("p"), { className: "map__news" });
    stage.parentElement.append(notice);
  }
  notice.textContent = words;
  clearTimeout(warn.timer);
  if (!isEnded) warn.timer = setTimeout(() => notice.remove(), 8000);
}

function endOfAdmission() {
  isEnded = true;
  hold.disabled = true;
  warn("Your time to choose has ended. ");
  const link = Object.assign(document.createElement("a"), { href: eventUrl, textContent: "Join the line again" });
  form.querySelector(".map__news").append(link);
  announce("Your time to choose has ended.");
}

// Polls the status. With the stream this is rare, and only detects what the stream does not report: the end of the admission.
async function poll() {
  clearTimeout(timer);
  if (!document.hidden) {
    try {
      polledAt = Date.now();
      polling ??= readStatus().finally(() => (polling = null));
      await polling;
      pollMs = POLL_MS;
    } catch {
      // The map is out of date for a moment; the server decides when seats are held.
      pollMs = Math.min(pollMs * 2, POLL_MS_MAX);
    }
  }
  schedulePoll(isConnected() ? Math.max(pollMs, POLL_MS_STREAMING) : pollMs);
}

function schedulePoll(ms) {
  clearTimeout(timer);
  if (!isEnded) timer = setTimeout(poll, ms);
}

// After an unexplained change or the loss of the stream: poll soon, but no more often than without the stream.
const pollSoon = () => schedulePoll(Math.max(0, polledAt + pollMs - Date.now()));

// ---- start

async function start() {
  const response = await fetch(planUrl, { credentials: "same-origin" });
  if (!response.ok) throw new Error(`plan request failed: ${response.status}`);
  plan = new Plan(await response.json());
  find("map-wait").remove();
  const kinds = new Set(plan.ids.map((_, seat) => plan.kind(seat)));
  form.querySelectorAll("[data-legend]").forEach((item) => (item.hidden = !kinds.has(item.dataset.legend)));
  new ResizeObserver(fitAboveTray).observe(tray);
  addEventListener("resize", fitAboveTray);
  fitAboveTray();
  view = new View(stage, plan, { describe, describeSection });
  await readStatus();
  polledAt = Date.now();
  for (const id of JSON.parse(document.getElementById("selected-seats").textContent)) {
    const seat = plan.index.get(id);
    if (seat !== undefined && !plan.taken[seat] && chosen.size < limit) chosen.add(seat);
  }
  showChoice();
  watchPointer();
  watchKeys();
  watchFilter(form, plan, () => {
    view.refilter();
    at = null;
    view.setCursor(null);
  }, announce);
  form.addEventListener("submit", (event) => {
    if (!chosen.size && event.submitter?.name !== "use_code") return event.preventDefault();
    sent = true;
    setTimeout(() => (sent = false), SENT_MS_MAX);
  });
  form.querySelectorAll("[data-map-zoom]").forEach((button) => {
    button.addEventListener("click", () => ({ in: () => zoomBy(1.7), out: () => zoomBy(1 / 1.7), fit: showAll })[button.dataset.mapZoom]());
  });
  watch = new Watch(plan, view, chosen, own, { seats: applyChanges, counts: () => view.refresh([]), refetch: pollSoon });
  view.onmove = () => {
    watch.settle();
    showWhere();
  };
  document.addEventListener("live:connection", () => (isConnected() ? schedulePoll(POLL_MS_STREAMING) : pollSoon()));
  schedulePoll(POLL_MS);
  form.dataset.ready = "yes";
}

start().catch((error) => {
  const wait = find("map-wait") ?? Object.assign(document.createElement("p"), { className: "map__wait" });
  wait.textContent = "The seat map could not be loaded. You can select the same seats in the list.";
  stage.replaceChildren(wait);
  throw error;
});
