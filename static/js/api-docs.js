// Opens the call or schema that the address names. Without this script they are opened by hand.

function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!(target instanceof HTMLDetailsElement)) return;
  target.open = true;
  target.scrollIntoView();
}

addEventListener("hashchange", openTarget);
openTarget();
