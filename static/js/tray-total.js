// Shows the total of the selected seats, including the fee per order, which is also shown separately.

export function showTotal(element, minor, currency) {
  const money = new Intl.NumberFormat("en", { style: "currency", currency });
  const format = (amount) => money.format(amount / 10 ** money.resolvedOptions().maximumFractionDigits);
  // A free order bears the fee only if the event charges fees on free tickets.
  const fee = minor || element.dataset.feeOnFree === "yes" ? Number(element.dataset.orderFee) : 0;
  element.textContent = format(minor + fee);
  if (fee) {
    const note = document.createElement("span");
    note.className = "tray__fee";
    note.textContent = `incl. ${format(fee)} order fee`;
    element.append(" ", note);
  }
}
