// Sound and vibration for each result: a short rising tone for good, two long low tones for wrong, three ticks for unsure.

const NOTES = {
  good: [[880, 0, 0.09], [1320, 0.1, 0.14]],
  wrong: [[170, 0, 0.28], [140, 0.36, 0.4]],
  unsure: [[520, 0, 0.06], [520, 0.14, 0.06], [520, 0.28, 0.06]],
};
const BUZZ = { good: [70], wrong: [280, 90, 280], unsure: [50, 80, 50, 80, 50] };
let audio = null;

// Browsers allow sound only after the first touch.
export function unlockSound() {
  audio ??= "AudioContext" in window ? new AudioContext() : null;
  audio?.resume().catch(() => {});
}

export function signal(tone) {
  navigator.vibrate?.(BUZZ[tone]);
  if (audio?.state !== "running") return;
  for (const [hertz, after, seconds] of NOTES[tone]) {
    const begin = audio.currentTime + after;
    const voice = audio.createOscillator();
    const loudness = audio.createGain();
    voice.type = tone === "wrong" ? "square" : "sine";
    voice.frequency.value = hertz;
    loudness.gain.setValueAtTime(0.25, begin);
    loudness.gain.exponentialRampToValueAtTime(0.001, begin + seconds);
    voice.connect(loudness).connect(audio.destination);
    voice.start(begin);
    voice.stop(begin + seconds);
  }
}
