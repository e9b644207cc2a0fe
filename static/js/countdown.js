// Counts down to a moment by the server's clock, and announces to screen readers only the last minutes.
//
// [data-countdown=ISO]            the moment
//   data-countdown-now=ISO        the server's time when it rendered the page; without it this device's clock is used
//   data-countdown-style=words    "3 hours 12 minutes" in place of "9:41"
//   data-countdown-word           the purpose of the time, as in "2 minutes left to pay"
//   data-countdown-over           the text to show at the end
//   data-countdown-reload         reload the page at the end
//   data-countdown-go=URL         open this URL at the end
// Inside: [data-countdown-digits] for the digits; [data-countdown-live] is shown and [data-countdown-static] is hidden.

const ANNOUNCED_SECONDS = [300, 120, 30];
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
  const parts = [];
  for (const [name, size] of units.slice(first, first + 2)) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count) parts.push(`${count} ${name}${count === 1 ? "" : "s"}`);
  }
  return parts.join(" ");
}

function start(element, renderedAt = loadedAt()) {
  const { countdown, countdownNow, countdownStyle, countdownWord, countdownOver, countdownGo } = element.dataset;
  const end = Date.parse(countdown);
  // The offset of this device's clock. The network delay makes the countdown end slightly late, never early.
  const offset = countdownNow && renderedAt !== null ? Date.parse(countdownNow) - (performance.timeOrigin + renderedAt) : 0;
  const face = element.querySelector("[data-countdown-digits]") ?? element;
  element.querySelectorAll("[data-countdown-live]").forEach((part) => (part.hidden = false));
  element.querySelectorAll("[data-countdown-static]").forEach((part) => (part.hidden = true));
  element.hidden = false;
  face.setAttribute("role", "timer");
  let announced = Infinity;
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
      // The server's sweep releases an expired hold within a second or two: reload after that, and later if the hold had
      // already expired when the page was loaded.
      const pause = (ticked ? 1500 : 6000) * (1 + Math.random());
      if (countdownGo !== undefined) setTimeout(() => location.assign(countdownGo), pause);
      else if ("countdownReload" in element.dataset) setTimeout(() => location.reload(), pause);
      return;
    }
    ticked = true;
    face.textContent = countdownStyle === "words" ? words(left) : digits(left);
    element.classList.toggle("is-short", countdownStyle !== "words" && left <= SHORT_SECONDS);
    if (countdownWord) {
      const due = ANNOUNCED_SECONDS.findLast((seconds) => left <= seconds);
      if (due !== undefined && due < announced) {
        // A mark that had passed before the page was opened is not announced.
        if (announced !== Infinity || left > due - 5) voice.textContent = `${due < 60 ? `${due} seconds` : `${due / 60} minutes`} left ${countdownWord}`;
        announced = due;
      }
    }
  }

  const beat = setInterval(tick, 250);
  document.addEventListener("visibilitychange", tick);
  tick();
}

function loadedAt() {
  const [page] = performance.getEntriesByType("navigation");
  // A copy from the browser's cache was rendered at another time: then this device's clock is the better source.
  return page && page.transferSize > 0 ? page.responseStart : null;
}

document.querySelectorAll("[data-countdown]").forEach((element) => start(element));
// Content inserted by follow.js was rendered when it arrived, not when the page was.
document.addEventListener("follow:news", (event) => {
  event.target.querySelectorAll("[data-countdown]").forEach((element) => start(element, performance.now()));
});

// A page restored from the back/forward cache may show a hold that has expired.
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});

// Submit a form only once. The server would return the same order again; this only disables the button meanwhile.
function sendOnce(root) {
  root.querySelectorAll("form[data-once]").forEach((form) => {
    form.addEventListener("submit", (event) => {
      if (form.dataset.sent) event.preventDefault();
      form.dataset.sent = "yes";
      form.querySelectorAll("[type=submit]").forEach((button) => button.setAttribute("aria-disabled", "true"));
    });
  });
}
sendOnce(document);
document.addEventListener("follow:news", (event) => sendOnce(event.target));
