// One queue entry per browser: every tab sends the same random id with the form that joins the line. The id grants access
// to the entry, so it stays in this browser and is sent nowhere else.
const KEY = "fairgate-visitor";
const FIT = /^[A-Za-z0-9_-]{8,64}$/;

function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(18));
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_");
}

// Read back after writing, so that two tabs that open at once agree on the last value written.
function visitorId() {
  try {
    if (!FIT.test(localStorage.getItem(KEY) ?? "")) localStorage.setItem(KEY, newId());
    return localStorage.getItem(KEY);
  } catch {
    return null; // No local storage: the server's cookie identifies the browser instead.
  }
}

visitorId(); // Create it when the page opens, so that all tabs share it before any form is submitted.
for (const form of document.querySelectorAll("form[data-join]")) {
  const field = document.createElement("input");
  field.type = "hidden";
  field.name = "visitor_id";
  form.append(field);
  form.addEventListener("submit", () => {
    field.value = visitorId() ?? "";
  });
}
