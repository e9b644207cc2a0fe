// The page is kept by caches for minutes; what is left is heard beside it (live.js). While nothing is heard it is asked for:
// once when the page is shown and then every 15 to 30 seconds while somebody looks. Until then, and without script, what
// the server wrote stands.
//
// [data-left-url]            where the counts are; data-left-state is how the page was written, on_sale or sold_out
//   [data-left]              how many are left in all
//   [data-left-when=STATE]   shown while that is so
//   [data-left-section=ID]   a section's row, with its meter and the text in [data-left-words]
import { heardElsewhere, isHeard, on } from "./live.js";

const ASK_AGAIN_MS = 15_000;
const LISTEN_FIRST_MS = 1_500; // So long the stream may take to tell before the page asks for itself.
const FEW = 100;
const page = document.querySelector("[data-left-url]");
const number = new Intl.NumberFormat("en-US");
let isSoldOut = page?.dataset.leftState === "sold_out";
let askedAt = -ASK_AGAIN_MS;
let beat = 0;

const voice = document.createElement("p");
voice.className = "visually-hidden";
voice.setAttribute("role", "status");

function show(sections) {
  const all = sections.reduce((sum, section) => sum + section.available_seats, 0);
  for (const face of page.querySelectorAll("[data-left]")) {
    const words = document.createElement(all <= FEW ? "strong" : "span");
    words.textContent = all <= FEW ? `Only ${all} left` : `${number.format(all)} places free`;
    if (face.textContent !== words.textContent) face.replaceChildren(words);
  }
  for (const { section_id: id, available_seats: left, total_seats: total } of sections) {
    const row = page.querySelector(`[data-left-section="${CSS.escape(id)}"]`);
    if (!row) continue;
    row.classList.toggle("section-row--gone", left === 0);
    row.querySelector("[data-left-words]").textContent = left ? `${number.format(left)} free` : "Sold out";
    const meter = row.querySelector("meter");
    if (total !== undefined) meter.max = total;
    meter.value = left;
  }
  if ((all === 0) === isSoldOut) return;
  isSoldOut = all === 0;
  for (const part of page.querySelectorAll("[data-left-when]")) {
    part.hidden = (part.dataset.leftWhen === "sold_out") !== isSoldOut;
  }
  voice.textContent = isSoldOut ? "Sold out." : "Tickets are free again.";
}

async function ask() {
  clearTimeout(beat);
  if (document.hidden) return;
  beat = setTimeout(ask, ASK_AGAIN_MS * (1 + Math.random()));
  if (isHeard()) return;
  askedAt = performance.now();
  try {
    const answer = await fetch(page.dataset.leftUrl, { headers: { Accept: "application/json" } });
    if (!answer.ok) return;
    const { sections } = await answer.json();
    heardElsewhere();
    // What came meanwhile is newer.
    if (!isHeard()) show(sections);
  } catch {
    // Away for a moment: what stands there is the last that was known.
  }
}

function askSoon(spreadMs = 0) {
  clearTimeout(beat);
  // Going to and fro between tabs asks no more often than looking on does.
  const due = askedAt + ASK_AGAIN_MS - performance.now();
  beat = setTimeout(ask, Math.max(LISTEN_FIRST_MS, due) + Math.random() * spreadMs);
}

if (page) {
  document.body.append(voice);
  on("sections", ({ sections }) => show(sections));
  document.addEventListener("live:connection", ({ detail }) => detail.way || askSoon(ASK_AGAIN_MS));
  document.addEventListener("visibilitychange", () => askSoon());
  addEventListener("pageshow", (event) => event.persisted && askSoon());
  askSoon();
}
