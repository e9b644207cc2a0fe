// The visitor's recent searches: saved when a search is sent, and shown below the catalog's empty search field. Without this
// script the form's address saves the search and then shows the results, and a link leads to the list.
//
// form[data-recents=URL]        the search form, with the call's URL
//   data-catalog=URL            the page of results
// a[data-saves-search=WORDS]    links that search
(() => {
  "use strict";
  const form = document.querySelector("form[data-recents]");
  const field = form && form.elements.q;
  if (!field || !window.fetch) return;
  const url = form.dataset.recents;
  const box = field.parentNode;
  let isOn = true;
  let isStale = true; // The panel's list was not read since the field got the focus.

  const element = (name, attributes, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const panel = element("section", { class: "search__recents", "aria-label": "Recent searches", hidden: "" });
  const status = element("p", { class: "visually-hidden", role: "status" });
  box.append(panel, status);

  const call = async (method, { query = "", body = null, keepalive = false } = {}) => {
    try {
      const response = await fetch(url + query, {
        method,
        keepalive,
        cache: "no-store",
        credentials: "same-origin",
        headers: { Accept: "application/json", ...(body && { "Content-Type": "application/json" }) },
        ...(body && { body: JSON.stringify(body) }),
      });
      return response.ok ? await response.json() : null;
    } catch {
      return null; // The search works without it.
    }
  };

  const save = (words) => {
    const q = words.trim().replace(/\s+/g, " ");
    // Kept alive: the page is left at the same moment.
    if (q && isOn) void call("POST", { body: { q }, keepalive: true });
  };

  const close = () => {
    panel.hidden = true;
    isStale = true;
  };

  const icon = () => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    for (const [key, value] of Object.entries({ viewBox: "0 0 20 20", width: 18, height: 18, fill: "none", stroke: "currentColor", "stroke-width": 2, "stroke-linecap": "round", "aria-hidden": "true" })) svg.setAttribute(key, value);
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", "m5.5 5.5 9 9M14.5 5.5l-9 9");
    svg.append(path);
    return svg;
  };

  const button = (text, act, className = "button button--quiet") => {
    const made = element("button", { type: "button", class: className }, text);
    made.addEventListener("click", act);
    return made;
  };

  // Carries out a change, shows the list after it, and reports what has changed. The focus moves to `focus`, or to the field.
  const change = async (method, options, report, focus = () => null) => {
    const found = await call(method, options);
    if (!found) {
      status.textContent = "That did not work. Try again.";
      return;
    }
    const hadFocus = panel.contains(document.activeElement);
    show(found);
    status.textContent = report;
    if (hadFocus || panel.hidden) (focus() || field).focus();
  };

  const row = ({ q }, at) => {
    const link = element("a", { href: `${form.dataset.catalog}?q=${encodeURIComponent(q)}`, dir: "auto" }, q);
    link.addEventListener("click", () => save(q));
    const remove = button(icon(), () => change("DELETE", { query: `?q=${encodeURIComponent(q)}` }, `Deleted ${q}`, () => panel.querySelectorAll(".recents__delete")[at] || [...panel.querySelectorAll(".recents__delete")].at(-1)), "recents__delete");
    remove.setAttribute("aria-label", `Delete ${q}`);
    return element("li", {}, link, remove);
  };

  const show = ({ is_on, searches }) => {
    isOn = is_on;
    if (is_on && !searches.length) {
      panel.replaceChildren();
      panel.hidden = true;
      return;
    }
    const acts = element("div", { class: "search__recents-acts" });
    if (is_on) {
      acts.append(
        button("Clear all", () => change("DELETE", {}, "Recent searches deleted")),
        button("Don’t save searches", () => change("PATCH", { body: { is_on: false } }, "Searches are no longer saved, and saved ones are deleted", firstAct)),
      );
      panel.replaceChildren(element("p", {}, "Recent searches"), element("ul", { class: "recents" }, ...searches.map(row)), acts);
      status.textContent = `${searches.length} recent search${searches.length === 1 ? "" : "es"}. Press the down arrow to choose one.`;
    } else {
      acts.append(button("Save searches", () => change("PATCH", { body: { is_on: true } }, "Searches are saved from now on")));
      panel.replaceChildren(element("p", {}, "Your searches are not saved."), acts);
    }
    panel.hidden = false;
  };
  const firstAct = () => panel.querySelector(".search__recents-acts button");

  const open = async () => {
    if (field.value || !isStale) return;
    isStale = false;
    const found = await call("GET");
    if (found && !field.value && box.contains(document.activeElement)) show(found);
  };

  const move = (event, step) => {
    const stops = [...panel.querySelectorAll("a, .search__recents-acts button")];
    const at = stops.indexOf(document.activeElement.closest("li")?.querySelector("a") || document.activeElement);
    const next = at + step;
    event.preventDefault();
    event.stopImmediatePropagation(); // The list of suggestions is closed.
    (next < 0 ? field : stops[Math.min(next, stops.length - 1)]).focus();
  };

  form.action = form.dataset.catalog;
  form.addEventListener("submit", () => save(field.value));
  document.addEventListener("click", (event) => {
    const link = event.target.closest && event.target.closest("a[data-saves-search]");
    if (link) save(link.dataset.savesSearch);
  });
  field.addEventListener("focus", open);
  field.addEventListener("click", open);
  field.addEventListener("input", () => (field.value ? close() : open()));
  box.addEventListener(
    "keydown",
    (event) => {
      if (event.isComposing) return;
      if (panel.hidden) {
        if (event.key !== "ArrowDown" || event.target !== field || field.value) return;
        event.preventDefault();
        event.stopImmediatePropagation();
        void open();
      } else if (event.key === "ArrowDown") move(event, 1);
      else if (event.key === "ArrowUp" && event.target !== field) move(event, -1);
      else if (event.key === "Escape") {
        event.preventDefault();
        event.stopImmediatePropagation();
        isStale = false; // The focus alone does not open it again.
        field.focus();
        close();
      }
    },
    { capture: true },
  );
  panel.addEventListener("mousedown", (event) => event.preventDefault()); // The field keeps the focus.
  box.addEventListener("focusout", (event) => {
    if (!box.contains(event.relatedTarget)) close();
  });
})();
