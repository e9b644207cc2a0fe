// Stripe's payment form. The browser confirms the payment intent; the page then follows the order, which the signed webhook
// updates. While the intent is being created there is no form: the page polls for it and reloads itself.
//
// [data-stripe-pay]          data-key, data-secret, data-return: publishable key, client secret, return URL for the bank
//   [data-stripe-form]       the container of Stripe's iframe
//   [data-stripe-submit]     the button that pays
//   [data-stripe-error]      error messages from Stripe or the bank

const POLL_MS = 1500;
const panel = document.querySelector("[data-stripe-pay]");
const button = panel?.querySelector("[data-stripe-submit]");
const error = panel?.querySelector("[data-stripe-error]");

function showError(text) {
  error.textContent = text;
  error.hidden = !text;
}

function begin() {
  if (!window.Stripe) {
    panel.querySelector("[data-stripe-wait]")?.remove();
    showError("Stripe’s payment form could not be loaded. Check your connection and any content blocker, then refresh this page.");
    return;
  }
  const stripe = window.Stripe(panel.dataset.key);
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const elements = stripe.elements({ clientSecret: panel.dataset.secret, appearance: { theme: isDark ? "night" : "stripe" } });
  const form = elements.create("payment");
  form.on("ready", () => {
    panel.querySelector("[data-stripe-wait]")?.remove();
    button.disabled = false;
  });
  form.on("loaderror", () => showError("Stripe’s payment form could not be loaded. Refresh this page."));
  form.mount(panel.querySelector("[data-stripe-form]"));
  button.addEventListener("click", async () => {
    button.disabled = true;
    showError("");
    const result = await stripe.confirmPayment({ elements, redirect: "if_required", confirmParams: { return_url: panel.dataset.return } });
    if (result.error) {
      showError(result.error.message ?? "The payment did not go through.");
      button.disabled = false;
    }
    // Otherwise the payment succeeded or the bank is deciding: the page shows the result once the webhook has arrived.
  });
}

// Once the order is decided, follow.js replaces its part of the page and nothing is left to pay.
function isOpen() {
  return ["placed", "paying"].includes(document.getElementById("order-state")?.dataset.orderState);
}

async function pollForForm() {
  try {
    const response = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    if (page.querySelector("[data-stripe-pay]")) return location.reload();
  } catch {
    // Try again at the next poll.
  }
  if (isOpen()) setTimeout(pollForForm, POLL_MS);
}

if (panel) {
  begin();
  new MutationObserver(() => (panel.hidden = !isOpen())).observe(document.body, { childList: true, subtree: true });
} else {
  setTimeout(pollForForm, POLL_MS);
}
