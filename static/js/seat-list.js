// Enhances the seat list, which also works as a plain form: enforces the limit before the form is sent, and shows at once
// which seats other buyers take and release (live.js).

import { JustGone, listed } from "./just-gone.js";
import { on, watchSections } from "./live.js";
import { showTotal } from "./tray-total.js";

const ROW_DISTANCE = 2.5; // The distance between rows, in seat widths.
const form = document.querySelector("[data-seat-list]");
const limit = Number(form.dataset.limit);
const money = new Intl.NumberFormat("en", { style: "currency", currency: form.dataset.currency });
const minorDigits = money.resolvedOptions().maximumFractionDigits;
const hold = form.querySelector(".tray [type=submit]");
const says = form.querySelector("[data-list-says]");
const total = form.querySelector("[data-tray-total]");
const elsewhere = form.querySelectorAll("input[type=hidden][name=seats]").length;
const own = new Set(JSON.parse(document.getElementById("own-seats").textContent));
const gonePanel = new JustGone(form.querySelector("[data-just-gone]"), takeOffered);
const boxes = [...form.querySelectorAll("input[type=checkbox][name=seats]")];
const byId = new Map(boxes.map((box) => [box.value, box]));
const locations = new Map();
form.querySelectorAll(".seat-row").forEach((row, down) => {
  row.querySelectorAll("input[type=checkbox]").forEach((box, along) => locations.set(box, { down, along, row: row.dataset.row }));
});
let isSynced = false; // Whether the stream has sent every seat, and sends every change.
let gone = [];
let offered = [];
let sent = false;

const price = (box) => money.format(Number(box.dataset.price) / 10 ** minorDigits);
const name = (box) => `row ${locations.get(box).row} seat ${box.dataset.number}`;

function count() {
  const chosen = boxes.filter((box) => box.checked);
  const seats = chosen.length + elsewhere;
  const sum = chosen.reduce((minor, box) => minor + Number(box.dataset.price), 0);
  says.textContent = seats ? `${seats} of ${limit} selected${elsewhere ? `, ${elsewhere} elsewhere` : ""}` : `Select up to ${limit} seat${limit === 1 ? "" : "s"}.`;
  hold.disabled = !seats;
  hold.textContent = seats === 1 ? "Reserve seat" : "Reserve seats";
  if (chosen.length && !elsewhere) showTotal(total, sum, form.dataset.currency);
  else total.textContent = "";
  document.querySelectorAll("a[data-keep-seats]").forEach((link) => {
    const url = new URL(link.href);
    url.searchParams.delete("seats");
    new FormData(form).getAll("seats").forEach((seat) => url.searchParams.append("seats", seat));
    link.href = url;
  });
  return seats;
}

// ---- changes by other buyers

function setTaken(box, isTaken) {
  box.disabled = isTaken;
  box.closest(".seat").classList.toggle("seat--taken", isTaken);
  const old = box.parentElement.querySelector("[data-seat-is]");
  const words = document.createElement("span");
  words.dataset.seatIs = "";
  words.className = isTaken ? "visually-hidden" : "seat__price";
  words.textContent = isTaken ? ", taken" : price(box);
  old.replaceWith(words);
}

function nearestLike(lost, except) {
  const here = locations.get(lost);
  let best = null;
  let bestScore = Infinity;
  for (const box of boxes) {
    if (box.disabled || box.checked || except.includes(box) || box.dataset.kind !== lost.dataset.kind || box.dataset.price !== lost.dataset.price) continue;
    const { down, along } = locations.get(box);
    const score = Math.abs(down - here.down) * ROW_DISTANCE + Math.abs(along - here.along);
    if (score < bestScore) [best, bestScore] = [box, score];
  }
  return best;
}

function applySeats({ section_id: id, complete, seats }) {
  if (id !== form.dataset.section || sent) return;
  if (complete) isSynced = true;
  else if (!isSynced) return;
  const lost = [];
  for (const [seat, box] of complete ? byId : Object.keys(seats).map((one) => [one, byId.get(one)])) {
    if (!box) continue;
    const status = seats[seat] ?? "available";
    const isTaken = status !== "available" && !(status === "held" && own.has(seat));
    if (isTaken === box.disabled) continue;
    if (isTaken && box.checked) {
      box.checked = false;
      lost.push(box);
    }
    setTaken(box, isTaken);
  }
  if (lost.length) count();
  if (lost.length || (gonePanel.isShown && offered.some((box) => box.disabled))) offer([...gone, ...lost]);
}

function offer(lost) {
  mark(false);
  gone = lost.filter((box) => box.disabled);
  offered = [];
  for (const box of gone) {
    const found = nearestLike(box, offered);
    if (found) offered.push(found);
  }
  mark(true);
  gonePanel.show(`${listed(gone.map(name))}`, listed(offered.map(name)), "No similar seat is left in this section.");
}

function mark(isOffered) {
  offered.forEach((box) => box.closest(".seat").classList.toggle("seat--offered", isOffered));
}

function takeOffered() {
  const chosen = boxes.filter((box) => box.checked).length + elsewhere;
  const free = offered.filter((box) => !box.disabled).slice(0, limit - chosen);
  endOffer();
  free.forEach((box) => (box.checked = true));
  count();
  (free[0] ?? hold).focus();
}

function endOffer() {
  mark(false);
  [gone, offered] = [[], []];
  gonePanel.clear();
}

form.addEventListener("change", (event) => {
  if (count() > limit && event.target.checked) {
    event.target.checked = false;
    count();
    says.textContent = `You can select up to ${limit} seat${limit === 1 ? "" : "s"}.`;
  } else if (event.target.checked && gonePanel.isShown) endOffer();
});
form.addEventListener("keydown", (event) => {
  // As on the map, Enter selects the seat; without scripts it sends the form.
  if (event.key !== "Enter" || !byId.has(event.target.value) || event.target.type !== "checkbox") return;
  event.preventDefault();
  event.target.click();
});
form.addEventListener("submit", () => {
  sent = true;
});
addEventListener("pageshow", () => {
  sent = false;
  count(); // The browser may have restored a selection.
});
on("seats", applySeats);
document.addEventListener("live:connection", ({ detail }) => detail.way || (isSynced = false));
if (form.dataset.section) watchSections([form.dataset.section]);
count();
