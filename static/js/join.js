// One place per browser: every tab sends the same random id with the form that joins the line. Whoever knows it has the
// place, so it is kept in this browser and sent nowhere else.
const KEY = "fairgate-visitor";
const FIT = /^[A-Za-z0-9_-]{8,64}$/;

function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(18));
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_");
}

// Read again after writing: of two tabs that open at once, both take what stands there last.
function visitorId() {
  try {
    if (!FIT.test(localStorage.getItem(KEY) ?? "")) localStorage.setItem(KEY, newId());
    return localStorage.getItem(KEY);
  } catch {
    return null; // A browser that keeps nothing: the server's cookie does it, or nothing can.
  }
}

visitorId(); // When the page opens, so that it stands for all tabs long before anybody clicks.
for (const form of document.querySelectorAll("form[data-join]")) {
  const field = document.createElement("input");
  field.type = "hidden";
  field.name = "visitor_id";
  form.append(field);
  form.addEventListener("submit", () => {
    field.value = visitorId() ?? "";
  });
}
