// How much is free in each section, beside its name, as the stream tells it (live.js).
//
// [data-free=SECTION]        takes "12 free", or the words in data-free-none
//   data-free-own=N          so many are held by this visitor, who may have them in exchange

import { on } from "./live.js";

on("sections", ({ sections }) => {
  for (const { section_id: id, available_seats: available } of sections) {
    for (const face of document.querySelectorAll(`[data-free="${CSS.escape(id)}"]`)) {
      const left = available + Number(face.dataset.freeOwn || 0);
      face.textContent = left ? `${left.toLocaleString("en-US")} free` : face.dataset.freeNone;
      const choice = face.closest("label")?.querySelector("input[type=radio][data-free-choice]");
      // What is chosen stays so: the house says what is left when it is asked.
      if (choice) choice.disabled = left === 0 && !choice.checked;
    }
  }
});
