// Queues scans on the phone until the server has answered them. Each scan has its own key in local storage, so that two
// tabs of one phone never overwrite each other. Both tabs may send the same scan: the server processes it once.

const BATCH_MAX = 20;
const TIMEOUT_MS = 8000;
const WAIT_MS = 1000;
const WAIT_MS_MAX = 15_000;
// Not refusals of what was sent: the door is closed, or the server has no time.
const RETRIED_STATUSES = [401, 403, 404, 408, 429];

function storage() {
  try {
    localStorage.setItem("check-in:probe", "1");
    localStorage.removeItem("check-in:probe");
    return localStorage;
  } catch {
    // A private window without storage: pending scans are lost with the tab, and the page warns about it.
    const held = new Map();
    return {
      isPersistent: false,
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
  // Calls `answered(scan, answer, problem)` for each scan that the server has processed or refused, and `changed(state)` whenever
  // {waiting, trouble, detail} may have changed.
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
      for (let batch = this.waiting.slice(0, BATCH_MAX); batch.length; batch = this.waiting.slice(0, BATCH_MAX)) {
        this.changed(this.state);
        if (!(await this.sendBatch(batch))) break;
      }
    } finally {
      this.sending = false;
      this.changed(this.state);
    }
  }

  get state() {
    return { waiting: this.waiting.length, trouble: this.trouble, detail: this.detail };
  }

  async sendBatch(batch) {
    const scans = batch.map(({ made, nth, ...sent }) => sent);
    const single = scans.length === 1;
    let response;
    let payload;
    try {
      response = await fetch(single ? this.addresses.one : this.addresses.batch, {
        method: "POST",
        headers: { "Content-Type": "application/json", Accept: "application/json" },
        body: JSON.stringify(single ? scans[0] : { scans }),
        signal: AbortSignal.timeout(TIMEOUT_MS),
        cache: "no-store",
      });
      payload = await response.json();
    } catch {
      return this.tryAgain("offline");
    }
    if (response.ok) {
      this.trouble = this.detail = "";
      this.wait = WAIT_MS;
      const answers = single ? [{ answer: payload, problem: null }] : payload.answers;
      batch.forEach((scan, index) => this.finish(scan, answers[index].answer, answers[index].problem));
      return true;
    }
    if (response.status < 500 && !RETRIED_STATUSES.includes(response.status)) {
      // One scan can make the server refuse the whole batch. Each is then sent alone, so that it stops no other.
      if (single) this.finish(batch[0], null, payload);
      else for (const scan of batch) if (!(await this.sendBatch([scan]))) return false;
      return true;
    }
    const closed = [401, 403, 404].includes(response.status);
    return this.tryAgain(closed ? "closed" : "busy", payload.detail ?? "", Number(response.headers.get("Retry-After")) * 1000);
  }

  finish(scan, answer, problem) {
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
