// The page is kept by caches for minutes; what is left is asked for beside it, once when the page is shown and then every
// 15 to 30 seconds while somebody looks. Until then, and without script, what the server wrote stands.
//
// [data-left-url]            where the counts are; data-left-state is how the page was written, on_sale or sold_out
//   [data-left]              how many are left in all
//   [data-left-when=STATE]   shown while that is so
//   [data-left-section=ID]   a section's row, with its meter and the text in [data-left-words]

const ASK_AGAIN_MS = 15_000;
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
    face.replaceChildren(words);
  }
  for (const { section_id: id, available_seats: left, total_seats: total } of sections) {
    const row = page.querySelector(`[data-left-section="${CSS.escape(id)}"]`);
    if (!row) continue;
    row.classList.toggle("section-row--gone", left === 0);
    row.querySelector("[data-left-words]").textContent = left ? `${number.format(left)} free` : "Sold out";
    Object.assign(row.querySelector("meter"), { max: total, value: left });
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
  askedAt = performance.now();
  try {
    const answer = await fetch(page.dataset.leftUrl, { headers: { Accept: "application/json" } });
    if (answer.ok) show((await answer.json()).sections);
  } catch {
    // Away for a moment: what stands there is the last that was known.
  }
}

if (page) {
  document.body.append(voice);
  document.addEventListener("visibilitychange", () => {
    // Going to and fro between tabs asks no more often than looking on does.
    if (performance.now() - askedAt >= ASK_AGAIN_MS) ask();
  });
  addEventListener("pageshow", (event) => event.persisted && ask());
  ask();
}
