// Keeps the page at the door and what it is made of, so that a reload without a network still gives a page that scans.
// The network comes first: what is kept is only shown when it is silent. It keeps no call of the API and no link.

const SHELF = "check-in-1";
const PATIENCE_MS = 4000;

addEventListener("install", (event) => event.waitUntil(skipWaiting()));
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("message", (event) => event.waitUntil(keepAll(event.data?.addresses ?? [])));

async function keepAll(addresses) {
  const shelf = await caches.open(SHELF);
  for (const address of addresses) {
    try {
      const answer = await fetch(address);
      if (answer.ok && !answer.redirected) await shelf.put(address, answer);
    } catch {
      // Not this time; it is kept when it is next asked for.
    }
  }
}

addEventListener("fetch", (event) => {
  const { request } = event;
  const address = new URL(request.url);
  const isKept = address.pathname.startsWith("/check-in/") || address.pathname.startsWith("/static/");
  if (request.method !== "GET" || address.origin !== location.origin || !isKept || address.search) return;
  event.respondWith(answerTo(request));
});

async function answerTo(request) {
  const shelf = await caches.open(SHELF);
  try {
    const answer = await fetch(request, { signal: AbortSignal.timeout(PATIENCE_MS) });
    if (answer.ok) await shelf.put(request, answer.clone());
    // Logged out, or the door link is not good any more: nor is the page that was kept.
    else if (answer.type === "opaqueredirect" || answer.status < 500) await shelf.delete(request);
    return answer;
  } catch (error) {
    const kept = await shelf.match(request, { ignoreVary: true });
    if (kept) return kept;
    throw error;
  }
}
