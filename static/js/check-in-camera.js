// Reads QR codes from the camera: with the browser's BarcodeDetector if it supports them, else with the bundled decoder.

const SCAN_INTERVAL_MS = 120;
const SIDE_MAX = 800;
const GONE_MS = 2500;

async function createReader() {
  if ("BarcodeDetector" in window && (await BarcodeDetector.getSupportedFormats().catch(() => [])).includes("qr_code")) {
    const detector = new BarcodeDetector({ formats: ["qr_code"] });
    return async (video) => (await detector.detect(video)).map((found) => found.rawValue);
  }
  const { decodeQR } = await import("../vendor/qr/decode.js");
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d", { willReadFrequently: true });
  return async (video) => {
    const scale = Math.min(1, SIDE_MAX / Math.max(video.videoWidth, video.videoHeight));
    canvas.width = Math.round(video.videoWidth * scale);
    canvas.height = Math.round(video.videoHeight * scale);
    context.drawImage(video, 0, 0, canvas.width, canvas.height);
    try {
      return [decodeQR(context.getImageData(0, 0, canvas.width, canvas.height))];
    } catch {
      return []; // No readable code in this frame; the next one follows at once.
    }
  };
}

export const reader = createReader();

export class Camera {
  // Calls `seen(text)` once for each code that comes into view, and again if it returns after GONE_MS out of view.
  constructor(video, { seen, ended }) {
    this.video = video;
    this.seen = seen;
    this.ended = ended;
    this.inView = new Map(); // The codes of the latest frames, with the time of the last frame that showed each.
  }

  static get isPossible() {
    return Boolean(navigator.mediaDevices?.getUserMedia);
  }

  async start() {
    const stream = await navigator.mediaDevices.getUserMedia({
      video: { facingMode: { ideal: "environment" }, width: { ideal: 1280 }, height: { ideal: 720 } },
      audio: false,
    });
    [this.track] = stream.getVideoTracks();
    this.track.addEventListener("ended", () => this.ended());
    this.video.srcObject = stream;
    await this.video.play();
    this.scan();
  }

  get hasLight() {
    return Boolean(this.track?.getCapabilities?.().torch);
  }

  light(on) {
    return this.track.applyConstraints({ advanced: [{ torch: on }] });
  }

  async scan() {
    const read = await reader;
    const scanFrame = async () => {
      if (this.track.readyState === "ended") return;
      if (!document.hidden && this.video.videoWidth) {
        for (const text of await read(this.video).catch(() => [])) this.note(text);
      }
      setTimeout(scanFrame, SCAN_INTERVAL_MS);
    };
    scanFrame();
  }

  note(text) {
    const now = performance.now();
    for (const [known, at] of this.inView) if (now - at > GONE_MS) this.inView.delete(known);
    const isNew = !this.inView.has(text);
    this.inView.set(text, now);
    if (isNew && text.trim()) this.seen(text);
  }
}
