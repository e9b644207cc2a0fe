// Names for parts that Django admin's scripts add without one, also later: the hints of selections with two boxes, and fields
// with suggestions (select2), which are named by the label of their field.

function nameParts() {
  for (const hint of document.querySelectorAll("span.help-tooltip[aria-label]")) hint.setAttribute("role", "img");
  for (const box of document.querySelectorAll(".select2-selection[aria-labelledby]")) {
    const field = box.closest(".select2-container")?.previousElementSibling;
    const name = field?.labels?.[0]?.textContent.trim().replace(/:$/, "");
    if (!name) continue;
    box.removeAttribute("aria-labelledby");
    for (const part of [box, ...box.querySelectorAll("[role=textbox]")]) part.setAttribute("aria-label", name);
  }
}
nameParts();
new MutationObserver(nameParts).observe(document.body, { childList: true, subtree: true });
