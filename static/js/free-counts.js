// Updates the number of tickets left beside each section's name from the stream (live.js).
//
// [data-free=SECTION]        shows "12 left", or the text in data-free-none
//   data-free-own=N          tickets that this visitor holds and may exchange; they count as left

import { on } from "./live.js";

on("sections", ({ sections }) => {
  for (const { section_id: id, available_seats: available } of sections) {
    for (const face of document.querySelectorAll(`[data-free="${CSS.escape(id)}"]`)) {
      const left = available + Number(face.dataset.freeOwn || 0);
      face.textContent = left ? `${left.toLocaleString("en-US")} left` : face.dataset.freeNone;
      const choice = face.closest("label")?.querySelector("input[type=radio][data-free-choice]");
      // A checked option stays enabled: the server decides when the form is sent.
      if (choice) choice.disabled = left === 0 && !choice.checked;
    }
  }
});
