// The form of a new event: the city of a new venue, or else this device, chooses its time zone, and the zone chooses the
// currency, until the user has chosen one. Without this script all of them are chosen by hand.
const form = document.querySelector("[data-new-event]");
const field = (name) => form?.elements.namedItem(name);
const chosen = new Set();

const select = (list, value) => {
  if (!list || !value || list.value === value) return;
  list.value = value;
  list.dispatchEvent(new Event("change", { bubbles: true }));
};

const plain = (text) => text.trim().toLowerCase().normalize("NFD").replace(/\p{M}/gu, "");

const zoneOfCity = () => {
  const city = plain(field("city").value);
  const found = city && [...field("timezone").options].find((option) => plain(option.text.split(",")[0]) === city);
  if (found) select(field("timezone"), found.value);
};

const currencyOfZone = (event) => {
  if (chosen.has("currency")) return;
  const currency = event.target.selectedOptions[0]?.dataset.currency;
  if (currency) select(field("currency"), currency);
};

// The zone of this device: most organizers are where their venue is. Browsers may use a former name of it.
const ownZone = () => {
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const options = [...field("timezone").options].filter((option) => option.value);
  const current = (zone) => Intl.DateTimeFormat("en", { timeZone: zone }).resolvedOptions().timeZone;
  return own === "UTC" ? undefined : options.find(({ value }) => value === own) ?? options.find(({ value }) => current(value) === own);
};

const offerOwnZone = (option) => {
  const group = document.createElement("optgroup");
  group.label = "This device";
  group.append(option.cloneNode(true));
  field("timezone").options[0].after(group);
};

// The times of the form are on the clock of the venue; no zone is shown beside them until it is known.
const showVenueZone = () => {
  const { value, selectedOptions } = field("venue");
  const zone = value === "new" ? field("timezone")?.value : selectedOptions[0]?.dataset.zone;
  for (const label of form.querySelectorAll("[data-zone-label]")) label.textContent = zone ?? "";
};

if (form) {
  const isRefused = Boolean(form.querySelector(".errornote"));
  if (isRefused) chosen.add("currency");
  field("venue").addEventListener("change", currencyOfZone);
  if (field("timezone")) {
    const value = field("timezone").value;
    const own = ownZone();
    if (own) offerOwnZone(own);
    field("timezone").value = value;
    if (value) chosen.add("timezone");
    const suggestZone = () => {
      if (field("venue").value !== "new") return;
      if (own && !field("timezone").value) select(field("timezone"), own.value);
      else field("timezone").dispatchEvent(new Event("change", { bubbles: true }));
    };
    field("city").addEventListener("input", () => chosen.has("timezone") || zoneOfCity());
    field("timezone").addEventListener("change", currencyOfZone);
    field("venue").addEventListener("change", suggestZone);
    if (!isRefused) suggestZone();
  }
  form.addEventListener("change", (event) => event.isTrusted && chosen.add(event.target.name));
  document.addEventListener("change", showVenueZone);
  showVenueZone();
  const unreserved = form.querySelector("[data-unreserved]");
  form.addEventListener("change", (event) => {
    if (event.target.name === "seating" && event.target.value === "none") unreserved.open = true;
  });
  form.querySelector(".changes__wrong :is(input, select, textarea)")?.focus();
}
