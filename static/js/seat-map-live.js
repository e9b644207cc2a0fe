// Live seat map updates (live.js): seats of the visible sections, and counts of the others.

import { on, watchSections } from "./live.js";

const SECTIONS_MAX = 4; // The server's limit per stream.
const SETTLE_MS = 500;

export class Watch {
  // `own`: ids of seats that this visitor already holds. Calls `seats` with the seats that changed, `counts` if only counts
  // changed, and `refetch` if visible seats have changed but it is unknown which.
  constructor(plan, view, chosen, own, { seats, counts, refetch }) {
    Object.assign(this, { plan, view, chosen, own, seats, counts, refetch });
    this.sectionIndex = new Map(plan.sections.map(({ id }, index) => [id, index]));
    this.watched = [];
    this.known = new Set(); // Sections for which all seats are known and all changes are received.
    on("seats", (update) => this.#applySeats(update));
    on("sections", ({ sections }) => this.#applyCounts(sections));
    document.addEventListener("live:connection", ({ detail }) => detail.way || this.known.clear());
    document.addEventListener("live:refused", () => this.#forget());
    this.settle();
  }

  // Call it when the map moves or the selection changes. After SETTLE_MS without such a change, other sections are
  // watched if needed.
  settle() {
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.#watch(), SETTLE_MS);
  }

  #neededSections() {
    const { plan } = this;
    const numbered = plan.sections.flatMap(({ seats }, index) => (seats.length ? [index] : []));
    if (numbered.length <= SECTIONS_MAX) return numbered;
    const selected = [...this.chosen].map((seat) => plan.section[seat]);
    return [...new Set([...selected, ...this.view.visibleSections()])].slice(0, SECTIONS_MAX);
  }

  #watch() {
    const needed = this.#neededSections();
    if (needed.every((index) => this.watched.includes(index))) return;
    // Recently visible sections stay watched while there is room.
    this.watched = [...new Set([...needed, ...this.watched])].slice(0, SECTIONS_MAX);
    for (const index of this.known) if (!this.watched.includes(index)) this.known.delete(index);
    watchSections(this.watched.map((index) => this.plan.sections[index].id));
  }

  #forget() {
    this.watched = [];
    this.known.clear();
    this.refetch();
  }

  #applySeats({ section_id: id, complete, seats }) {
    const index = this.sectionIndex.get(id);
    if (!this.watched.includes(index)) return;
    if (complete) this.known.add(index);
    else if (!this.known.has(index)) return;
    this.seats(this.plan.setSeats(index, seats, Boolean(complete), this.own));
  }

  #applyCounts(sections) {
    const { plan } = this;
    const visible = new Set([...this.view.visibleSections(), ...[...this.chosen].map((seat) => plan.section[seat])]);
    let isChanged = false;
    let needsRefetch = false;
    for (const { section_id: id, available_seats: available } of sections) {
      const index = this.sectionIndex.get(id);
      if (index === undefined || this.known.has(index)) continue;
      const section = plan.sections[index];
      const own = section.seats.length ? section.seats.reduce((sum, seat) => sum + this.own.has(plan.ids[seat]), 0) : 0;
      if (section.free === available + own) continue;
      section.free = available + own;
      isChanged = true;
      needsRefetch ||= visible.has(index);
    }
    if (isChanged) this.counts();
    if (needsRefetch) this.refetch();
  }
}
