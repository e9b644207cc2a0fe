// Reports in [data-just-gone] that another buyer took selected seats, and offers the nearest similar seats instead. The
// offer stays until it is accepted, closed or out of date.

const SHOWN_MS = 10_000;

export class JustGone {
  constructor(region, take) {
    this.region = region;
    this.take = take;
  }

  get isShown() {
    return this.region.childElementCount > 0;
  }

  // `gone` and `instead` name the lost and the offered seats; `none` is shown if `instead` is empty.
  show(gone, instead, none) {
    const hadFocus = this.region.contains(document.activeElement);
    const text = document.createElement("p");
    const strong = Object.assign(document.createElement("strong"), { textContent: "Just taken:" });
    text.append(strong, ` ${gone}. ${instead ? "" : none}`);
    const close = Object.assign(document.createElement("button"), { type: "button", className: "gone__close", textContent: "Close" });
    close.addEventListener("click", () => this.clear());
    this.region.replaceChildren(text);
    if (instead) {
      const button = Object.assign(document.createElement("button"), { type: "button", className: "button gone__take", textContent: `Select ${instead} instead` });
      button.addEventListener("click", () => {
        this.clear();
        this.take();
      });
      this.region.append(button);
      if (hadFocus) button.focus();
    }
    this.region.append(close);
    clearTimeout(this.timer);
    if (!instead) this.timer = setTimeout(() => this.clear(), SHOWN_MS);
  }

  clear() {
    clearTimeout(this.timer);
    this.region.replaceChildren();
  }
}

// "B 4", "B 4 and B 5", "B 4, B 5 and B 6"
export function listed(words) {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}
