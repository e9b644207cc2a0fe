// The line moves while one waits: ask again when the answer said to, show it, and go on when it is one's turn.

const AGAIN_MS_MAX = 30_000;
const SPEAK_MS_MIN = 20_000;
const line = document.querySelector("[data-line]");
const part = (name) => document.querySelector(`[data-line-${name}]`);
const figure = (number) => number.toLocaleString("en-US");
let first = null;
let trouble = 0;
let spokenAt = 0;
let timer;

function waitWords(place) {
  if (place.status === "paused") return "The line stands still for a moment. Your place is safe.";
  const [from, to] = place.estimated_wait_range.map((seconds) => Math.ceil(seconds / 60));
  if (to <= 1) return "Less than a minute.";
  return from === to ? `About ${to} minutes.` : `Between ${from} and ${to} minutes, as things go now.`;
}

function show(place) {
  const ahead = place.position_in_queue;
  first ??= Math.max(ahead, 1);
  part("stamp").textContent = place.status === "paused" ? "Paused" : "In line";
  part("ahead").textContent = figure(ahead);
  part("wait").textContent = waitWords(place);
  part("track").style.inlineSize = `${Math.round(100 * (1 - ahead / first))}%`;
  document.title = document.title.replace(/^[^·]*/, ahead ? `${figure(ahead)} to go ` : "You are next ");
  // Said now and then, not at every answer: who listens wants to do something else meanwhile.
  if (Date.now() - spokenAt > SPEAK_MS_MIN || place.status !== line.dataset.status) {
    spokenAt = Date.now();
    part("says").textContent = `${ahead ? `${figure(ahead)} to go.` : "You are next."} ${waitWords(place)}`;
  }
  line.dataset.status = place.status;
}

async function ask() {
  clearTimeout(timer);
  let again;
  try {
    const answer = await fetch(line.dataset.statusUrl, {
      headers: { Accept: "application/json" },
      cache: "no-store",
      credentials: "same-origin",
    });
    if (answer.status === 401 || answer.status === 404) return location.reload();
    if (!answer.ok) throw new Error(String(answer.status));
    const place = await answer.json();
    if (place.status === "ready") {
      part("says").textContent = "It is your turn.";
      return location.replace(line.dataset.go);
    }
    // Ended, one way or another: the page itself says how.
    if (place.status !== "waiting" && place.status !== "paused") return location.reload();
    trouble = 0;
    part("lost").hidden = true;
    show(place);
    again = place.next_poll;
  } catch {
    trouble += 1;
    part("lost").hidden = false;
    again = Math.min(AGAIN_MS_MAX, 1_000 * 2 ** Math.min(trouble, 5)) * (0.8 + 0.4 * Math.random());
  }
  timer = setTimeout(ask, again);
}

timer = setTimeout(ask, Number(line.dataset.nextPoll));
// After sleep, a lost network or another tab: at once, for a turn may have come.
addEventListener("online", ask);
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && ask());
addEventListener("pageshow", (event) => event.persisted && ask());
