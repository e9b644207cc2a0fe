// Tells who asked for it that it is their turn: a sound made here, and a message of the browser where it is allowed.

const KEPT = "fairgate-tell";
const NOTES = [[660, 0], [880, 0.22], [1320, 0.44]];
const NOTE_SECONDS = 0.35;
const AGAIN_MS = 4_000;
const RINGS_MAX = 8;
const box = document.querySelector("[data-line-tell]");
const button = document.querySelector("[data-line-tell-button]");
const word = document.querySelector("[data-line-tell-word]");
const note = document.querySelector("[data-line-tell-note]");
let on = false;
let sound = null;
let rings = 0;

export const wantsToBeTold = () => on;

function remember(wanted) {
  try {
    if (wanted) sessionStorage.setItem(KEPT, "yes");
    else sessionStorage.removeItem(KEPT);
  } catch {
    // A browser that keeps nothing is asked again after a reload.
  }
}

function remembered() {
  try {
    return sessionStorage.getItem(KEPT) === "yes";
  } catch {
    return false;
  }
}

// Browsers let a page sound only after a press on it.
function wake() {
  const Sound = window.AudioContext ?? window.webkitAudioContext;
  if (!Sound) return;
  sound ??= new Sound();
  if (sound.state === "suspended") sound.resume().then(say, () => {});
}

function play(notes) {
  if (!sound) return;
  for (const [pitch, after] of notes) {
    const tone = sound.createOscillator();
    const loudness = sound.createGain();
    const start = sound.currentTime + after;
    tone.frequency.value = pitch;
    loudness.gain.setValueAtTime(0.0001, start);
    loudness.gain.exponentialRampToValueAtTime(0.25, start + 0.03);
    loudness.gain.exponentialRampToValueAtTime(0.0001, start + NOTE_SECONDS);
    tone.connect(loudness).connect(sound.destination);
    tone.start(start);
    tone.stop(start + NOTE_SECONDS);
  }
}

const maySend = () => "Notification" in window && Notification.permission === "granted";

function say() {
  button.setAttribute("aria-pressed", String(on));
  word.textContent = on ? "You will be told" : "Tell me when it is my turn";
  const can = [sound?.state === "running" && "a sound", maySend() && "a message on your screen"].filter(Boolean);
  if (!on) note.textContent = "With a sound and, if you allow it, a message on your screen.";
  else if (can.length) note.textContent = `With ${can.join(" and ")}. Keep this page open; another tab may be in front.`;
  else note.textContent = "Your browser allows neither sound nor messages here: the title of this page will change. A press anywhere may wake the sound.";
}

// The seats' page takes over once somebody looks; until then it is said again.
export function ring(eventName) {
  rings += 1;
  play(NOTES);
  if (rings === 1 && maySend()) {
    try {
      const message = new Notification("It is your turn", { body: `${eventName}: come in and choose.`, tag: "fairgate-turn", requireInteraction: true });
      message.onclick = () => {
        window.focus();
        message.close();
      };
    } catch {
      // Some phones allow messages from service workers only; the sound and the title are left.
    }
  }
  if (rings < RINGS_MAX) setTimeout(() => document.hidden && ring(eventName), AGAIN_MS);
}

async function press() {
  on = !on;
  remember(on);
  if (on) {
    wake();
    play(NOTES.slice(0, 1));
    say();
    if ("Notification" in window && Notification.permission === "default") {
      try {
        await Notification.requestPermission();
      } catch {
        // Asked in an old browser's way, or not at all: the sound is left.
      }
    }
  }
  say();
}

if (box) {
  box.hidden = false;
  on = remembered();
  button.addEventListener("click", press);
  if (on) {
    say();
    addEventListener("pointerdown", wake, { once: true });
    addEventListener("keydown", wake, { once: true });
  }
}
