// A page that is the same for everybody learns who is logged in. Only a browser with the hint of a log-in asks; what it is
// told replaces the items of the head, and what is to be said once stands above the page.

const list = document.querySelector("[data-who]");
const anyone = [...list.children];
const hinted = () => document.cookie.split("; ").includes("signed_in=1");

async function look() {
  if (!hinted()) {
    list.replaceChildren(...anyone);
    return;
  }
  try {
    const answer = await fetch(list.dataset.who, { cache: "no-store", credentials: "same-origin" });
    if (answer.status !== 200) return; // Logged out meanwhile, or nobody could tell: the links lead on all the same.
    const told = new DOMParser().parseFromString(await answer.text(), "text/html");
    list.replaceChildren(...told.querySelector("[data-who]").children);
    const messages = told.querySelector(".messages");
    if (messages) document.querySelector("main").before(messages);
  } catch {
    // The page is whole without it.
  }
}

look();
// Back from the browser's own memory: whoever it was may have logged in or out on another page.
addEventListener("pageshow", (event) => {
  if (event.persisted) look();
});
