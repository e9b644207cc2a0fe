// The form of a new event: the city of a new venue chooses its time zone, and the zone chooses the currency, until the user
// has chosen one. Without this script all of them are chosen by hand.
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

// The zone of this device comes first in the list: most organizers are where their venue is.
const offerOwnZone = () => {
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const option = [...field("timezone").options].find((one) => one.value === own);
  if (!option || own === "UTC") return;
  const group = document.createElement("optgroup");
  group.label = "This device";
  group.append(option.cloneNode(true));
  field("timezone").options[0].after(group);
};

if (form) {
  if (field("timezone")) {
    const value = field("timezone").value;
    offerOwnZone();
    field("timezone").value = value;
    if (value) chosen.add("timezone");
    field("city").addEventListener("input", () => chosen.has("timezone") || zoneOfCity());
    field("timezone").addEventListener("change", currencyOfZone);
  }
  if (form.querySelector(".errornote")) chosen.add("currency");
  field("venue").addEventListener("change", currencyOfZone);
  form.addEventListener("change", (event) => event.isTrusted && chosen.add(event.target.name));
  const unreserved = form.querySelector("[data-unreserved]");
  form.addEventListener("change", (event) => {
    if (event.target.name === "seating" && event.target.value === "none") unreserved.open = true;
  });
}
