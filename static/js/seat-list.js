// The list works as a plain form; this counts along, so that the limit is known before the form is sent.

import { showTotal } from "./tray-total.js";

const form = document.querySelector("[data-seat-list]");
const limit = Number(form.dataset.limit);
const says = form.querySelector("[data-list-says]");
const total = form.querySelector("[data-tray-total]");
const elsewhere = form.querySelectorAll("input[type=hidden][name=seats]").length;

function count() {
  const chosen = [...form.querySelectorAll("input[type=checkbox][name=seats]:checked")];
  const seats = chosen.length + elsewhere;
  const sum = chosen.reduce((minor, box) => minor + Number(box.dataset.price), 0);
  says.textContent = seats ? `${seats} of ${limit} chosen${elsewhere ? `, ${elsewhere} in other sections` : ""}` : `Tick up to ${limit} seats, then hold them.`;
  if (chosen.length && !elsewhere) showTotal(total, sum, form.dataset.currency);
  else total.textContent = "";
  document.querySelectorAll("a[data-keep-seats]").forEach((link) => {
    const url = new URL(link.href);
    url.searchParams.delete("seats");
    new FormData(form).getAll("seats").forEach((seat) => url.searchParams.append("seats", seat));
    link.href = url;
  });
  return seats;
}

form.addEventListener("change", (event) => {
  if (count() > limit && event.target.checked) {
    event.target.checked = false;
    count();
    says.textContent = `${limit} seats at a time is the most.`;
  }
});
count();
