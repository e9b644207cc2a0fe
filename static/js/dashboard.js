// Keeps a dashboard current: reads the page again while it is visible, and replaces its parts with data-live. A part in which
// the reader is (focus, an open list) stays until the next time.

const EVERY_MS = 10_000;
let failures = 0;

async function update() {
  if (document.visibilityState === "visible") {
    try {
      const response = await fetch(location.href, { cache: "no-store", credentials: "same-origin", redirect: "error" });
      if (!response.ok) throw new Error(String(response.status));
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
      for (const part of document.querySelectorAll("[data-live]")) {
        const other = fresh.querySelector(`[data-live="${part.dataset.live}"]`);
        const isInUse = part.contains(document.activeElement) || part.querySelector("details[open]");
        if (other && !isInUse) part.replaceWith(document.adoptNode(other));
      }
      failures = 0;
    } catch {
      failures += 1; // Logged out, or the site is unavailable: the page shows when it was counted.
    }
  }
  setTimeout(update, EVERY_MS * 2 ** Math.min(failures, 5));
}
setTimeout(update, EVERY_MS);
