// Personalizes a shared page. Only a browser with the signed_in cookie sends the request; the response replaces the items
// of the site navigation and adds one-time messages above the page.

const list = document.querySelector("[data-who]");
const anonymousItems = [...list.children];
const hinted = () => document.cookie.split("; ").includes("signed_in=1");

async function personalize() {
  if (!hinted()) {
    list.replaceChildren(...anonymousItems);
    return;
  }
  try {
    const response = await fetch(list.dataset.who, { cache: "no-store", credentials: "same-origin" });
    if (response.status !== 200) return; // Logged out meanwhile, or the request failed: the links still work.
    const fragment = new DOMParser().parseFromString(await response.text(), "text/html");
    list.replaceChildren(...fragment.querySelector("[data-who]").children);
    const messages = fragment.querySelector(".messages");
    if (messages) document.querySelector("main").before(messages);
  } catch {
    // The page is complete without it.
  }
}

personalize();
// Restored from the back/forward cache: the visitor may have logged in or out on another page.
addEventListener("pageshow", (event) => {
  if (event.persisted) personalize();
});
