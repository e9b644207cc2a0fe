// While a payment is under way: look again every second and a half, and put in what changed.

const AGAIN_MS = 1500;
const AGAIN_MS_MAX = 10_000;
const voice = document.querySelector("[data-order-says]");
let wait = AGAIN_MS;

async function look() {
  const shown = document.getElementById("order-state");
  if (!("orderOpen" in shown.dataset)) return;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("order-state");
    if (!fresh) throw new Error("no order on the page");
    wait = AGAIN_MS;
    if (fresh.dataset.orderState !== shown.dataset.orderState) {
      shown.replaceWith(fresh);
      document.title = page.title;
      if (!("orderOpen" in fresh.dataset)) {
        voice.textContent = fresh.querySelector("h1")?.textContent ?? "";
        return;
      }
    }
  } catch {
    // The order goes on without us; only the looking slows down.
    wait = Math.min(wait * 2, AGAIN_MS_MAX);
  }
  setTimeout(look, wait);
}

setTimeout(look, AGAIN_MS);
