// The fairness page checks the line by itself: fetches the public data, recomputes it, and says in words what came out.

import { Mismatch, readReceipt, verify } from "./fairness-proof.js";

const check = document.querySelector("[data-fair]");
const part = (name) => check.querySelector(`[data-fair-${name}]`);
const figure = (number) => number.toLocaleString("en-US");
let isUnderWay = false;

async function get(address) {
  // Asked again each time, and answered by the ETag alone where nothing changed: a check of what was is none of what is.
  const answer = await fetch(address, { headers: { Accept: "application/json" }, credentials: "omit", cache: "no-cache" });
  if (!answer.ok) throw new Error(`The data cannot be fetched now (${answer.status}). Try again in a moment.`);
  return answer.json();
}

const fetchPage = (name, after) => get(`${check.dataset.proofUrl}?part=${name}&after=${after}`);

async function progress(share) {
  part("progress").value = share;
  await new Promise((next) => setTimeout(next)); // The page stays alive meanwhile.
}

function words(seen, receipt) {
  const said = [];
  if (seen.stage === "open") said.push(`The lobby is open with ${figure(seen.lobby)} in it. The promise is that of the published statement.`);
  if (seen.stage === "closed") said.push(`The lobby has closed with ${figure(seen.lobby)} in it; the fingerprint over them is still to come.`);
  if (seen.stage === "counted") said.push(`All ${figure(seen.lobby)} entrants are those of the published fingerprint. The secret is still to come.`);
  if (seen.stage === "revealed") said.push("Secret and seed are as promised. The numbers are still to be drawn.");
  if (seen.stage === "drawn") said.push(`Numbers 1 to ${figure(seen.drawn)}: each stands exactly where the draw put it.`);
  if (seen.firstCome) said.push(`Numbers ${figure(seen.lobby + 1)} to ${figure(seen.lobby + seen.firstCome)}: none is missing, and the chain over them ends where it should.`);
  if (!said.length) said.push("Nobody has a number yet, and the data says so.");
  if (seen.marked) said.push(seen.marked === 1 ? "One was let through ahead of its turn, and is marked so." : `${figure(seen.marked)} were let through ahead of their turn, and are marked so.`);
  if (seen.stage !== "none" || seen.firstCome) {
    said.push(seen.isOperatorProof ? "An outside beacon was mixed in: compare its value with its publisher’s record." : "This is consistent, not operator-proof.");
  }
  if (receipt) {
    const place = seen.watched === null ? "its place is kept for the draw" : `its place is number ${figure(seen.watched)}`;
    const signature = receipt.isSigned ? "The signature holds" : "This browser cannot check the signature (the command can); all else holds";
    said.unshift(`Your receipt: ${place}, and nothing before it was changed since. ${signature}.`);
  }
  return said;
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

async function run(receiptFile = null) {
  if (isUnderWay) return;
  isUnderWay = true;
  part("go").disabled = true;
  part("result").hidden = true;
  part("progress").hidden = false;
  part("says").textContent = "Checking.";
  try {
    await progress(0);
    const proof = await get(check.dataset.proofUrl);
    let receipt = null;
    if (receiptFile) {
      let read;
      try {
        read = JSON.parse(await receiptFile.text());
      } catch {
        throw new Mismatch("This file is no receipt.");
      }
      receipt = await readReceipt(read, proof);
    }
    const seen = await verify(proof, fetchPage, { progress, watch: receipt });
    show("good", "Everything agrees.", words(seen, receipt));
  } catch (error) {
    if (error instanceof Mismatch) show("wrong", receiptFile ? "This does not agree with your receipt." : "This does not agree.", [error.message]);
    else show("unknown", "The check did not come to an end.", [error instanceof TypeError ? "The data cannot be fetched or read now. Try again in a moment." : error.message]);
  } finally {
    part("progress").hidden = true;
    part("go").disabled = false;
    isUnderWay = false;
  }
}

part("live").hidden = false;
part("static").textContent = "Or by command, on a machine with Fairgate on it, which need not be ours:";
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
  show("unknown", "Not in this browser.", ["Browsers compute fingerprints only on pages that come by https. The command below does the same anywhere."]);
}
