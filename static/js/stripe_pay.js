// Stripe's own form in our page: the browser pays the intent, and the page then follows what the signed webhook tells us.
// While the intent is still being made there is no form: the page looks for it and loads itself again.
//
// [data-stripe-pay]          data-key, data-secret, data-return: the account, the intent, where a bank sends its buyer back to
//   [data-stripe-form]       where Stripe's frame goes
//   [data-stripe-submit]     pays
//   [data-stripe-error]      what Stripe or the bank says

const AGAIN_MS = 1500;
const panel = document.querySelector("[data-stripe-pay]");
const button = panel?.querySelector("[data-stripe-submit]");
const error = panel?.querySelector("[data-stripe-error]");

function tell(text) {
  error.textContent = text;
  error.hidden = !text;
}

function begin() {
  if (!window.Stripe) {
    panel.querySelector("[data-stripe-wait]")?.remove();
    tell("Stripe’s payment form could not be loaded. Check your connection or your blocker, and load this page again.");
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
  form.on("loaderror", () => tell("Stripe’s payment form could not be loaded. Load this page again."));
  form.mount(panel.querySelector("[data-stripe-form]"));
  button.addEventListener("click", async () => {
    button.disabled = true;
    tell("");
    const answer = await stripe.confirmPayment({ elements, redirect: "if_required", confirmParams: { return_url: panel.dataset.return } });
    if (answer.error) {
      tell(answer.error.message ?? "The payment did not go through.");
      button.disabled = false;
    }
    // Else it is paid, or the bank decides: the page hears of it from us, once it was signed.
  });
}

// When the order is decided its part of the page is exchanged: then there is nothing to pay any more.
function isOpen() {
  return ["placed", "paying"].includes(document.getElementById("order-state")?.dataset.orderState);
}

async function lookForForm() {
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (page.querySelector("[data-stripe-pay]")) return location.reload();
  } catch {
    // The next look tells.
  }
  if (isOpen()) setTimeout(lookForForm, AGAIN_MS);
}

if (panel) {
  begin();
  new MutationObserver(() => (panel.hidden = !isOpen())).observe(document.body, { childList: true, subtree: true });
} else {
  setTimeout(lookForForm, AGAIN_MS);
}
