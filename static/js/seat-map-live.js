// What the stream tells of the seats of the sections in sight, and how much is free in the others (live.js).

import { on, watchSections } from "./live.js";

const SECTIONS_MAX = 4; // As the house allows.
const SETTLE_MS = 500;

export class Watch {
  // `own`: ids of seats that this visitor holds already. `seats` is called with the seats that changed, `counts` when
  // only counts did, `look` when seats in sight have changed and nothing says which.
  constructor(plan, view, chosen, own, { seats, counts, look }) {
    Object.assign(this, { plan, view, chosen, own, seats, counts, look });
    this.places = new Map(plan.sections.map(({ id }, index) => [id, index]));
    this.asked = [];
    this.known = new Set(); // Sections of which every seat is known, and every change is told.
    on("seats", (told) => this.#takeSeats(told));
    on("sections", ({ sections }) => this.#takeCounts(sections));
    document.addEventListener("live:connection", ({ detail }) => detail.way || this.known.clear());
    document.addEventListener("live:refused", () => this.#forget());
    this.settle();
  }

  // Somebody moves over the house, or has chosen: once that has come to rest, other sections may be wanted.
  settle() {
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.#ask(), SETTLE_MS);
  }

  #wanted() {
    const { plan } = this;
    const numbered = plan.sections.flatMap(({ seats }, index) => (seats.length ? [index] : []));
    if (numbered.length <= SECTIONS_MAX) return numbered;
    const ofChoice = [...this.chosen].map((seat) => plan.section[seat]);
    return [...new Set([...ofChoice, ...this.view.sectionsInSight()])].slice(0, SECTIONS_MAX);
  }

  #ask() {
    const wanted = this.#wanted();
    if (wanted.every((index) => this.asked.includes(index))) return;
    // What was in sight just now stays for as long as there is room.
    this.asked = [...new Set([...wanted, ...this.asked])].slice(0, SECTIONS_MAX);
    for (const index of this.known) if (!this.asked.includes(index)) this.known.delete(index);
    watchSections(this.asked.map((index) => this.plan.sections[index].id));
  }

  #forget() {
    this.asked = [];
    this.known.clear();
    this.look();
  }

  #takeSeats({ section_id: id, complete, seats }) {
    const index = this.places.get(id);
    if (!this.asked.includes(index)) return;
    if (complete) this.known.add(index);
    else if (!this.known.has(index)) return;
    this.seats(this.plan.setSeats(index, seats, Boolean(complete), this.own));
  }

  #takeCounts(sections) {
    const { plan } = this;
    const inSight = new Set([...this.view.sectionsInSight(), ...[...this.chosen].map((seat) => plan.section[seat])]);
    let isNews = false;
    let isUnexplained = false;
    for (const { section_id: id, available_seats: available } of sections) {
      const index = this.places.get(id);
      if (index === undefined || this.known.has(index)) continue;
      const section = plan.sections[index];
      const own = section.seats.length ? section.seats.reduce((sum, seat) => sum + this.own.has(plan.ids[seat]), 0) : 0;
      if (section.free === available + own) continue;
      section.free = available + own;
      isNews = true;
      isUnexplained ||= inSight.has(index);
    }
    if (isNews) this.counts();
    if (isUnexplained) this.look();
  }
}
