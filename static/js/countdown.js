// Counts down to a moment, on the server's clock, and says so aloud only when it matters.
//
// [data-countdown=ISO]            the moment
//   data-countdown-now=ISO        the server's time when it wrote the page; without it this device's clock is believed
//   data-countdown-style=words    "3 hours 12 minutes" in place of "9:41"
//   data-countdown-word           what the time is for: "2 minutes left to pay"
//   data-countdown-over           what to show at the end
//   data-countdown-reload         load the page again at the end
//   data-countdown-go=URL         or go there
// Inside: [data-countdown-digits] takes the digits; [data-countdown-live] shows, [data-countdown-static] hides.

const SPOKEN_MINUTES = [5, 2, 1];
const SHORT_SECONDS = 60;

const voice = document.createElement("p");
voice.className = "visually-hidden";
voice.setAttribute("role", "status");
document.body.append(voice);

function digits(seconds) {
  const hours = Math.floor(seconds / 3600);
  const minutes = Math.floor((seconds % 3600) / 60);
  const rest = String(seconds % 60).padStart(2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}

function words(seconds) {
  const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const first = units.findIndex(([, size]) => seconds >= size);
  if (first < 0) return "now";
  let left = seconds;
  const said = [];
  for (const [name, size] of units.slice(first, first + 2)) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count) said.push(`${count} ${name}${count === 1 ? "" : "s"}`);
  }
  return said.join(" ");
}

function start(element, writtenAt = loadedAt()) {
  const { countdown, countdownNow, countdownStyle, countdownWord, countdownOver, countdownGo } = element.dataset;
  const end = Date.parse(countdown);
  // How far this device's clock is off; the milliseconds the page was under way make us end a little late, never early.
  const offset = countdownNow && writtenAt !== null ? Date.parse(countdownNow) - (performance.timeOrigin + writtenAt) : 0;
  const face = element.querySelector("[data-countdown-digits]") ?? element;
  element.querySelectorAll("[data-countdown-live]").forEach((part) => (part.hidden = false));
  element.querySelectorAll("[data-countdown-static]").forEach((part) => (part.hidden = true));
  element.hidden = false;
  face.setAttribute("role", "timer");
  let spoken = Infinity;
  let ended = false;
  let ticked = false;

  function tick() {
    if (!element.isConnected) return clearInterval(beat);
    const left = Math.ceil((end - Date.now() - offset) / 1000);
    if (left <= 0) {
      if (ended) return;
      ended = true;
      clearInterval(beat);
      face.textContent = countdownOver ?? (countdownStyle === "words" ? "now" : "0:00");
      element.classList.add("is-short");
      voice.textContent = countdownOver ?? "";
      // What ended is swept within a second or two; ask once that has had time to happen, and more calmly where the
      // page came back still saying the same.
      const pause = (ticked ? 1500 : 6000) * (1 + Math.random());
      if (countdownGo !== undefined) setTimeout(() => location.assign(countdownGo), pause);
      else if ("countdownReload" in element.dataset) setTimeout(() => location.reload(), pause);
      return;
    }
    ticked = true;
    face.textContent = countdownStyle === "words" ? words(left) : digits(left);
    element.classList.toggle("is-short", countdownStyle !== "words" && left <= SHORT_SECONDS);
    if (countdownWord) {
      const due = SPOKEN_MINUTES.findLast((minutes) => left <= minutes * 60);
      if (due !== undefined && due < spoken) {
        // Nothing is said for a mark that had passed before the page was opened.
        if (spoken !== Infinity || left > due * 60 - 5) voice.textContent = `${due} minute${due === 1 ? "" : "s"} left ${countdownWord}`;
        spoken = due;
      }
    }
  }

  const beat = setInterval(tick, 250);
  document.addEventListener("visibilitychange", tick);
  tick();
}

function loadedAt() {
  const [page] = performance.getEntriesByType("navigation");
  // A copy out of the browser's cache was written some other time: then this device's clock is the better guess.
  return page && page.transferSize > 0 ? page.responseStart : null;
}

document.querySelectorAll("[data-countdown]").forEach((element) => start(element));
// What follow.js put in was written when it came, not when the page did.
document.addEventListener("follow:news", (event) => {
  event.target.querySelectorAll("[data-countdown]").forEach((element) => start(element, performance.now()));
});

// A page that comes back from the browser's own memory may show a hold that is long gone.
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});

// One press is one order: the server would answer the same again, but the wait should look like one.
document.querySelectorAll("form[data-once]").forEach((form) => {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "yes";
    form.querySelectorAll("[type=submit]").forEach((button) => button.setAttribute("aria-disabled", "true"));
  });
});
