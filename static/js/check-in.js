// The check-in page. A scan is shown at once and queued until the server responds; only the response can admit a ticket.

import { Camera, reader } from "./check-in-camera.js";
import { newId, ScanQueue, store } from "./check-in-queue.js";
import { signal, unlockSound } from "./check-in-signal.js";

const COUNT_MS = 5000;
const UNSURE_AFTER_MS = 1200;
const LOG_MAX = 30;
const OWN_SCAN_MS = 120_000;
const page = document.querySelector("[data-check-in]");
const part = (name) => page.querySelector(`[data-${name}]`);
const { event, api, batch, worker, icons, logIn } = page.dataset;
const outcomes = JSON.parse(document.getElementById("door-outcomes").textContent);
const LOG = `check-in:${event}:log`;
const DOOR = `check-in:${event}:door`;
const form = part("form");
const box = part("answer");
const anyway = part("anyway");
let shown = "";
let log = readLog();

// Messages -------------------------------------------------------------------------------------------------------

function iconOf(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("viewBox", "0 0 20 20");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `${icons}#${name}`);
  svg.append(use);
  return svg;
}

function line(name, ...content) {
  const made = document.createElement("p");
  made.className = `door__${name}`;
  made.append(...content);
  return made;
}

function anywayButton(className, code, ticket) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = className;
  button.textContent = "Let in anyway";
  button.setAttribute("aria-label", `Let in anyway: ${ticket}`);
  button.addEventListener("click", () => send({ code, anyway: true }));
  return button;
}

// `warned`: the code of a valid ticket that is too early or too late. Staff confirm by a scan of its own.
function show({ tone, icon, say, more, ticket, warned }) {
  box.className = `door__answer${tone ? ` door__answer--${tone}` : ""}`;
  box.dataset.tone = tone;
  const lines = [line("icon", iconOf(icon)), line("say", say)];
  if (ticket) lines.push(line("place", ticket.label), line("who", `${ticket.category} · ${ticket.holder}`));
  lines.push(line("more", more));
  box.replaceChildren(...lines);
  anyway.replaceChildren(...(warned ? [anywayButton("button button--big", warned, ticket.label)] : []));
}

const hour = (moment) => new Date(moment).toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

function wordsOf(scan, answer, problem) {
  if (problem) return { tone: "wrong", icon: "alert", say: "Not scanned", more: problem.detail };
  const { say, message, ticket, outcome } = answer;
  const warned = answer.is_warning ? scan.code : "";
  return { ...(outcomes[outcome] ?? { tone: "wrong", icon: "alert" }), say, more: message, ticket, warned };
}

function unsure(scan) {
  const earlier = scan.code && log.find((each) => each.code === scan.code && each.scan_id !== scan.scan_id && !each.undone && !each.warned);
  if (earlier) {
    return {
      tone: "wrong", icon: "twice", say: "Scanned before",
      more: `On this phone at ${hour(earlier.made)}. Not confirmed: the server has not been reached since.`,
    };
  }
  if (queue.trouble === "closed") return { tone: "wrong", icon: "alert", say: "Check-in closed", more: queue.detail };
  const why = queue.trouble === "busy" ? "The server is busy" : "The server cannot be reached";
  return {
    tone: "unsure", icon: "hourglass", say: "Not confirmed yet",
    more: `${why}, so this ticket has not been checked. The scan is saved on this phone and sent again automatically.`,
  };
}

// Scans ----------------------------------------------------------------------------------------------------------

const queue = new ScanQueue(event, { one: api, batch }, { answered, changed: showStatus });

function send(sent) {
  const scan = queue.add({ scan_id: newId(), door: form.elements.door.value.trim(), ...sent });
  shown = scan.scan_id;
  note({ scan_id: scan.scan_id, code: sent.code ?? "", undo: sent.undo ?? "", made: scan.made, state: "waiting" });
  show({ tone: "", icon: "hourglass", say: "Checking…", more: "Waiting for the server." });
  const showUnconfirmed = () => {
    const entry = log.find((each) => each.scan_id === scan.scan_id);
    if (entry?.state !== "waiting" || entry.doubted) return;
    entry.doubted = true;
    saveLog();
    if (shown !== scan.scan_id) return;
    const words = unsure(scan);
    show(words);
    signal(words.tone);
  };
  if (navigator.onLine === false) showUnconfirmed();
  else setTimeout(showUnconfirmed, UNSURE_AFTER_MS);
}

function answered(scan, answer, problem) {
  const words = wordsOf(scan, answer, problem);
  const own = answer?.outcome === "already_in" && log.find((each) => each.code === scan.code && each.outcome === "welcome" && !each.undone);
  if (own && scan.made - own.made < OWN_SCAN_MS) words.more += ` You checked it in on this phone ${Math.max(1, Math.round((scan.made - own.made) / 1000))} s earlier.`;
  const entry = log.find((each) => each.scan_id === scan.scan_id) ?? note({ scan_id: scan.scan_id, code: scan.code ?? "", undo: scan.undo ?? "", made: scan.made });
  Object.assign(entry, { state: "answered", tone: words.tone, icon: words.icon, say: words.say, more: words.more, label: words.ticket?.label ?? "", outcome: answer?.outcome ?? "", warned: Boolean(words.warned) });
  if (answer?.outcome === "undone") {
    const undone = log.find((each) => each.scan_id === scan.undo);
    if (undone) undone.undone = true;
  }
  saveLog();
  if (shown === scan.scan_id) {
    show(words);
    signal(words.tone);
  } else if (entry.doubted && (words.tone === "wrong" || words.warned)) {
    warn(`${words.ticket?.label || "A code"}, scanned at ${hour(scan.made)}: ${words.say}. ${words.more}`);
    signal(words.tone);
  }
  countSoon();
}

// The status line above the camera --------------------------------------------------------------------------------

let warning = "";

function warn(text) {
  warning = text;
  showStatus(queue.state);
}

function showStatus({ waiting, trouble, detail }) {
  const element = part("line");
  const many = waiting === 1 ? "1 scan is waiting" : `${waiting} scans are waiting`;
  const lines = [];
  if (warning) lines.push(warning);
  if (trouble === "closed") lines.push(`${detail || "Check-in is closed."} ${waiting ? `${many} on this phone.` : ""}`);
  else if (trouble && waiting) lines.push(`${trouble === "busy" ? "The server is busy" : "No connection"}: ${many} on this phone.`);
  if (store.isPersistent === false) lines.push("This private window cannot save scans: use a regular window, or waiting scans are lost when you close it.");
  element.hidden = !lines.length;
  element.replaceChildren(lines.join(" "));
  if (trouble === "closed") {
    const link = document.createElement("a");
    link.href = logIn;
    link.textContent = "Log in";
    element.append(" ", link);
  }
  page.dataset.waiting = String(waiting);
}

// Recent scans on this phone -------------------------------------------------------------------------------------

function readLog() {
  try {
    const kept = JSON.parse(store.getItem(LOG) ?? "[]");
    return Array.isArray(kept) ? kept : [];
  } catch {
    return [];
  }
}

function note(entry) {
  log = [entry, ...log].slice(0, LOG_MAX);
  saveLog();
  return log[0];
}

function saveLog() {
  store.setItem(LOG, JSON.stringify(log));
  drawLog();
}

function drawLog() {
  part("log").hidden = !log.length;
  part("log-list").replaceChildren(...log.map(drawEntry));
}

function drawEntry(entry) {
  const item = document.createElement("li");
  const tone = entry.state === "waiting" ? "unsure" : entry.tone;
  item.className = `door__entry door__entry--${tone}`;
  const words = document.createElement("span");
  const say = document.createElement("b");
  say.textContent = entry.state === "waiting" ? "Not confirmed yet" : entry.undone ? `${entry.say}, undone` : entry.say;
  const what = entry.label || (entry.undo ? "Undo check-in" : `Code …${entry.code.slice(-4)}`);
  words.append(say, ` ${hour(entry.made)} · ${what}`);
  item.append(iconOf(entry.state === "waiting" ? "hourglass" : entry.icon), words);
  if (entry.outcome === "welcome" && !entry.undone) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button button--quiet";
    button.textContent = "Undo";
    button.setAttribute("aria-label", `Undo the check-in of ${what}`);
    button.addEventListener("click", () => {
      if (confirm(`Undo the check-in of ${what}? The ticket can then be used again.`)) send({ undo: entry.scan_id });
    });
    item.append(button);
  }
  const isOpen = entry.warned && !log.some((each) => each.code === entry.code && (each.state === "waiting" || each.outcome === "welcome"));
  if (isOpen) item.append(anywayButton("button button--quiet", entry.code, what));
  return item;
}

// Counts ---------------------------------------------------------------------------------------------------------

let counting = 0;

async function count() {
  clearTimeout(counting);
  try {
    if (!document.hidden) {
      const response = await fetch(api, { headers: { Accept: "application/json" }, cache: "no-store", signal: AbortSignal.timeout(COUNT_MS) });
      if (response.ok) drawCounts(await response.json());
    }
  } catch {
    // Keep the old numbers; the status line reports a lost connection once a scan has to wait.
  }
  counting = setTimeout(count, COUNT_MS + Math.random() * 1000);
}

function countSoon() {
  clearTimeout(counting);
  counting = setTimeout(count, 300);
}

function drawCounts({ entered, expected, sections }) {
  const number = (value) => value.toLocaleString("en");
  part("entered").textContent = number(entered);
  part("expected").textContent = number(expected);
  part("sections").replaceChildren(
    ...sections.map((each) => {
      const item = document.createElement("li");
      const name = document.createElement("span");
      const of = document.createElement("b");
      name.textContent = each.section;
      of.textContent = `${number(each.entered)} of ${number(each.expected)}`;
      item.append(name, " ", of);
      return item;
    }),
  );
}

// Typing ---------------------------------------------------------------------------------------------------------

const typed = form.elements.code;

typed.addEventListener("input", () => {
  if (typed.selectionStart !== typed.value.length || /[:/]/.test(typed.value)) return;
  const bare = typed.value.replace(/[^0-9a-z]/gi, "").toUpperCase();
  typed.value = bare.replace(/(.{4})(?=.)/g, "$1 ");
});
form.addEventListener("submit", (submitted) => {
  submitted.preventDefault();
  unlockSound();
  const code = typed.value.trim();
  if (!code) return;
  typed.value = "";
  typed.blur(); // The on-screen keyboard would cover the answer.
  scrollTo({ top: 0 });
  send({ code });
});
if (!form.elements.door.readOnly) {
  form.elements.door.value ||= store.getItem(DOOR) ?? "";
  form.elements.door.addEventListener("change", () => store.setItem(DOOR, form.elements.door.value.trim()));
}
part("plain-undo")?.remove();

// The camera -----------------------------------------------------------------------------------------------------

// A QR code can contain any text. Half of a surrogate pair and control characters cannot be stored.
const printable = (text) => [...text].filter((character) => !/[\p{Cc}\p{Cs}]/u.test(character)).slice(0, 300).join("");

const camera = new Camera(part("video"), { seen: (text) => send({ code: printable(text) }), ended: () => stopCamera("The camera has stopped.") });
const start = part("start");

function stopCamera(words) {
  part("camera").dataset.running = "no";
  start.hidden = false;
  part("light").hidden = true;
  part("camera-words").textContent = words;
}

async function startCamera() {
  start.hidden = true;
  part("camera-words").textContent = "";
  try {
    await camera.start();
    part("camera").dataset.running = "yes";
    part("light").hidden = !camera.hasLight;
  } catch (error) {
    stopCamera(error.name === "NotAllowedError" ? "Camera access is blocked. Allow it in the browser’s site settings, or type the code." : "No camera is available. Type the code.");
  }
}

part("camera").hidden = false;
if (Camera.isPossible) {
  start.addEventListener("click", () => {
    unlockSound();
    startCamera();
  });
  part("light").addEventListener("click", async () => {
    const on = part("light").getAttribute("aria-pressed") !== "true";
    await camera.light(on).catch(() => {});
    part("light").setAttribute("aria-pressed", String(on));
  });
  navigator.permissions?.query({ name: "camera" }).then((permission) => permission.state === "granted" && startCamera(), () => {});
} else {
  start.hidden = true;
  part("camera-words").textContent = "The camera requires an HTTPS connection. Type the code.";
}
addEventListener("pointerdown", unlockSound, { once: true });

// Offline use ----------------------------------------------------------------------------------------------------

async function cachePage() {
  if (!("serviceWorker" in navigator)) return;
  try {
    await reader; // Loads the decoder if this browser needs it, so that it is cached too.
    await navigator.serviceWorker.register(worker, { scope: "/check-in/" });
    const { active } = await navigator.serviceWorker.ready;
    const used = performance.getEntriesByType("resource").map((entry) => entry.name.split("#")[0]);
    const ours = used.filter((address) => address.startsWith(`${location.origin}/static/`));
    active.postMessage({ addresses: [...new Set([location.pathname, ...ours])] });
    page.dataset.kept = "asked";
  } catch {
    // Without the cache, a reload needs the network; scanning does not.
  }
}

drawLog();
queue.send();
count();
cachePage();
page.dataset.ready = "yes";
