// Shows the API's description. The bundle before this script brings SwaggerUIBundle.

const place = document.querySelector("#swagger-ui");

window.SwaggerUIBundle({
  domNode: place,
  url: place.dataset.schemaUrl,
  deepLinking: true,
  presets: [window.SwaggerUIBundle.presets.apis],
});
