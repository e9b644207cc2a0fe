// Enter in the code's own field tries the code; without script it holds what is chosen, with the code.

const field = document.getElementById("access_code");
field?.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.isComposing) return;
  event.preventDefault();
  document.querySelector("button[name=use_code]").click();
});
