// Enter in the access code field checks the code. Without scripts it submits the selection together with the code.

const field = document.getElementById("access_code");
field?.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.isComposing) return;
  event.preventDefault();
  document.querySelector("button[name=use_code]").click();
});
