// Solves the Altcha challenge of a form in workers and puts the proof into its field. With data-work-submits the form is then
// sent; otherwise it waits for its button, and a press before the end is sent as soon as the proof is there.
const WORKERS_MAX = 4;
const LONG_MS = 5_000;

function solve(challenge, url) {
  const count = Math.min(WORKERS_MAX, navigator.hardwareConcurrency || 1);
  const workers = [];
  return new Promise((resolve, reject) => {
    for (let first = 0; first < count; first += 1) {
      const worker = new Worker(url);
      worker.onmessage = ({ data }) => (data ? resolve(data) : reject(new Error("no solution")));
      worker.onerror = reject;
      worker.postMessage({ challenge, first, step: count });
      workers.push(worker);
    }
  }).finally(() => workers.forEach((worker) => worker.terminate()));
}

async function work(holder) {
  const form = holder.closest("form");
  const status = holder.querySelector("[data-work-status]");
  const challenge = JSON.parse(document.getElementById("work-challenge").textContent);
  let isPressed = "workSubmits" in holder.dataset;
  const hold = (event) => {
    event.preventDefault();
    isPressed = true;
    status.textContent = "Checking that you’re not a bot. This takes a few seconds.";
  };
  form.addEventListener("submit", hold);
  const long = setTimeout(() => {
    if (isPressed) status.textContent = "Still checking. You don’t need to do anything.";
  }, LONG_MS);
  try {
    const solution = await solve(challenge, holder.dataset.workWorker);
    holder.querySelector("[data-work-proof]").value = btoa(JSON.stringify({ challenge, solution }));
    if (isPressed) status.textContent = "Done.";
  } catch {
    // No workers, or no WebCrypto (a page without TLS): wait instead, as without scripts.
    if (holder.dataset.workElse) {
      location.replace(holder.dataset.workElse);
      return;
    }
  } finally {
    clearTimeout(long);
    form.removeEventListener("submit", hold);
  }
  if (isPressed) form.requestSubmit();
}

work(document.querySelector("[data-work]"));
