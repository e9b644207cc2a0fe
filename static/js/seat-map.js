// Choosing seats on the map: pointer, keyboard, the tray, and what other buyers take meanwhile.

import { JustGone, listed } from "./just-gone.js";
import { heardElsewhere, isHeard } from "./live.js";
import { Watch } from "./seat-map-live.js";
import { Plan } from "./seat-map-plan.js";
import { View } from "./seat-map-view.js";
import { showTotal } from "./tray-total.js";

const STATUS_EVERY_MS = 3000;
const STATUS_EVERY_MS_HEARD = 60_000;
const SENT_MS_MAX = 20_000;
const STATUS_EVERY_MS_MAX = 30_000;
const DRAG_PX = 6;
const PICK_PX_MOUSE = 6.5; // seats closer together than this are not picked: the map comes closer instead
const PICK_PX_TOUCH = 17;
const COME_CLOSE_PX = 38;
const CHANGED_MAX_SPOKEN = 3;

const form = document.querySelector("[data-seat-map]");
form.hidden = false; // Without a script it would be a map that never comes and a button that holds nothing.
const { planUrl, statusUrl, currency, eventUrl } = form.dataset;
const limit = Number(form.dataset.limit);
const find = (name) => form.querySelector(`[data-${name}]`);
const stage = find("map-stage");
const tip = find("map-tip");
const says = find("map-says");
const hold = find("tray-hold");

const formatter = new Intl.NumberFormat("en", { style: "currency", currency });
const minorDigits = formatter.resolvedOptions().maximumFractionDigits;
const money = (minor) => formatter.format(minor / 10 ** minorDigits);

let plan;
let view;
let at = null; // {seat} or {section}: what the keyboard is on
const chosen = new Set();
const own = new Set(JSON.parse(document.getElementById("own-seats").textContent)); // Held already, and free to choose anew.
const news = new JustGone(find("just-gone"), takeOffered);

// ---- words

function describe(seat) {
  const parts = [plan.place(seat), plan.sections[plan.section[seat]].name, money(plan.price(seat))];
  const kind = plan.kind(seat);
  if (kind) parts.push(kind);
  if (plan.sections[plan.section[seat]].needs_access) parts.push("with code");
  if (plan.taken[seat] && !chosen.has(seat)) parts.push("taken");
  return parts.join(" · ");
}

function describeSection(index) {
  const section = plan.sections[index];
  const prices = (section.categories ?? []).map((category) => plan.categories[category].full_price_minor);
  const parts = [section.name, section.free ? `${section.free.toLocaleString("en")} free` : "sold out"];
  if (prices.length) parts.push(prices.length > 1 ? `${money(Math.min(...prices))} to ${money(Math.max(...prices))}` : money(prices[0]));
  if (section.kind === "general_admission") parts.push("general admission");
  if (section.needs_access) parts.push("with code");
  return parts.join(" · ");
}

function say(words) {
  // The same sentence twice is said twice.
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

// ---- the choice

function choose(seat) {
  if (chosen.has(seat)) {
    chosen.delete(seat);
    say(`${plan.place(seat)} given up. ${chosen.size} of ${limit} chosen.`);
  } else if (plan.taken[seat]) {
    say(`${plan.place(seat)} is taken.`);
    return;
  } else if (chosen.size >= limit) {
    say(`${limit} seats at a time is the most.`);
    const [x, y] = view.toScreen(plan.x[seat], plan.y[seat]);
    showTip(`${limit} seats at a time is the most`, x, y);
    return;
  } else {
    chosen.add(seat);
    if (news.isShown) endOffer();
    say(`${plan.place(seat)} chosen, ${money(plan.price(seat))}. ${chosen.size} of ${limit}.`);
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
  hold.textContent = seats.length === 1 ? "Hold this seat" : "Hold these seats";
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
  const name = Object.assign(document.createElement("span"), { textContent: `Row ${plan.row[seat]} · ${plan.number[seat]}` });
  name.title = describe(seat);
  const button = Object.assign(document.createElement("button"), { type: "button" });
  button.setAttribute("aria-label", `Give up ${plan.place(seat)}, ${plan.sections[plan.section[seat]].name}`);
  button.append(document.getElementById("icon-close").content.cloneNode(true));
  button.addEventListener("click", () => {
    const next = item.nextElementSibling ?? item.previousElementSibling;
    const place = [...item.parentElement.children].indexOf(next);
    choose(seat);
    // Focus stays in the tray, or goes back to the map when the tray is empty.
    (find("tray-seats").children[Math.max(0, place - 1)]?.querySelector("button") ?? view.svg).focus();
  });
  item.append(input, name, button);
  return item;
}

// ---- pointer: drag to move, wheel and two fingers to zoom, a tap to choose

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

// What lies under a point of the screen: a seat while seats can be told apart, else a section.
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
      view.comeTo(plan.x[found.seat], plan.y[found.seat], COME_CLOSE_PX);
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
  say(`${describeSection(index)}. Now among its seats.`);
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
    else if (event.key === "+" || event.key === "=") closer(1.6);
    else if (event.key === "-") closer(1 / 1.6);
    else if (event.key === "Escape" || event.key === "0") whole();
    else if (event.key === "Home" || event.key === "End") rowEnd(event.key === "End");
    else return;
    event.preventDefault();
  });
}

const mayStand = (seat) => !plan.taken[seat] || chosen.has(seat);

// Puts the keyboard on something of the level that is shown.
function settle() {
  if (view.level === "far") {
    if (at?.section === undefined) at = { section: at ? plan.section[at.seat] : plan.sections.findIndex(({ middle }) => middle) };
  } else if (at?.seat === undefined) {
    const [x, y] = at ? plan.sections[at.section].middle : view.toPlan(view.width / 2, view.height / 2);
    let best = -1;
    let bestDistance = Infinity;
    for (let seat = 0; seat < plan.count; seat++) {
      const distance = (plan.x[seat] - x) ** 2 + (plan.y[seat] - y) ** 2;
      if (distance < bestDistance && mayStand(seat)) [best, bestDistance] = [seat, distance];
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
    const next = plan.step(at.seat, dx, dy, mayStand);
    if (next < 0) say("No free seat further that way.");
    else at = { seat: next };
  }
  mark();
}

function rowEnd(last) {
  settle();
  if (at?.seat === undefined) return;
  at = { seat: plan.rowEnd(at.seat, last, mayStand) };
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

function closer(factor) {
  const [px, py] = at?.seat === undefined ? [view.width / 2, view.height / 2] : view.toScreen(plan.x[at.seat], plan.y[at.seat]);
  view.zoom(factor, px, py, true);
}

function whole() {
  view.fit();
  hideTip();
  say("The whole house.");
}

// ---- what others take

let etag = "";
let pause = STATUS_EVERY_MS;
let over = false;
let sent = false;
let watch = null; // What the stream tells; null until there is a map.
let readAt = 0;
let reading = null;
let timer = 0;
let gone = []; // Lost, and something is offered instead:
let offered = [];

// Asked too often from this connection: no word about one's own admission.
async function isRateLimited(answer) {
  return (await answer.json().catch(() => ({}))).type === "rate-limited";
}

async function readStatus() {
  const answer = await fetch(statusUrl, { headers: etag ? { "If-None-Match": etag } : {}, cache: "no-store", credentials: "same-origin" });
  if (answer.status === 304) return heardElsewhere();
  if ([401, 403, 410].includes(answer.status) || (answer.status === 429 && !(await isRateLimited(answer)))) {
    endOfAdmission();
    return;
  }
  if (!answer.ok) throw new Error(`status answered ${answer.status}`);
  const status = await answer.json();
  etag = answer.headers.get("ETag") ?? "";
  heardElsewhere();
  for (const [id, free] of Object.entries(status.general_admission ?? {})) {
    const section = plan.sections.find((one) => one.id === id);
    if (section) section.free = free;
  }
  takeIn(plan.setTaken(status.taken, watch?.known ?? new Set()));
}

// These seats have changed hands. What one has just sent off oneself is nobody else's.
function takeIn(changed) {
  view.refresh(changed);
  if (sent) return;
  const lost = changed.filter((seat) => plan.taken[seat] && chosen.has(seat));
  lost.forEach((seat) => chosen.delete(seat));
  if (lost.length) showChoice();
  if (lost.length || (news.isShown && offered.some((seat) => plan.taken[seat]))) offer([...gone, ...lost]);
}

const short = (seat) => `row ${plan.row[seat]} seat ${plan.number[seat]}`;

// Of each that was lost, the nearest like it; what is still chosen stays together with it where that is as near.
function offer(lost) {
  gone = lost.filter((seat) => plan.taken[seat]);
  offered = [];
  for (const seat of gone) {
    const found = plan.nearestLike(seat, new Set([...chosen, ...offered]), [...chosen, ...offered]);
    if (found >= 0) offered.push(found);
  }
  view.setOffered(offered);
  const names = gone.slice(0, CHANGED_MAX_SPOKEN).map(short);
  if (gone.length > CHANGED_MAX_SPOKEN) names.push(`${gone.length - CHANGED_MAX_SPOKEN} more`);
  const where = plan.sections[plan.section[gone[0]]].name;
  news.show(`${listed(names)} in ${where}`, listed(offered.map(short)), "No other seat like it is free in this section.");
  if (offered.length) view.reveal(plan.x[offered[0]], plan.y[offered[0]]);
}

function takeOffered() {
  const free = offered.filter((seat) => !plan.taken[seat] && !chosen.has(seat)).slice(0, limit - chosen.size);
  endOffer();
  free.forEach((seat) => chosen.add(seat));
  if (free.length) {
    at = { seat: free[0] };
    view.setCursor({ ...at, keyboard: document.activeElement === view.svg });
  }
  say(free.length ? `${listed(free.map(short))} chosen instead. ${chosen.size} of ${limit}.` : "Gone too. Choose another seat.");
  showChoice();
  hold.focus({ preventScroll: true });
}

function endOffer() {
  [gone, offered] = [[], []];
  news.clear();
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
  if (!over) warn.timer = setTimeout(() => notice.remove(), 8000);
}

function endOfAdmission() {
  over = true;
  hold.disabled = true;
  warn("Your time to choose has ended. ");
  const link = Object.assign(document.createElement("a"), { href: eventUrl, textContent: "Get in line again" });
  form.querySelector(".map__news").append(link);
  say("Your time to choose has ended.");
}

// With the stream only now and then, for what it does not tell: that one's time to choose has been ended.
async function keepUp() {
  clearTimeout(timer);
  if (!document.hidden) {
    try {
      readAt = Date.now();
      reading ??= readStatus().finally(() => (reading = null));
      await reading;
      pause = STATUS_EVERY_MS;
    } catch {
      // What is shown grows old for a moment; the hold itself is what decides.
      pause = Math.min(pause * 2, STATUS_EVERY_MS_MAX);
    }
  }
  keepUpIn(isHeard() ? Math.max(pause, STATUS_EVERY_MS_HEARD) : pause);
}

function keepUpIn(ms) {
  clearTimeout(timer);
  if (!over) timer = setTimeout(keepUp, ms);
}

// Something in sight is not as it is shown, or nobody tells any more: soon, but no more often than without the stream.
const lookSoon = () => keepUpIn(Math.max(0, readAt + pause - Date.now()));

// ---- start

async function start() {
  const answer = await fetch(planUrl, { credentials: "same-origin" });
  if (!answer.ok) throw new Error(`plan answered ${answer.status}`);
  plan = new Plan(await answer.json());
  find("map-wait").remove();
  view = new View(stage, plan, { describe, describeSection });
  await readStatus();
  readAt = Date.now();
  for (const id of JSON.parse(document.getElementById("selected-seats").textContent)) {
    const seat = plan.index.get(id);
    if (seat !== undefined && !plan.taken[seat] && chosen.size < limit) chosen.add(seat);
  }
  showChoice();
  watchPointer();
  watchKeys();
  form.addEventListener("submit", (event) => {
    if (!chosen.size && event.submitter?.name !== "use_code") return event.preventDefault();
    sent = true;
    setTimeout(() => (sent = false), SENT_MS_MAX);
  });
  form.querySelectorAll("[data-map-zoom]").forEach((button) => {
    button.addEventListener("click", () => ({ in: () => closer(1.7), out: () => closer(1 / 1.7), fit: whole })[button.dataset.mapZoom]());
  });
  watch = new Watch(plan, view, chosen, own, { seats: takeIn, counts: () => view.refresh([]), look: lookSoon });
  view.onmove = () => watch.settle();
  document.addEventListener("live:connection", () => (isHeard() ? keepUpIn(STATUS_EVERY_MS_HEARD) : lookSoon()));
  keepUpIn(STATUS_EVERY_MS);
  form.dataset.ready = "yes";
}

start().catch((fault) => {
  const wait = find("map-wait") ?? Object.assign(document.createElement("p"), { className: "map__wait" });
  wait.textContent = "The map could not be drawn. The list shows the same seats.";
  stage.replaceChildren(wait);
  throw fault;
});
