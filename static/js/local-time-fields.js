// Beside each local time stands its time zone: that of the venue or event that is chosen in the same form.
const showZone = (select) => {
  const zone = select.selectedOptions[0]?.dataset.zone;
  if (zone === undefined || !select.form) return;
  for (const label of select.form.querySelectorAll("[data-zone-label]")) label.textContent = zone;
};

document.addEventListener("change", (event) => {
  if (event.target.matches("select")) showZone(event.target);
});
