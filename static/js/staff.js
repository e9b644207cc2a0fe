// Gives the hints of Django's two-box selections a role: they have a label, which a plain element must not have.

addEventListener("load", () => {
  for (const hint of document.querySelectorAll("span.help-tooltip[aria-label]")) hint.setAttribute("role", "img");
});
