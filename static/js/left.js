// Updates the ticket counts of the event page, which caches may keep for minutes: from the stream (live.js), or without a
// stream by polling once when the page is shown and then every 15 to 30 seconds while it is visible.
//
// [data-left-url]            the URL of the counts; data-left-state is the rendered state, on_sale or sold_out, and
//                            data-left-capacity the number of tickets for sale at first
//   [data-left]              the total number of tickets left
//   [data-left-when=STATE]   shown in that state
//   [data-left-section=ID]   a section's row, with its meter and the text in [data-left-words]
import { isConnected, markFresh, on } from "./live.js";

const POLL_MS = 15_000;
const STREAM_FIRST_MS = 1_500; // How long to wait for the stream before the first poll.
// As in apps/events/selectors.py::EventCard.has_few_left.
const FEW_MAX = 100;
const FEW_SHARE = 0.2;
let capacity = 0;
const page = document.querySelector("[data-left-url]");
const number = new Intl.NumberFormat("en-US");
capacity = Number(page?.dataset.leftCapacity) || 0;
let isSoldOut = page?.dataset.leftState === "sold_out";
let polledAt = -POLL_MS;
let timer = 0;

const voice = document.createElement("p");
voice.className = "visually-hidden";
voice.setAttribute("role", "status");

function show(sections) {
  const all = sections.reduce((sum, section) => sum + section.available_seats, 0);
  // The stream's counts have no totals.
  if (sections.every((section) => section.total_seats !== undefined)) capacity = sections.reduce((sum, section) => sum + section.total_seats, 0);
  const isFew = all < capacity && all <= Math.min(FEW_MAX, capacity * FEW_SHARE);
  for (const face of page.querySelectorAll("[data-left]")) {
    const words = document.createElement(isFew ? "strong" : "span");
    words.textContent = isFew ? `Only ${all} left` : `${number.format(all)} tickets left`;
    if (face.textContent !== words.textContent) face.replaceChildren(words);
  }
  for (const { section_id: id, available_seats: left, total_seats: total } of sections) {
    const row = page.querySelector(`[data-left-section="${CSS.escape(id)}"]`);
    if (!row) continue;
    row.classList.toggle("section-row--gone", left === 0);
    row.querySelector("[data-left-words]").textContent = left ? `${number.format(left)} left` : "Sold out";
    const meter = row.querySelector("meter");
    if (total !== undefined) meter.max = total;
    meter.value = left;
  }
  if ((all === 0) === isSoldOut) return;
  isSoldOut = all === 0;
  for (const part of page.querySelectorAll("[data-left-when]")) {
    part.hidden = (part.dataset.leftWhen === "sold_out") !== isSoldOut;
  }
  voice.textContent = isSoldOut ? "Sold out." : "Tickets are available again.";
}

async function poll() {
  clearTimeout(timer);
  if (document.hidden) return;
  timer = setTimeout(poll, POLL_MS * (1 + Math.random()));
  if (isConnected()) return;
  polledAt = performance.now();
  try {
    const response = await fetch(page.dataset.leftUrl, { headers: { Accept: "application/json" } });
    if (!response.ok) return;
    const { sections } = await response.json();
    markFresh();
    // If the stream connected meanwhile, its counts are newer.
    if (!isConnected()) show(sections);
  } catch {
    // Keep showing the last known counts.
  }
}

function pollSoon(spreadMs = 0) {
  clearTimeout(timer);
  // Switching between tabs does not poll more often than a page that stays visible.
  const due = polledAt + POLL_MS - performance.now();
  timer = setTimeout(poll, Math.max(STREAM_FIRST_MS, due) + Math.random() * spreadMs);
}

if (page) {
  document.body.append(voice);
  on("sections", ({ sections }) => show(sections));
  document.addEventListener("live:connection", ({ detail }) => detail.way || pollSoon(POLL_MS));
  document.addEventListener("visibilitychange", () => pollSoon());
  addEventListener("pageshow", (event) => event.persisted && pollSoon());
  pollSoon();
}
