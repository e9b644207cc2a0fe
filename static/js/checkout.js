// Payment: names the chosen method beside the Pay button, which may cover the choice on phones, and removes the error of
// a field once it is corrected. Listens on the document, because js/follow.js replaces the form after a decline.

function nameMethod() {
  const line = document.querySelector("[data-pay-method]");
  const label = document.querySelector("[name=payment_method]:checked")?.closest("label");
  if (!line || !label) return;
  line.querySelector("[data-pay-method-name]").textContent = label.textContent.trim();
  line.hidden = false;
}

function settle(input) {
  const field = input.closest(".checkout__form .field--wrong");
  if (!field || (input.type === "checkbox" ? !input.checked : !input.value.trim()) || !input.checkValidity()) return;
  field.classList.remove("field--wrong");
  field.querySelector(".field__error")?.remove();
  input.removeAttribute("aria-invalid");
  const form = field.closest("form");
  if (!form.querySelector(".field--wrong, .field__error")) form.querySelector(":scope > .notice--wrong")?.remove();
}

document.addEventListener("input", ({ target }) => settle(target));
document.addEventListener("change", ({ target }) => (target.name === "payment_method" ? nameMethod() : settle(target)));
document.addEventListener("follow:news", nameMethod);
nameMethod();
