// Scans wait here, on the phone, from the moment they are made until the house has answered. Each has a key of its own
// in local storage, so that two tabs of one phone never write over each other; both may send the same scan, and the
// house answers it once.

const PIECE_MAX = 100;
const TIMEOUT_MS = 8000;
const WAIT_MS = 1000;
const WAIT_MS_MAX = 15_000;

function storage() {
  try {
    localStorage.setItem("check-in:probe", "1");
    localStorage.removeItem("check-in:probe");
    return localStorage;
  } catch {
    // A private window without storage: what waits is lost with the tab. The page says so.
    const held = new Map();
    return {
      lasts: false,
      get length() { return held.size; },
      key: (index) => [...held.keys()][index] ?? null,
      getItem: (key) => held.get(key) ?? null,
      setItem: (key, value) => void held.set(key, value),
      removeItem: (key) => void held.delete(key),
    };
  }
}

export const store = storage();
export const newId = () =>
  crypto.randomUUID?.() ?? [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

export class ScanQueue {
  // `answered(scan, answer, problem)` for each that left; `changed(state)` whenever {waiting, trouble, detail} may have.
  constructor(event, addresses, { answered, changed }) {
    this.prefix = `check-in:${event}:scan:`;
    this.addresses = addresses;
    this.answered = answered;
    this.changed = changed;
    this.trouble = "";
    this.detail = "";
    this.wait = WAIT_MS;
    this.timer = 0;
    this.sending = false;
    addEventListener("online", () => this.send());
    document.addEventListener("visibilitychange", () => document.hidden || this.send());
  }

  get waiting() {
    const found = [];
    for (let index = 0; index < store.length; index += 1) {
      const key = store.key(index);
      if (!key?.startsWith(this.prefix)) continue;
      try {
        found.push(JSON.parse(store.getItem(key)));
      } catch {
        store.removeItem(key);
      }
    }
    return found.sort((one, other) => one.made - other.made || one.nth - other.nth);
  }

  add(sent) {
    const scan = { ...sent, made: Date.now(), nth: (this.nth = (this.nth ?? 0) + 1) };
    store.setItem(this.prefix + scan.scan_id, JSON.stringify(scan));
    this.send();
    return scan;
  }

  async send() {
    if (this.sending) return;
    this.sending = true;
    clearTimeout(this.timer);
    try {
      for (let piece = this.waiting.slice(0, PIECE_MAX); piece.length; piece = this.waiting.slice(0, PIECE_MAX)) {
        this.changed(this.state);
        if (!(await this.sendPiece(piece))) break;
      }
    } finally {
      this.sending = false;
      this.changed(this.state);
    }
  }

  get state() {
    return { waiting: this.waiting.length, trouble: this.trouble, detail: this.detail };
  }

  async sendPiece(piece) {
    const bare = piece.map(({ made, nth, ...sent }) => sent);
    const single = bare.length === 1;
    let response;
    let told;
    try {
      response = await fetch(single ? this.addresses.one : this.addresses.batch, {
        method: "POST",
        headers: { "Content-Type": "application/json", Accept: "application/json" },
        body: JSON.stringify(single ? bare[0] : { scans: bare }),
        signal: AbortSignal.timeout(TIMEOUT_MS),
        cache: "no-store",
      });
      told = await response.json();
    } catch {
      return this.tryAgain("offline");
    }
    if (response.ok) {
      this.trouble = this.detail = "";
      this.wait = WAIT_MS;
      const answers = single ? [{ answer: told, problem: null }] : told.answers;
      piece.forEach((scan, index) => this.leave(scan, answers[index].answer, answers[index].problem));
      return true;
    }
    if (single && response.status === 422) {
      this.leave(piece[0], null, told);
      return true;
    }
    const closed = [401, 403, 404].includes(response.status);
    return this.tryAgain(closed ? "closed" : "busy", told.detail ?? "", Number(response.headers.get("Retry-After")) * 1000);
  }

  leave(scan, answer, problem) {
    store.removeItem(this.prefix + scan.scan_id);
    this.answered(scan, answer, problem);
  }

  tryAgain(trouble, detail = "", after = 0) {
    this.trouble = trouble;
    this.detail = detail;
    this.timer = setTimeout(() => this.send(), Math.max(this.wait, after || 0));
    this.wait = Math.min(this.wait * 2, WAIT_MS_MAX);
    return false;
  }
}
