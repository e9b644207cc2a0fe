// The catalog's search field as a combobox: events and searches for what was typed so far, by keyboard, pointer and
// screen reader. Without this script the form works as it is.
(() => {
  "use strict";
  const form = document.querySelector("form[data-search]");
  const field = form && form.elements.q;
  if (!field || !window.fetch || !window.AbortController) return;
  const WAIT_MS = 120;
  const KEPT_MAX = 60;
  const kept = new Map();
  const list = document.createElement("ul");
  const status = document.createElement("p");
  list.id = "search-options";
  list.className = "search__options";
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Suggestions");
  list.hidden = true;
  status.className = "visually-hidden";
  status.setAttribute("role", "status");
  field.parentNode.append(list, status);
  for (const [name, value] of [["role", "combobox"], ["aria-autocomplete", "list"], ["aria-controls", list.id], ["aria-expanded", "false"]]) field.setAttribute(name, value);

  let timer = 0;
  let request = null;
  let active = -1;

  const dayText = (day) => new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" }).format(new Date(`${day}T12:00:00Z`));

  const close = () => {
    list.hidden = true;
    active = -1;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  };

  const activate = (at) => {
    const options = list.children;
    if (active >= 0) options[active].removeAttribute("aria-selected");
    active = at;
    if (active < 0) return field.removeAttribute("aria-activedescendant");
    options[active].setAttribute("aria-selected", "true");
    options[active].scrollIntoView({ block: "nearest" });
    field.setAttribute("aria-activedescendant", options[active].id);
  };

  const choose = (option) => {
    close();
    if (option.dataset.event) {
      window.location.assign(form.dataset.eventUrl.replace("event-slug", option.dataset.event));
    } else {
      field.value = option.textContent;
      form.requestSubmit();
    }
  };

  const show = (found) => {
    const rows = [
      ...found.queries.map((text) => ({ text })),
      ...found.events.map(({ event, name, city, day }) => ({ text: name, event, more: [city, dayText(day)].filter(Boolean).join(", ") })),
    ];
    list.replaceChildren(
      ...rows.map(({ text, event, more }, at) => {
        const option = document.createElement("li");
        option.id = `search-option-${at}`;
        option.setAttribute("role", "option");
        option.dir = "auto";
        option.textContent = text;
        option.className = event ? "search__event" : "search__query";
        if (event) option.dataset.event = event;
        if (more) {
          const detail = document.createElement("span");
          detail.className = "small";
          detail.textContent = more;
          option.append(" ", detail);
        }
        return option;
      }),
    );
    active = -1;
    if (!rows.length) {
      status.textContent = "No suggestions";
      return close();
    }
    list.hidden = false;
    field.setAttribute("aria-expanded", "true");
    field.removeAttribute("aria-activedescendant");
    status.textContent = `${rows.length} suggestion${rows.length === 1 ? "" : "s"}`;
  };

  const ask = async () => {
    const text = field.value.trim();
    if (request) request.abort();
    if (text.length < 2) return close();
    if (kept.has(text)) return show(kept.get(text));
    request = new AbortController();
    try {
      const response = await fetch(`${form.dataset.search}?q=${encodeURIComponent(text)}`, { signal: request.signal });
      if (!response.ok) return close();
      const found = await response.json();
      if (kept.size >= KEPT_MAX) kept.delete(kept.keys().next().value);
      kept.set(text, found);
      if (field.value.trim() === text && document.activeElement === field) show(found);
    } catch (error) {
      if (error.name !== "AbortError") close();
    }
  };

  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, WAIT_MS);
  });
  field.addEventListener("keydown", (event) => {
    const count = list.children.length;
    if (event.isComposing) return;
    if ((event.key === "ArrowDown" || event.key === "ArrowUp") && count) {
      event.preventDefault();
      if (list.hidden) {
        list.hidden = false;
        field.setAttribute("aria-expanded", "true");
      }
      const step = event.key === "ArrowDown" ? 1 : -1;
      activate(active < 0 && step < 0 ? count - 1 : active + step >= count ? -1 : active + step);
    } else if (event.key === "Enter" && active >= 0 && !list.hidden) {
      event.preventDefault();
      choose(list.children[active]);
    } else if (event.key === "Escape" && !list.hidden) {
      event.preventDefault();
      close();
    } else if (event.key === "Tab") {
      close();
    }
  });
  list.addEventListener("pointerdown", (event) => event.preventDefault());
  list.addEventListener("click", (event) => {
    const option = event.target.closest("[role=option]");
    if (option) choose(option);
  });
  field.addEventListener("blur", close);
})();
