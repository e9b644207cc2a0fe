// The seating plan as data: the position, price and neighbors of every seat. Independent of drawing.

const SEATS_PER_TILE = 140;
const BOTH_ENDS_SEATS_MAX = 2500;
export const ACCESSIBLE = 1;
export const COMPANION = 2;

export class Plan {
  constructor(json) {
    const seats = json.seats;
    this.currency = json.currency;
    this.categories = json.categories;
    this.areas = json.areas ?? [];
    this.count = seats.id.length;
    this.ids = seats.id;
    this.row = seats.row;
    this.number = seats.number;
    this.x = Float32Array.from(seats.x);
    this.y = Float32Array.from(seats.y);
    this.section = Uint16Array.from(seats.section);
    this.category = Uint16Array.from(seats.category);
    this.flags = Uint8Array.from(seats.flags);
    this.taken = new Uint8Array(this.count);
    this.shown = new Set(); // The categories of the price filter; empty: all.
    this.index = new Map(this.ids.map((id, seat) => [id, seat]));
    this.sections = json.sections.map((section) => ({ ...section, seats: [], free: section.capacity }));
    for (let seat = 0; seat < this.count; seat++) this.sections[this.section[seat]].seats.push(seat);
    this.box = this.#measureBox(json.size);
    this.grid = this.box; // Of the tiles: the seats without the names of their rows.
    this.#layTiles();
    this.pitch = this.#measurePitch();
    this.#measureSections();
    this.#orderRows();
    this.box = this.#boxWithRowNames();
  }

  // ---- descriptions and prices

  price(seat) {
    return this.categories[this.category[seat]].full_price_minor;
  }

  seatName(seat) {
    return `Row ${this.row[seat]} seat ${this.number[seat]}`;
  }

  kind(seat) {
    if (this.flags[seat] & ACCESSIBLE) return "wheelchair space";
    return this.flags[seat] & COMPANION ? "companion seat" : "";
  }

  // ---- availability

  // Applies the full list of unavailable seats, except to `known` sections, whose state is newer. Returns the seats
  // that changed. Counts the free seats of all other sections again.
  setTaken(list, known) {
    const isTaken = new Uint8Array(this.count);
    for (const seat of list) isTaken[seat] = 1;
    const changed = [];
    for (let seat = 0; seat < this.count; seat++) {
      if (known.has(this.section[seat]) || isTaken[seat] === this.taken[seat]) continue;
      this.taken[seat] = isTaken[seat];
      changed.push(seat);
    }
    this.sections.forEach((section, index) => known.has(index) || this.#countFree(section));
    return changed;
  }

  // Applies the seat statuses of one section. `statuses` maps seat ids to statuses: of all unavailable seats
  // if `isComplete`, otherwise of the changed seats. Seats in `own` count as available while they are held, because this
  // visitor holds them. Returns the seats that changed.
  setSeats(index, statuses, isComplete, own) {
    const section = this.sections[index];
    const changed = [];
    const set = (seat, status) => {
      const isTaken = status === "available" || (status === "held" && own.has(this.ids[seat])) ? 0 : 1;
      if (this.taken[seat] === isTaken) return;
      this.taken[seat] = isTaken;
      changed.push(seat);
    };
    if (isComplete) for (const seat of section.seats) set(seat, statuses[this.ids[seat]] ?? "available");
    else {
      for (const [id, status] of Object.entries(statuses)) {
        const seat = this.index.get(id);
        if (seat !== undefined) set(seat, status);
      }
    }
    this.#countFree(section);
    return changed;
  }

  #countFree(section) {
    if (section.seats.length) section.free = section.seats.reduce((free, seat) => free + 1 - this.taken[seat], 0);
  }

  // Whether the price filter shows the seat.
  isShown(seat) {
    return !this.shown.size || this.shown.has(this.category[seat]);
  }

  // The number of free seats in a section that the price filter shows, or its number of free tickets.
  countShown(section) {
    if (!this.shown.size) return section.free;
    if (!section.seats.length) return section.categories.some((category) => this.shown.has(category)) ? section.free : 0;
    return section.seats.reduce((free, seat) => free + (this.taken[seat] || !this.shown.has(this.category[seat]) ? 0 : 1), 0);
  }

  // Returns the nearest available seat that has the section, price and kind of the `lost` one and is not in `except`.
  // Among equally near seats it returns the one nearest to `others`; -1 if there is none.
  nearestLike(lost, except, others) {
    let best = -1;
    let bestScore = Infinity;
    const distance = (a, b) => Math.hypot(this.x[a] - this.x[b], this.y[a] - this.y[b]);
    for (const seat of this.sections[this.section[lost]].seats) {
      if (this.taken[seat] || except.has(seat) || this.category[seat] !== this.category[lost] || this.flags[seat] !== this.flags[lost]) continue;
      const score = distance(seat, lost) + 0.001 * Math.min(...others.map((other) => distance(seat, other)), 0.1 * this.box.width);
      if (score < bestScore) [best, bestScore] = [seat, score];
    }
    return best;
  }

  // ---- navigation

  // The seat nearest to a point, or -1 if none is within `reach`.
  nearest(x, y, reach) {
    let best = -1;
    let bestDistance = reach * reach;
    for (const tile of this.tilesIn(x - reach, y - reach, x + reach, y + reach)) {
      for (const seat of tile.seats) {
        const distance = (this.x[seat] - x) ** 2 + (this.y[seat] - y) ** 2;
        if (distance < bestDistance) [best, bestDistance] = [seat, distance];
      }
    }
    return best;
  }

  // The next seat, seen in the direction (dx, dy), that satisfies `may`: along the row if possible, otherwise the
  // closest in that direction. -1 if there is none.
  step(from, dx, dy, may) {
    const { seats, isUpright } = this.rowOf(from);
    const along = isUpright ? dy : dx;
    if (along) {
      for (let index = seats.indexOf(from) + along; seats[index] !== undefined; index += along) {
        if (may(seats[index])) return seats[index];
      }
    }
    let best = -1;
    let bestScore = Infinity;
    for (let seat = 0; seat < this.count; seat++) {
      if (seat === from || !may(seat)) continue;
      const ahead = (this.x[seat] - this.x[from]) * dx + (this.y[seat] - this.y[from]) * dy;
      const aside = Math.abs((this.x[seat] - this.x[from]) * dy) + Math.abs((this.y[seat] - this.y[from]) * dx);
      if (ahead < this.pitch * 0.4 || aside > ahead * 1.6) continue;
      const score = ahead + aside * 2;
      if (score < bestScore) [best, bestScore] = [seat, score];
    }
    return best;
  }

  // The first seat of the same row that satisfies `may`, or with `last` the last one; `from` itself if none does.
  rowEnd(from, last, may) {
    const { seats } = this.rowOf(from);
    return (last ? seats.findLast(may) : seats.find(may)) ?? from;
  }

  rowOf(seat) {
    return this.rows.get(this.#rowKey(seat));
  }

  stepSection(from, dx, dy) {
    let best = -1;
    let bestScore = Infinity;
    const here = this.sections[from].middle;
    this.sections.forEach(({ middle }, section) => {
      if (section === from || !middle) return;
      const ahead = (middle[0] - here[0]) * dx + (middle[1] - here[1]) * dy;
      const aside = Math.abs((middle[0] - here[0]) * dy) + Math.abs((middle[1] - here[1]) * dx);
      if (ahead <= 1 || aside > ahead * 2) return;
      const score = ahead + aside * 1.5;
      if (score < bestScore) [best, bestScore] = [section, score];
    });
    return best;
  }

  *tilesIn(x0, y0, x1, y1) {
    const clamp = (value, most) => Math.max(0, Math.min(most, value));
    const left = clamp(Math.floor((x0 - this.grid.x) / this.tileSize), this.tileColumns - 1);
    const right = clamp(Math.floor((x1 - this.grid.x) / this.tileSize), this.tileColumns - 1);
    const top = clamp(Math.floor((y0 - this.grid.y) / this.tileSize), this.tileRows - 1);
    const bottom = clamp(Math.floor((y1 - this.grid.y) / this.tileSize), this.tileRows - 1);
    for (let row = top; row <= bottom; row++) {
      for (let column = left; column <= right; column++) {
        const tile = this.tiles[row * this.tileColumns + column];
        if (tile.seats.length) yield tile;
      }
    }
  }

  // ---- measurements, taken once by the constructor

  #measureBox(size) {
    const box = { x0: Infinity, y0: Infinity, x1: -Infinity, y1: -Infinity };
    const take = (x, y) => {
      box.x0 = Math.min(box.x0, x);
      box.y0 = Math.min(box.y0, y);
      box.x1 = Math.max(box.x1, x);
      box.y1 = Math.max(box.y1, y);
    };
    for (let seat = 0; seat < this.count; seat++) take(this.x[seat], this.y[seat]);
    for (const section of this.sections) for (const [x, y] of section.outline ?? []) take(x, y);
    for (const area of this.areas) for (const [x, y] of areaCorners(area)) take(x, y);
    if (box.x0 === Infinity) return { x: 0, y: 0, width: size[0] || 1, height: size[1] || 1 };
    const margin = Math.max(box.x1 - box.x0, box.y1 - box.y0, 1) * 0.02;
    return { x: box.x0 - margin, y: box.y0 - margin, width: box.x1 - box.x0 + 2 * margin, height: box.y1 - box.y0 + 2 * margin };
  }

  // The box widened by the names of rows that stand outside it, so that the whole map shows them whole.
  #boxWithRowNames() {
    const { x, y, width, height } = this.box;
    const box = { x0: x, y0: y, x1: x + width, y1: y + height };
    for (const tile of this.tiles) {
      for (const label of tile.labels) {
        const [half, high] = [this.pitch * (0.1 + 0.17 * label.text.length), this.pitch * 0.35];
        box.x0 = Math.min(box.x0, label.x - half);
        box.x1 = Math.max(box.x1, label.x + half);
        box.y0 = Math.min(box.y0, label.y - high);
        box.y1 = Math.max(box.y1, label.y + high);
      }
    }
    return { x: box.x0, y: box.y0, width: box.x1 - box.x0, height: box.y1 - box.y0 };
  }

  #layTiles() {
    const { width, height } = this.grid;
    this.tileSize = Math.sqrt((width * height * SEATS_PER_TILE) / Math.max(this.count, SEATS_PER_TILE));
    this.tileColumns = Math.max(1, Math.ceil(width / this.tileSize));
    this.tileRows = Math.max(1, Math.ceil(height / this.tileSize));
    this.tiles = Array.from({ length: this.tileColumns * this.tileRows }, () => ({ seats: [], labels: [] }));
    this.tileOf = new Array(this.count);
    for (let seat = 0; seat < this.count; seat++) {
      const tile = this.#tileAt(this.x[seat], this.y[seat]);
      tile.seats.push(seat);
      this.tileOf[seat] = tile;
    }
  }

  *#tilesAround(x, y, reach) {
    const at = (value, start, count) => Math.max(0, Math.min(count - 1, Math.floor((value - start) / this.tileSize)));
    const [left, right] = [at(x - reach, this.grid.x, this.tileColumns), at(x + reach, this.grid.x, this.tileColumns)];
    const [top, bottom] = [at(y - reach, this.grid.y, this.tileRows), at(y + reach, this.grid.y, this.tileRows)];
    for (let row = top; row <= bottom; row++) for (let column = left; column <= right; column++) yield this.tiles[row * this.tileColumns + column];
  }

  #tileAt(x, y) {
    const column = Math.min(this.tileColumns - 1, Math.floor((x - this.grid.x) / this.tileSize));
    const row = Math.min(this.tileRows - 1, Math.floor((y - this.grid.y) / this.tileSize));
    return this.tiles[row * this.tileColumns + column];
  }

  // The typical distance between neighboring seats: the median of a sample, so that one dense area does not skew it.
  #measurePitch() {
    const found = [];
    const stride = Math.max(1, Math.floor(this.count / 150));
    for (let seat = 0; seat < this.count; seat += stride) {
      let nearest = Infinity;
      for (const other of this.tileOf[seat].seats) {
        if (other === seat) continue;
        const distance = Math.hypot(this.x[other] - this.x[seat], this.y[other] - this.y[seat]);
        if (distance > 0.01 && distance < nearest) nearest = distance;
      }
      if (nearest < Infinity) found.push(nearest);
    }
    found.sort((a, b) => a - b);
    return found.length ? found[found.length >> 1] : 20;
  }

  #measureSections() {
    for (const section of this.sections) {
      const tally = new Map();
      for (const seat of section.seats) tally.set(this.category[seat], (tally.get(this.category[seat]) ?? 0) + 1);
      section.categories = section.seats.length ? [...tally.keys()].sort((a, b) => tally.get(b) - tally.get(a)) : [section.category ?? []].flat();
      const points = section.outline?.length ? section.outline : section.seats.map((seat) => [this.x[seat], this.y[seat]]);
      if (!points.length) continue;
      const xs = points.map(([x]) => x);
      const ys = points.map(([, y]) => y);
      const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
      section.box = { x: x0, y: y0, width: x1 - x0, height: y1 - y0 };
      section.middle = [(x0 + x1) / 2, (y0 + y1) / 2];
      if (section.seats.length) {
        const sum = section.seats.reduce(([x, y], seat) => [x + this.x[seat], y + this.y[seat]], [0, 0]);
        section.middle = [sum[0] / section.seats.length, sum[1] / section.seats.length];
      }
      section.room = roomAt(points, section.middle);
      section.corners = points;
      // The name is drawn just in front of the section, in the aisle.
      let front = Infinity;
      for (const seat of section.seats) {
        if (Math.abs(this.x[seat] - section.middle[0]) < this.pitch * 2) front = Math.min(front, this.y[seat]);
      }
      section.label = [section.middle[0], (front === Infinity ? y0 : front) - this.pitch * 0.95];
    }
  }

  #rowKey(seat) {
    return `${this.section[seat]}\n${this.row[seat]}`;
  }

  #orderRows() {
    this.rows = new Map();
    const ends = [];
    for (let seat = 0; seat < this.count; seat++) {
      const key = this.#rowKey(seat);
      if (!this.rows.has(key)) this.rows.set(key, { seats: [], isUpright: false });
      this.rows.get(key).seats.push(seat);
    }
    for (const line of this.rows.values()) {
      const row = line.seats;
      const [first, last] = [row[0], row[row.length - 1]];
      // Rows beside the stage are upright: in these, the up and down keys move along the row.
      line.isUpright = Math.abs(this.y[last] - this.y[first]) > Math.abs(this.x[last] - this.x[first]);
      const axis = line.isUpright ? this.y : this.x;
      // An upright row has its name above it, whichever seat is the first.
      if (line.isUpright && this.y[last] < this.y[first]) ends.push([last, row[row.length - 2], -1]);
      else ends.push([first, row[1] ?? first, -1]);
      // Only one end is labeled if the row is short, if its name is long, or in large plans, which have many narrow
      // aisles.
      if (row.length > 3 && this.row[first].length < 4 && this.count <= BOTH_ENDS_SEATS_MAX) {
        ends.push(ends.at(-1)[0] === last ? [first, row[1], 1] : [last, row[row.length - 2], 1]);
      }
      line.seats = [...row].sort((a, b) => axis[a] - axis[b]);
      const steps = line.seats.slice(1).map((seat, index) => Math.hypot(this.x[seat] - this.x[line.seats[index]], this.y[seat] - this.y[line.seats[index]]));
      // Seats farther apart than this have an aisle between them.
      line.reach = 1.5 * (steps.length ? [...steps].sort((a, b) => a - b)[steps.length >> 1] : this.pitch);
      line.section = this.section[first];
      line.name = this.row[first];
    }
    // The first end of every row, then the other ends, where there is room.
    ends.sort((one, other) => one[2] - other[2]).forEach((end) => this.#labelRowEnd(...end));
  }

  #labelRowEnd(end, next, side) {
    const dx = this.x[end] - this.x[next];
    const dy = this.y[end] - this.y[next];
    const length = Math.hypot(dx, dy) || 1;
    const [ux, uy] = end === next ? [side, 0] : [dx / length, dy / length];
    const label = { text: this.row[end], x: this.x[end] + ux * this.pitch, y: this.y[end] + uy * this.pitch };
    // In a narrow aisle the names of two sections' rows would overlap, or a name and the next section's seat.
    const isNear = (other) => Math.abs(other.x - label.x) < this.pitch * (0.5 + 0.25 * Math.max(label.text.length, other.text.length)) && Math.abs(other.y - label.y) < this.pitch * 0.6;
    if (this.nearest(label.x, label.y, this.pitch * 0.62) >= 0) return;
    const tile = this.#tileAt(clampTo(label.x, this.grid.x, this.grid.width), clampTo(label.y, this.grid.y, this.grid.height));
    const reach = this.pitch * 3;
    for (const neighbor of this.#tilesAround(label.x, label.y, reach)) if (neighbor.rowNames?.some(isNear)) return;
    (tile.rowNames ??= []).push(label);
    this.tileOf[end].labels.push(label);
  }
}

function clampTo(value, start, length) {
  return Math.max(start, Math.min(start + length, value));
}

// The width and height of a section's shape through the point where its name is drawn.
function roomAt(points, middle) {
  const stretch = (along, across) => {
    const crossed = [];
    points.forEach((point, index) => {
      const next = points[(index + 1) % points.length];
      if (point[across] > middle[across] === next[across] > middle[across]) return;
      const part = (middle[across] - point[across]) / (next[across] - point[across]);
      crossed.push(point[along] + part * (next[along] - point[along]));
    });
    return crossed.length > 1 ? Math.max(...crossed) - Math.min(...crossed) : 0;
  };
  return [stretch(0, 1), stretch(1, 0)];
}

// Whether all corners of a text box lie within the section's shape, so that the text does not overlap a neighboring
// section's name.
export function hasRoom(section, left, top, right, bottom) {
  return [[left, top], [right, top], [right, bottom], [left, bottom]].every(([x, y]) => isInside(section.corners, x, y));
}

function isInside(points, x, y) {
  let inside = false;
  points.forEach(([ax, ay], index) => {
    const [bx, by] = points[(index + 1) % points.length];
    if (ay > y !== by > y && x < ax + ((y - ay) / (by - ay)) * (bx - ax)) inside = !inside;
  });
  return inside;
}

export function areaCorners(area) {
  const { shape, x = 0, y = 0 } = area;
  if (shape === "rectangle") return [[x, y], [x + area.width, y + area.height]];
  if (shape === "circle") return [[x - area.radius, y - area.radius], [x + area.radius, y + area.radius]];
  if (shape === "ellipse") return [[x - area.rx, y - area.ry], [x + area.rx, y + area.ry]];
  if (shape === "polygon") return area.points;
  return [];
}
