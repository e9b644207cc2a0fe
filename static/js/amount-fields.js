// Below each duration: the same in minutes. Below each amount of money: what the buyer pays for it, or why it cannot be
// read. The server computes both, with the pricing of the checkout. Without this
// script the form still works; the server checks it when it is saved.
const WAIT_MS = 250;

const noteOf = (input) => input.closest(".amount")?.querySelector(".amount__note");

const showNotes = (form, { texts, errors }) => {
  for (const input of form.querySelectorAll("[data-amount]")) {
    const note = noteOf(input);
    if (!note) continue;
    if (input.dataset.amount === "duration") continue;
    const text = texts[input.name] ?? "";
    if (note.textContent !== text) note.textContent = text;
    note.classList.toggle("amount__note--error", errors.includes(input.name));
  }
};

const ask = async (form, url) => {
  const given = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (typeof value === "string" && name !== "description") given.append(name, value);
  const request = (form.notesRequest = (form.notesRequest ?? 0) + 1);
  try {
    const response = await fetch(url, { method: "POST", body: given, headers: { Accept: "application/json" } });
    // A slow answer must not replace a newer one.
    if (response.ok && request === form.notesRequest) showNotes(form, await response.json());
  } catch {
    // The notes stay as they are: saving does not need them.
  }
};

const showSign = (select) => {
  const sign = select.selectedOptions[0]?.dataset.sign;
  if (sign === undefined) return;
  for (const input of select.form.querySelectorAll('[data-amount="money"]')) {
    const place = input.closest(".amount")?.querySelector(".amount__sign");
    if (place) place.textContent = sign;
  }
};

const showDuration = (input) => {
  const note = noteOf(input);
  if (!note) return;
  const seconds = /^\d{1,6}$/.test(input.value.trim()) ? Number(input.value) : null;
  const parts = seconds === null ? [] : [[Math.floor(seconds / 3600), "h"], [Math.floor(seconds / 60) % 60, "min"], [seconds % 60, "s"]];
  note.textContent = parts.filter(([count]) => count).map(([count, unit]) => `${count} ${unit}`).join(" ");
};

const onInput = (event) => {
  const form = event.target.form;
  if (!form) return;
  if (event.target.matches("select") && event.type === "change") showSign(event.target);
  if (event.target.matches('[data-amount="duration"]')) showDuration(event.target);
  const url = form.querySelector("[data-notes-url]")?.dataset.notesUrl;
  if (!url) return;
  clearTimeout(form.notesTimer);
  form.notesTimer = setTimeout(() => ask(form, url), WAIT_MS);
};

const showSigns = () => {
  for (const select of document.querySelectorAll("select")) if (select.form) showSign(select);
};

document.addEventListener("input", onInput);
document.addEventListener("change", onInput);
// Rows that "Add another" inserts copy the sign of the page as it was rendered.
document.addEventListener("formset:added", showSigns);
if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", showSigns);
else showSigns();
