// Notifies a visitor who asked for it when it is their turn: with a sound and, if permitted, a browser notification.

const STORAGE_KEY = "fairgate-notify";
const NOTES = [[660, 0], [880, 0.22], [1320, 0.44]];
const NOTE_SECONDS = 0.35;
const REPEAT_MS = 4_000;
const RINGS_MAX = 8;
const box = document.querySelector("[data-line-notify]");
const button = document.querySelector("[data-line-notify-button]");
const word = document.querySelector("[data-line-notify-word]");
const note = document.querySelector("[data-line-notify-note]");
let on = false;
let sound = null;
let rings = 0;

export const wantsNotification = () => on;

function remember(wanted) {
  try {
    if (wanted) sessionStorage.setItem(STORAGE_KEY, "yes");
    else sessionStorage.removeItem(STORAGE_KEY);
  } catch {
    // Without session storage the choice is lost on reload.
  }
}

function remembered() {
  try {
    return sessionStorage.getItem(STORAGE_KEY) === "yes";
  } catch {
    return false;
  }
}

// Browsers allow sound only after the visitor has interacted with the page.
function enableSound() {
  const Sound = window.AudioContext ?? window.webkitAudioContext;
  if (!Sound) return;
  sound ??= new Sound();
  if (sound.state === "suspended") sound.resume().then(render, () => {});
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

const canNotify = () => "Notification" in window && Notification.permission === "granted";

function render() {
  button.setAttribute("aria-pressed", String(on));
  word.textContent = on ? "You’ll be notified" : "Notify me of my turn";
  const can = [sound?.state === "running" && "a sound", canNotify() && "a browser notification"].filter(Boolean);
  if (!on) note.textContent = "With a sound and, if you allow it, a browser notification.";
  else if (can.length) note.textContent = `With ${can.join(" and ")}. Keep this page open; you can use other tabs.`;
  else note.textContent = "Your browser blocks sound and notifications on this page, so only the title of this tab will change. Click anywhere on the page to allow sound.";
}

// Repeats until the visitor returns to the tab, which then continues to the seats.
export function ring(eventName) {
  rings += 1;
  play(NOTES);
  if (rings === 1 && canNotify()) {
    try {
      const notification = new Notification("It’s your turn", { body: `${eventName}: choose your tickets now.`, tag: "fairgate-turn", requireInteraction: true });
      notification.onclick = () => {
        window.focus();
        notification.close();
      };
    } catch {
      // Some phones allow notifications only from service workers; the sound and the title remain.
    }
  }
  if (rings < RINGS_MAX) setTimeout(() => document.hidden && ring(eventName), REPEAT_MS);
}

async function toggle() {
  on = !on;
  remember(on);
  if (on) {
    enableSound();
    play(NOTES.slice(0, 1));
    render();
    if ("Notification" in window && Notification.permission === "default") {
      try {
        await Notification.requestPermission();
      } catch {
        // Browsers without promise-based permission requests: the sound remains.
      }
    }
  }
  render();
}

if (box) {
  box.hidden = false;
  on = remembered();
  button.addEventListener("click", toggle);
  if (on) {
    render();
    addEventListener("pointerdown", enableSound, { once: true });
    addEventListener("keydown", enableSound, { once: true });
  }
}
