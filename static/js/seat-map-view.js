// Draws the seating plan as SVG, with more detail at higher zoom:
//   far    sections as shapes, with the number of seats left
//   near   every seat as a dot: one path per tile and color, so that 15,000 seats are a few hundred elements
//   close  every seat as its own element, with its number and a label for screen readers
// Only visible tiles are drawn, within a few milliseconds per frame.

import { ACCESSIBLE, COMPANION, hasRoom } from "./seat-map-plan.js";

const FAR_BELOW_PX = 4.6; // distance between seats on the screen
const CLOSE_FROM_PX = 15;
const CLOSE_FROM_PX_SMALL = 6.5; // a small plan can afford one element per seat at any zoom
const SMALL_PLAN_SEATS = 2500;
const NUMBERS_FROM_PX = 22;
const SEAT_PX_MAX = 60;
const FRAME_BUDGET_MS = 7;
const GLIDE_MS = 240;
const PIN_PX_MIN = 20; // The least distance between pinned row names.
const LABEL_PX = [12.5, 11, 10];
const LETTER = 0.64; // The width of a letter, in ems.
const SVG = "http://www.w3.org/2000/svg";

export function shape(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

export class View {
  constructor(stage, plan, { describe, describeSection }) {
    this.plan = plan;
    this.stage = stage;
    this.describe = describe;
    this.describeSection = describeSection;
    this.chosen = new Set();
    this.level = "";
    this.scale = 0;
    this.x = 0;
    this.y = 0;
    this.drawn = new Map(); // tile → its element at this level
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    this.ink = plan.categories.map(({ color }) => (isBright(luminance(color)) ? "seat-no seat-no--dark" : "seat-no"));

    this.layers = Object.fromEntries(
      ["areas", "outlines", "seats", "labels", "picks", "offers", "cursor"].map((name) => [name, shape("g", { class: `map-${name}`, role: "presentation" })]),
    );
    this.world = shape("g", { role: "presentation" }, ...Object.values(this.layers));
    this.pins = shape("g", { class: "map-pins", "aria-hidden": "true" });
    this.svg = shape("svg", {
      class: "seat-map",
      role: "listbox",
      "aria-multiselectable": "true",
      "aria-label": "Seat map",
      "aria-describedby": "map-keys",
      tabindex: "0",
    }, this.world, this.pins);
    this.#drawAreas();
    this.#drawSections();
    stage.replaceChildren(this.svg);
    new ResizeObserver(() => this.#resize()).observe(stage);
    this.#resize();
  }

  // ---- zoom and position

  #resize() {
    const wasFit = this.isFit;
    this.width = this.stage.clientWidth || 1;
    this.height = this.stage.clientHeight || 1;
    // While the whole map is shown, the help text and the buttons at its top or bottom must not cover any seat.
    const style = getComputedStyle(this.stage);
    this.head = Number.parseFloat(style.getPropertyValue("--map-head")) || 0;
    this.foot = (Number.parseFloat(style.getPropertyValue("--map-foot")) || 0) + (Number.parseFloat(style.getPropertyValue("--map-cover")) || 0);
    const { box, pitch } = this.plan;
    this.fitScale = Math.min(this.width / box.width, (this.height - this.head - this.foot) / box.height);
    this.scaleMax = Math.max(SEAT_PX_MAX / pitch, this.fitScale * 1.5);
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    if (!this.scale || wasFit) this.#set(this.#fitTarget());
    else this.#set({ scale: this.scale, x: this.x, y: this.y });
  }

  #fitTarget() {
    const { box } = this.plan;
    const scale = this.fitScale;
    return { scale, x: (this.width - box.width * scale) / 2 - box.x * scale, y: this.head + (this.height - this.head - this.foot - box.height * scale) / 2 - box.y * scale };
  }

  get isFit() {
    return this.scale > 0 && this.scale <= this.fitScale * 1.001;
  }

  get seatPx() {
    return this.plan.pitch * this.scale;
  }

  toPlan(px, py) {
    return [(px - this.x) / this.scale, (py - this.y) / this.scale];
  }

  toScreen(x, y) {
    return [x * this.scale + this.x, y * this.scale + this.y];
  }

  #set({ scale, x, y }) {
    const { box } = this.plan;
    this.scale = Math.min(this.scaleMax, Math.max(this.fitScale, scale));
    // Panning is limited so that the plan never leaves the screen; while it fits, it is centered.
    const keep = (offset, start, size, room) => {
      const length = size * this.scale;
      if (length <= room) return (room - length) / 2 - start * this.scale;
      return Math.min(room * 0.5 - start * this.scale, Math.max(room * 0.5 - (start + size) * this.scale, offset));
    };
    this.x = keep(x, box.x, box.width, this.width);
    this.y = this.head + keep(y - this.head, box.y, box.height, this.height - this.head - this.foot);
    this.#requestDraw();
  }

  pan(dx, dy) {
    this.#stop();
    this.#set({ scale: this.scale, x: this.x + dx, y: this.y + dy });
  }

  // Zooms so that the point under (px, py) stays where it is.
  zoom(factor, px = this.width / 2, py = this.height / 2, glide = false) {
    const scale = Math.min(this.scaleMax, Math.max(this.fitScale, this.scale * factor));
    const [x, y] = this.toPlan(px, py);
    const target = { scale, x: px - x * scale, y: py - y * scale };
    if (glide) return this.#glide(target);
    this.#stop();
    this.#set(target);
  }

  fit() {
    this.#glide(this.#fitTarget());
  }

  // Centers a point of the plan, with seats `seatPx` apart.
  zoomTo(x, y, seatPx) {
    const scale = Math.min(this.scaleMax, seatPx / this.plan.pitch);
    this.#glide({ scale, x: this.width / 2 - x * scale, y: this.height / 2 - y * scale });
  }

  openSection(section) {
    const { box, middle } = this.plan.sections[section];
    const room = 1.12 * Math.max(box.width / this.width, box.height / this.height, 1e-6);
    // Close enough to show single seats, even if the whole section does not fit.
    const scale = Math.min(this.scaleMax, Math.max(1 / room, CLOSE_FROM_PX / this.plan.pitch));
    const [x, y] = 1 / room < scale ? middle : [box.x + box.width / 2, box.y + box.height / 2];
    this.#glide({ scale, x: this.width / 2 - x * scale, y: this.height / 2 - y * scale });
  }

  // Pans just far enough to bring a point clearly into view.
  reveal(x, y) {
    const [px, py] = this.toScreen(x, y);
    const edge = Math.min(90, this.width / 4, this.height / 4);
    const dx = px < edge ? edge - px : px > this.width - edge ? this.width - edge - px : 0;
    const dy = py < edge ? edge - py : py > this.height - edge ? this.height - edge - py : 0;
    if (dx || dy) this.#glide({ scale: this.scale, x: this.x + dx, y: this.y + dy });
  }

  #stop() {
    cancelAnimationFrame(this.gliding);
    this.gliding = 0;
  }

  #glide(target) {
    this.#stop();
    if (this.calm.matches) return this.#set(target);
    const from = { scale: this.scale, x: this.x, y: this.y };
    const begin = performance.now();
    const move = (now) => {
      const part = Math.min(1, Math.max(0, (now - begin) / GLIDE_MS));
      const eased = 1 - (1 - part) ** 3;
      // The scale changes geometrically, so that the plan's center moves in a straight line.
      const scale = from.scale * (target.scale / from.scale) ** eased;
      const mix = target.scale === from.scale ? eased : (scale - from.scale) / (target.scale - from.scale);
      this.#set({ scale, x: from.x + (target.x - from.x) * mix, y: from.y + (target.y - from.y) * mix });
      this.gliding = part < 1 ? requestAnimationFrame(move) : 0;
    };
    this.gliding = requestAnimationFrame(move);
  }

  // ---- drawing

  #requestDraw() {
    if (!this.drawRequest) this.drawRequest = requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.drawRequest = 0;
    this.world.setAttribute("transform", `translate(${this.x} ${this.y}) scale(${this.scale})`);
    const closeFrom = this.plan.count <= SMALL_PLAN_SEATS ? CLOSE_FROM_PX_SMALL : CLOSE_FROM_PX;
    const level = !this.plan.count || this.seatPx < FAR_BELOW_PX ? "far" : this.seatPx < closeFrom ? "near" : "close";
    if (level !== this.level) {
      this.level = level;
      this.svg.dataset.level = level;
      this.layers.seats.replaceChildren();
      this.drawn.clear();
    }
    this.svg.classList.toggle("has-numbers", this.seatPx >= NUMBERS_FROM_PX);
    this.svg.classList.toggle("is-fit", this.isFit);
    this.#fitLabels();
    if (level !== "far") this.#drawTiles();
    this.#pinRowNames();
    this.onmove?.();
  }

  #drawTiles() {
    const margin = this.plan.tileSize * 0.2;
    const [x0, y0] = this.toPlan(0, 0);
    const [x1, y1] = this.toPlan(this.width, this.height);
    const wanted = new Set(this.plan.tilesIn(x0 - margin, y0 - margin, x1 + margin, y1 + margin));
    for (const [tile, node] of this.drawn) {
      if (wanted.has(tile)) continue;
      node.remove();
      this.drawn.delete(tile);
    }
    const begin = performance.now();
    for (const tile of wanted) {
      if (this.drawn.has(tile)) continue;
      if (performance.now() - begin > FRAME_BUDGET_MS) return this.#requestDraw();
      const node = this.level === "close" ? this.#seatElements(tile) : this.#seatDots(tile);
      this.drawn.set(tile, node);
      this.layers.seats.append(node);
    }
  }

  #seatDots(tile) {
    const { plan } = this;
    const paths = new Map();
    for (const seat of tile.seats) {
      const key = plan.taken[seat] || !plan.isShown(seat) ? -1 : plan.category[seat];
      paths.set(key, `${paths.get(key) ?? ""}M${plan.x[seat]} ${plan.y[seat]}h0`);
    }
    const group = shape("g", { role: "presentation", "aria-hidden": "true" });
    for (const [key, d] of paths) {
      const free = key >= 0;
      group.append(shape("path", { d, class: free ? "dots" : "dots dots--taken", stroke: free ? plan.categories[key].color : undefined, "stroke-width": plan.pitch * (free ? 0.78 : 0.5) }));
    }
    return group;
  }

  #seatElements(tile) {
    const { plan } = this;
    const group = shape("g", { role: "presentation" });
    for (const { text, x, y } of tile.labels) {
      group.append(shape("text", { class: "row-name", x, y, "font-size": plan.pitch * 0.5, "aria-hidden": "true" }, text));
    }
    for (const seat of tile.seats) group.append(this.#seatElement(seat));
    return group;
  }

  #seatElement(seat) {
    const { plan } = this;
    const [x, y] = [plan.x[seat], plan.y[seat]];
    const flags = plan.flags[seat];
    const taken = plan.taken[seat] || !plan.isShown(seat);
    const size = plan.pitch * (taken ? 0.26 : 0.42);
    const color = taken ? undefined : plan.categories[plan.category[seat]].color;
    const node = shape("g", {
      id: `map-seat-${seat}`,
      class: taken ? "seat-mark seat-mark--taken" : flags & COMPANION ? "seat-mark seat-mark--companion" : "seat-mark",
      role: "option",
      "aria-selected": this.chosen.has(seat) ? "true" : "false",
      "aria-disabled": taken ? "true" : undefined,
      "aria-label": this.describe(seat),
      "data-seat": plan.ids[seat],
    });
    node.append(
      flags & ACCESSIBLE
        ? shape("rect", { x: x - size, y: y - size, width: size * 2, height: size * 2, rx: size * 0.45, fill: color })
        : shape("circle", { cx: x, cy: y, r: size, fill: flags & COMPANION ? undefined : color, stroke: flags & COMPANION ? color : undefined, "stroke-width": flags & COMPANION ? plan.pitch * 0.1 : undefined }),
    );
    if (!taken) {
      const ink = flags & COMPANION ? "seat-no seat-no--plain" : this.ink[plan.category[seat]];
      node.append(shape("text", { class: ink, x, y, "font-size": plan.pitch * (String(plan.number[seat]).length > 2 ? 0.3 : 0.38) }, plan.number[seat]));
    }
    return node;
  }

  // Redraws everything after a change of the price filter.
  refilter() {
    this.layers.seats.replaceChildren();
    this.drawn.clear();
    this.#shadeSections();
    this.#requestDraw();
  }

  // Redraws the visible tiles of seats whose availability has changed.
  refresh(seats) {
    const tiles = new Set(seats.map((seat) => this.plan.tileOf[seat]));
    for (const tile of tiles) {
      this.drawn.get(tile)?.remove();
      this.drawn.delete(tile);
    }
    this.#shadeSections();
    this.#requestDraw();
  }

  // ---- sections and areas

  #drawAreas() {
    // A plan may contain section names as text. The names drawn here, which scale with the zoom, replace the plan's text for
    // general admission sections, and are hidden at close zoom for sections that the plan names itself.
    const same = (text) => text.trim().toLowerCase();
    const written = new Set(this.plan.areas.map((area) => area.text?.text).filter(Boolean).map(same));
    const general = new Set(this.plan.sections.filter(({ seats }) => !seats.length).map(({ name }) => same(name)));
    this.plan.sections.forEach((section) => {
      section.isNamed = [section.name, section.name.split(" ").pop()].some((name) => written.has(same(name)));
    });
    for (const area of this.plan.areas) {
      const { x = 0, y = 0, rotation } = area;
      const paint = {
        class: area.color ? "area" : "area area--bare",
        fill: area.color || undefined,
        stroke: area.border_color || undefined,
        transform: rotation ? `rotate(${rotation} ${x} ${y})` : undefined,
      };
      if (area.shape === "rectangle") this.layers.areas.append(shape("rect", { ...paint, x, y, width: area.width, height: area.height, rx: 4 }));
      if (area.shape === "circle") this.layers.areas.append(shape("circle", { ...paint, cx: x, cy: y, r: area.radius }));
      if (area.shape === "ellipse") this.layers.areas.append(shape("ellipse", { ...paint, cx: x, cy: y, rx: area.rx, ry: area.ry }));
      if (area.shape === "polygon") this.layers.areas.append(shape("polygon", { ...paint, points: area.points.map((point) => point.join(",")).join(" ") }));
      if (area.text?.text && !general.has(same(area.text.text))) {
        const { text } = area;
        this.layers.areas.append(shape("text", { class: area.shape === "text" ? "area-text area-text--bare" : "area-text", x: text.x, y: text.y, "font-size": text.size, fill: text.color || undefined }, text.text));
      }
    }
  }

  #drawSections() {
    this.outlines = this.plan.sections.map((section, index) => {
      if (!section.outline?.length) return null;
      const [main] = section.categories ?? [];
      const general = section.kind === "general_admission";
      const node = shape("polygon", {
        id: `map-section-${index}`,
        class: `section${general ? " section--general" : ""}${section.needs_access ? " section--guarded" : ""}`,
        role: "option",
        "aria-selected": "false",
        "data-section": section.id,
        points: section.outline.map((point) => point.join(",")).join(" "),
        fill: main === undefined ? undefined : this.plan.categories[main].color,
        "stroke-width": this.plan.pitch * (section.needs_access ? 0.14 : 0.5),
        "stroke-dasharray": section.needs_access ? `${this.plan.pitch * 0.5} ${this.plan.pitch * 0.35}` : undefined,
      });
      this.layers.outlines.append(node);
      return node;
    });
    this.labels = this.plan.sections.map((section) => {
      if (!section.middle) return null;
      const [name, free] = [shape("tspan"), shape("tspan", { class: "section-free" })];
      const node = shape("text", { class: "section-name", "aria-hidden": "true" }, name, free);
      this.layers.labels.append(node);
      return { node, name, free, shown: "" };
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#shadeSections());
    this.#shadeSections();
  }

  #shadeSections() {
    const ground = luminance(getComputedStyle(this.stage).getPropertyValue("--card").trim() || "#ffffff");
    this.plan.sections.forEach((section, index) => {
      const node = this.outlines?.[index];
      if (!node) return;
      const free = this.plan.countShown(section);
      const share = section.capacity ? free / section.capacity : 0;
      const opacity = free ? 0.34 + 0.62 * Math.min(1, share) : 1;
      const main = free && section.seats.length ? section.categories.find((category) => !this.plan.shown.size || this.plan.shown.has(category)) : undefined;
      if (main !== undefined) node.setAttribute("fill", this.plan.categories[main].color);
      node.setAttribute("fill-opacity", opacity.toFixed(2));
      // The name is dark or light, for contrast with the section's current color.
      const shown = main === undefined ? ground : opacity * luminance(this.plan.categories[main].color) + (1 - opacity) * ground;
      this.labels?.[index]?.node.classList.toggle("section-name--dark", isBright(shown));
      node.classList.toggle("section--gone", !free);
      node.setAttribute("aria-label", this.describeSection(index));
    });
    if (this.labels) this.#fitLabels(true);
  }

  // The names of the rows of the section in the middle, along the left or top edge, for rows whose own names are outside.
  #pinRowNames() {
    this.#hideCutRowNames();
    if (this.level !== "close" || this.isFit) return this.pins.replaceChildren();
    const { plan } = this;
    const [x0, y0] = this.toPlan(0, this.head);
    const [x1, y1] = this.toPlan(this.width, this.height - this.foot);
    const current = this.plan.sections.indexOf(this.currentSection);
    const pins = [];
    for (const { seats, isUpright, section, name } of plan.rows.values()) {
      if (section !== current) continue;
      const axis = isUpright ? plan.y : plan.x;
      const [from, to] = isUpright ? [y0, y1] : [x0, x1];
      // The row's own name stands before its first seat, as far as it is inside the map.
      if (axis[seats[0]] - plan.pitch * 1.4 >= from) continue;
      const first = seats[countBefore(seats, axis, from)];
      if (first === undefined || axis[first] > to) continue;
      const [px, py] = this.toScreen(plan.x[first], plan.y[first]);
      const [edge, along] = isUpright ? [this.width, px] : [this.height - this.foot, py];
      if (along > (isUpright ? 24 : this.head + 8) && along < edge - 8) pins.push({ name, along, isUpright });
    }
    pins.sort((a, b) => a.isUpright - b.isUpright || a.along - b.along);
    const nodes = [];
    let last = null;
    for (const pin of pins) {
      if (last && last.isUpright === pin.isUpright && pin.along - last.along < PIN_PX_MIN) continue;
      last = pin;
      const [x, y] = pin.isUpright ? [pin.along, this.head + 14] : [16, pin.along];
      const half = 6 + 4 * pin.name.length;
      nodes.push(shape("rect", { x: x - half, y: y - 10, width: 2 * half, height: 20, rx: 6 }), shape("text", { x, y, "font-size": 13 }, pin.name));
    }
    this.pins.replaceChildren(...nodes);
  }

  // Row names that the left or right edge would cut; a pinned name stands for those on the left.
  #hideCutRowNames() {
    if (this.level !== "close") return;
    const half = this.seatPx * 0.4;
    for (const name of this.layers.seats.querySelectorAll(".row-name")) {
      const px = Number(name.getAttribute("x")) * this.scale + this.x;
      name.toggleAttribute("hidden", !this.isFit && (px < half || px > this.width - half));
    }
  }

  // The section at the middle of the visible map, or null.
  get currentSection() {
    if (this.level === "far" || this.isFit) return null;
    const [x, y] = this.toPlan(this.width / 2, (this.head + this.height - this.foot) / 2);
    const seat = this.plan.nearest(x, y, this.plan.pitch * 12);
    return seat < 0 ? null : this.plan.sections[this.plan.section[seat]];
  }

  // Names keep their size on the screen and are shown only if there is room. All sections have the same form: the full name
  // or its last word, "12 left" or "12", in one size.
  #fitLabels(again = false) {
    const far = this.level === "far";
    const key = `${this.level} ${this.scale.toFixed(4)}`;
    if (!again && key === this.labelKey) return;
    this.labelKey = key;
    const form = far ? this.#labelForm() : { size: Math.min(22, Math.max(11, this.seatPx * 0.85)) };
    const { size } = form;
    this.labels.forEach((label, index) => {
      if (!label) return;
      const section = this.plan.sections[index];
      const general = !section.seats.length;
      const [wide, high] = section.room.map((length) => length * this.scale);
      const letter = size * LETTER;
      let words = section.name;
      let second = "";
      let isTurned = false;
      let [x, y] = section.label;
      if (far && !general) {
        [x, y] = section.middle;
        words = form.name(section);
        if (form.count) second = form.count(section);
        else if (!this.#labelFits(section, size, [words])) {
          isTurned = this.#labelFits(section, size, [words], true);
          if (!isTurned) words = "";
        }
      } else if (general) {
        [x, y] = section.middle;
        if (words.length * letter > wide * 0.94) words = words.split(" ").pop();
        if (words.length * letter > wide || high < size) words = "";
        const code = section.needs_access ? " · code" : "";
        const count = `${section.free ? `${section.free.toLocaleString("en")} left` : "sold out"}${code}`;
        if (words && high > size * 2.5 && count.length * letter < wide) second = count;
      } else if (section.box.width * this.scale < 40 || section.isNamed) words = "";
      label.node.toggleAttribute("hidden", !words);
      label.node.classList.toggle("section-name--on", far || general);
      if (!words) return;
      label.node.setAttribute("font-size", size / this.scale);
      if (isTurned) label.node.setAttribute("transform", `rotate(-90 ${x} ${y})`);
      else label.node.removeAttribute("transform");
      label.node.setAttribute("stroke-width", far || general ? 0 : 4 / this.scale);
      label.name.textContent = words;
      label.free.textContent = second;
      const lift = second ? -0.1 : 0.35;
      label.name.setAttribute("x", x);
      label.name.setAttribute("y", y + (far || general ? (lift * size) / this.scale : 0));
      label.free.setAttribute("x", x);
      label.free.setAttribute("y", y + (1.05 * size) / this.scale);
    });
  }

  // The richest form of name and number, and the largest type, in which every section has room for both; else for its name.
  #labelForm() {
    const blocks = this.plan.sections.filter(({ seats, middle }) => seats.length && middle);
    const tails = blocks.map(({ name }) => name.split(" ").pop());
    const names = [({ name }) => name];
    if (new Set(tails).size === blocks.length) names.push(({ name }) => name.split(" ").pop());
    const counts = [
      (section) => this.#countWords(section, "left"),
      (section) => this.#countWords(section, ""),
    ];
    for (const name of names) {
      for (const count of counts) {
        for (const size of LABEL_PX) if (blocks.every((section) => this.#labelFits(section, size, [name(section), count(section)]))) return { name, count, size };
      }
    }
    for (const name of names) {
      for (const size of LABEL_PX) {
        if (blocks.every((section) => [false, true].some((turned) => this.#labelFits(section, size, [name(section)], turned)))) return { name, size };
      }
    }
    return { name: names.at(-1), size: LABEL_PX.at(-1) };
  }

  #countWords(section, left) {
    const free = this.plan.countShown(section);
    const code = section.needs_access && left ? " · code" : "";
    return free ? `${free.toLocaleString("en")}${left && ` ${left}`}${code}` : left ? "sold out" : "–";
  }

  // Whether a section has room for these lines around its middle, or for one line that is `turned` upright. In a slanted section the corners of the text could overlap
  // neighboring sections.
  #labelFits(section, size, [name, count], turned = false) {
    const [wide, high] = section.room.map((length) => length * this.scale);
    if (turned) {
      const [half, em] = [(name.length * size * LETTER) / 2 / this.scale, size / this.scale];
      const [x, y] = section.middle;
      return name.length * size * LETTER <= high && size <= wide && hasRoom(section, x - 0.35 * em, y - half, x + 0.35 * em, y + half);
    }
    const lines = count === undefined ? [[name, 0.35, 0.35]] : [[name, 0.75, 0], [count, 0, 1.05]];
    if (high < size * (count === undefined ? 1 : 2.2)) return false;
    const [x, y] = section.middle;
    return lines.every(([text, above, below]) => {
      const [half, em] = [(text.length * size * LETTER) / 2 / this.scale, size / this.scale];
      return text.length * size * LETTER <= wide && hasRoom(section, x - half, y - above * em, x + half, y + below * em);
    });
  }

  // ---- selection and cursor

  setChosen(chosen) {
    const touched = [...this.chosen].filter((seat) => !chosen.has(seat)).concat([...chosen].filter((seat) => !this.chosen.has(seat)));
    this.chosen = new Set(chosen);
    for (const seat of touched) this.svg.getElementById(`map-seat-${seat}`)?.setAttribute("aria-selected", String(chosen.has(seat)));
    const { plan } = this;
    const r = plan.pitch * 0.5;
    this.layers.picks.replaceChildren(
      ...[...chosen].map((seat) => {
        const [x, y] = [plan.x[seat], plan.y[seat]];
        return shape("g", { class: "pick", "aria-hidden": "true" },
          shape("circle", { cx: x, cy: y, r }),
          shape("path", { d: `M${x - r * 0.42} ${y + r * 0.03}l${r * 0.3} ${r * 0.3} ${r * 0.56} ${-r * 0.62}`, "stroke-width": r * 0.24 }));
      }),
    );
  }

  // A ring around each seat that is offered as a replacement.
  setOffered(seats) {
    const { plan } = this;
    this.layers.offers.replaceChildren(
      ...seats.map((seat) => shape("circle", { class: "offer", cx: plan.x[seat], cy: plan.y[seat], r: plan.pitch * 0.6, "stroke-width": plan.pitch * 0.14, "aria-hidden": "true" })),
    );
  }

  // The sections whose seats are visible, largest area on the screen first.
  visibleSections() {
    if (this.level === "far") return [];
    const [x0, y0] = this.toPlan(0, 0);
    const [x1, y1] = this.toPlan(this.width, this.height);
    const seen = this.plan.sections.map(({ box, seats }, index) => {
      if (!box || !seats.length) return [index, 0];
      const width = Math.min(x1, box.x + box.width) - Math.max(x0, box.x);
      const height = Math.min(y1, box.y + box.height) - Math.max(y0, box.y);
      // A section may be a single row, which has no height.
      return [index, width < 0 || height < 0 ? 0 : (width + 1) * (height + 1)];
    });
    return seen.filter(([, area]) => area > 0).sort((a, b) => b[1] - a[1]).map(([index]) => index);
  }

  // A ring around the seat under the keyboard cursor or pointer. At the far and near levels seats have no elements, so the ring
  // itself carries the label for screen readers.
  setCursor(at) {
    this.layers.cursor.replaceChildren();
    this.outlines.forEach((node, index) => node?.classList.toggle("is-current", at?.section === index));
    if (at?.seat === undefined) {
      this.#point(at?.section === undefined ? null : `map-section-${at.section}`);
      return;
    }
    const { plan } = this;
    const { seat } = at;
    const ring = shape("circle", { class: "ring", cx: plan.x[seat], cy: plan.y[seat], r: plan.pitch * 0.62, "stroke-width": plan.pitch * 0.12 });
    const own = this.svg.getElementById(`map-seat-${seat}`);
    if (!own) {
      for (const [key, value] of Object.entries({ id: `map-cursor-${seat}`, role: "option", "aria-label": this.describe(seat), "aria-selected": String(this.chosen.has(seat)) })) ring.setAttribute(key, value);
    }
    this.layers.cursor.append(ring);
    this.#point(at.keyboard ? (own ? own.id : ring.id) : null);
  }

  #point(id) {
    if (id) this.svg.setAttribute("aria-activedescendant", id);
    else this.svg.removeAttribute("aria-activedescendant");
  }
}

// How many seats, in the order of their coordinates `axis`, come before a coordinate.
function countBefore(seats, axis, from) {
  let [low, high] = [0, seats.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (axis[seats[middle]] < from) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Whether dark text is more readable than white text on this luminance.
function isBright(value) {
  return value > 0.18;
}

function luminance(color) {
  const value = Number.parseInt(color.slice(1, 7), 16);
  const part = (shift) => {
    const share = ((value >> shift) & 255) / 255;
    return share <= 0.04 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * part(16) + 0.7152 * part(8) + 0.0722 * part(0);
}
