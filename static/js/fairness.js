// The fairness page's verifier: fetches the public data, recomputes it and reports the result.

import { Mismatch, readReceipt, verify } from "./fairness-proof.js";

const check = document.querySelector("[data-fair]");
const part = (name) => check.querySelector(`[data-fair-${name}]`);
const figure = (number) => number.toLocaleString("en-US");
let isRunning = false;

async function get(url) {
  // Revalidate with the ETag on every run, so that the check covers the current data.
  const response = await fetch(url, { headers: { Accept: "application/json" }, credentials: "omit", cache: "no-cache" });
  if (!response.ok) throw new Error(`The data could not be loaded (error ${response.status}). Try again in a moment.`);
  return response.json();
}

const fetchPage = (name, after) => get(`${check.dataset.proofUrl}?part=${name}&after=${after}`);

async function progress(share) {
  part("progress").value = share;
  await new Promise((next) => setTimeout(next)); // Keeps the page responsive.
}

function describe(seen, receipt) {
  const lines = [];
  if (seen.stage === "open") lines.push(`The lobby is open. Visitors in it: ${figure(seen.lobby)}. The commitment matches the published statement.`);
  if (seen.stage === "closed") lines.push(`The lobby has closed. Visitors in it: ${figure(seen.lobby)}. The fingerprint of the entrants is not published yet.`);
  if (seen.stage === "counted") lines.push(`All ${figure(seen.lobby)} entrants match the published fingerprint. The secret is not revealed yet.`);
  if (seen.stage === "revealed") lines.push("The secret and the seed match the commitment. The numbers are not drawn yet.");
  if (seen.stage === "drawn") lines.push(`Numbers 1 to ${figure(seen.drawn)}: each has exactly the position that was drawn.`);
  if (seen.firstCome) lines.push(`Numbers ${figure(seen.lobby + 1)} to ${figure(seen.lobby + seen.firstCome)}: none is missing, and their chain matches the published end.`);
  if (!lines.length) lines.push("No numbers have been assigned yet.");
  if (seen.marked) lines.push(seen.marked === 1 ? "One number was admitted ahead of its turn and is marked as such." : `${figure(seen.marked)} numbers were admitted ahead of their turn and are marked as such.`);
  if (seen.stage !== "none" || seen.firstCome) {
    lines.push(seen.isOperatorProof ? "An outside beacon was used, and its value matches its signature. The command below also verifies the signature." : "This is consistent, not operator-proof.");
  }
  if (receipt) {
    const position = seen.watched === null ? "your entry is in the draw" : `your number is ${figure(seen.watched)}`;
    const signature = receipt.isSigned ? "The signature is valid" : "This browser cannot verify the signature (the command can); everything else is valid";
    lines.unshift(`Your receipt: ${position}, and nothing before it has changed since. ${signature}.`);
  }
  return lines;
}

function show(kind, title, lines) {
  const result = part("result");
  const heading = document.createElement("h3");
  heading.textContent = title;
  const list = document.createElement("ul");
  for (const line of lines) {
    const item = document.createElement("li");
    item.textContent = line;
    list.append(item);
  }
  result.replaceChildren(heading, list);
  result.dataset.kind = kind;
  result.hidden = false;
  result.scrollIntoView({ block: "nearest" });
  part("says").textContent = `${title} ${lines.join(" ")}`;
}

// Of JSON: the strings before a colon, and the names that are left once it is read. They differ if a name is given twice.
const nameCount = (json) => [...json.matchAll(/"(?:[^"\\]|\\.)*"\s*(:?)/g)].filter(([, colon]) => colon).length;
const keyCount = (value) => (value === null || typeof value !== "object" ? 0 : Object.values(value).reduce((sum, inner) => sum + keyCount(inner), Array.isArray(value) ? 0 : Object.keys(value).length));

async function run(receiptFile = null) {
  if (isRunning) return;
  isRunning = true;
  part("go").disabled = true;
  part("result").hidden = true;
  part("progress").hidden = false;
  part("says").textContent = "Verifying.";
  try {
    await progress(0);
    const proof = await get(check.dataset.proofUrl);
    let receipt = null;
    if (receiptFile) {
      let read;
      try {
        const written = await receiptFile.text();
        read = JSON.parse(written);
        if (nameCount(written) !== keyCount(read)) throw new SyntaxError("A name is given twice.");
      } catch {
        throw new Mismatch("This file is not a receipt.");
      }
      receipt = await readReceipt(read, proof);
    }
    const seen = await verify(proof, fetchPage, { progress, watch: receipt });
    show("good", "Everything matches.", describe(seen, receipt));
  } catch (error) {
    if (error instanceof Mismatch) show("wrong", receiptFile ? "The line does not match your receipt." : "The line does not match its public data.", [error.message]);
    else show("unknown", "The check could not be completed.", [error instanceof TypeError ? "The data could not be loaded. Try again in a moment." : error.message]);
  } finally {
    part("progress").hidden = true;
    part("go").disabled = false;
    isRunning = false;
  }
}

part("live").hidden = false;
part("static").textContent = "Or with this command, on any machine with Fairgate installed:";
if (globalThis.crypto?.subtle) {
  part("go").addEventListener("click", () => run());
  part("receipt").addEventListener("change", (event) => {
    const [file] = event.target.files;
    event.target.value = "";
    if (file) run(file);
  });
} else {
  part("go").disabled = true;
  part("receipt").disabled = true;
  show("unknown", "Not available in this browser.", ["Browsers can verify the line only over HTTPS. The command below works anywhere."]);
}
