// Reports a view of the event's page once, when the page has been visible for some seconds: how long, and the host that linked
// to it. Whether the view counts is decided by the server's rules.
//
// [data-view-url=URL]     where the view is reported
//   data-view-after       after how many visible seconds

const TICK_MS = 500;
const page = document.querySelector("[data-view-url]");
const after = Number(page.dataset.viewAfter) * 1_000;
let visibleMs = 0;
let tickedAt = performance.now();

function referrer() {
  try {
    const url = new URL(document.referrer);
    return url.host !== location.host && /^[a-z0-9._-]{1,253}$/.test(url.hostname) ? url.hostname : "";
  } catch {
    return ""; // Opened directly, or the browser does not say from where.
  }
}

function report() {
  const body = JSON.stringify({ seconds: Math.floor(visibleMs / 1_000), referrer: referrer() });
  const url = page.dataset.viewUrl;
  // A beacon is sent even if the page is left in the same moment.
  if (!navigator.sendBeacon?.(url, new Blob([body], { type: "application/json" }))) {
    fetch(url, { method: "POST", body, headers: { "Content-Type": "application/json" }, keepalive: true, credentials: "same-origin" }).catch(() => {}); // A view that is not counted is no loss to the visitor.
  }
}

const timer = setInterval(() => {
  const now = performance.now();
  // A longer pause is a suspended device.
  if (document.visibilityState === "visible") visibleMs += Math.min(now - tickedAt, 2 * TICK_MS);
  tickedAt = now;
  if (visibleMs < after) return;
  clearInterval(timer);
  report();
}, TICK_MS);
