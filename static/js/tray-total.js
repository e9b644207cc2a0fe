// What the chosen seats come to: the fee of the order is in it once, and said beside it.

export function showTotal(element, minor, currency) {
  const money = new Intl.NumberFormat("en", { style: "currency", currency });
  const said = (amount) => money.format(amount / 10 ** money.resolvedOptions().maximumFractionDigits);
  // An order of what costs nothing bears a fee only where the event says so.
  const fee = minor || element.dataset.feeOnFree === "yes" ? Number(element.dataset.orderFee) : 0;
  element.textContent = said(minor + fee);
  if (fee) {
    const note = document.createElement("span");
    note.className = "tray__fee";
    note.textContent = `with ${said(fee)} fee per order`;
    element.append(" ", note);
  }
}
