// Renders the API reference. The script loaded before this one defines SwaggerUIBundle.

const container = document.querySelector("#swagger-ui");

window.SwaggerUIBundle({
  domNode: container,
  url: container.dataset.schemaUrl,
  deepLinking: true,
  presets: [window.SwaggerUIBundle.presets.apis],
});
