// Caches the check-in page and its assets, so that the page can be reloaded and can scan without a network. Network first: the cache
// is used only if the network does not respond. API requests and login links are never cached.

const CACHE = "check-in-1";
const TIMEOUT_MS = 4000;

addEventListener("install", (event) => event.waitUntil(skipWaiting()));
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("message", (event) => event.waitUntil(cacheAll(event.data?.addresses ?? [])));

async function cacheAll(addresses) {
  const cache = await caches.open(CACHE);
  for (const address of addresses) {
    try {
      const response = await fetch(address);
      if (response.ok && !response.redirected) await cache.put(address, response);
    } catch {
      // This file is cached when it is next requested.
    }
  }
}

addEventListener("fetch", (event) => {
  const { request } = event;
  const address = new URL(request.url);
  const isCached = address.pathname.startsWith("/check-in/") || address.pathname.startsWith("/static/");
  if (request.method !== "GET" || address.origin !== location.origin || !isCached || address.search) return;
  event.respondWith(respond(request));
});

async function respond(request) {
  const cache = await caches.open(CACHE);
  try {
    const response = await fetch(request, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (response.ok) await cache.put(request, response.clone());
    // Logged out, or the check-in link is no longer valid: drop the cached page as well.
    else if (response.type === "opaqueredirect" || response.status < 500) await cache.delete(request);
    return response;
  } catch (error) {
    const cached = await cache.match(request, { ignoreVary: true });
    if (cached) return cached;
    throw error;
  }
}
