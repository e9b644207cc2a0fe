// Renders the API reference. The script loaded before this one defines SwaggerUIBundle.

const container = document.querySelector("#swagger-ui");
const dark = matchMedia("(prefers-color-scheme: dark)");

// Swagger UI has its dark colors under a class, not a media query.
function setTheme() {
  document.documentElement.classList.toggle("dark-mode", dark.matches);
}

setTheme();
dark.addEventListener("change", setTheme);
window.SwaggerUIBundle({
  domNode: container,
  url: container.dataset.schemaUrl,
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  presets: [window.SwaggerUIBundle.presets.apis],
});
