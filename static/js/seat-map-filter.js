// The price filter of the seat map: one button for each category. Pressed buttons show only their seats; no pressed button
// shows all.

export function watchFilter(form, plan, apply, announce) {
  const index = new Map(plan.categories.map(({ key }, category) => [key, category]));
  const buttons = [...form.querySelectorAll("[data-price-filter] [data-category]")];
  buttons.forEach((button) => {
    const category = index.get(button.dataset.category);
    button.addEventListener("click", () => {
      if (!plan.shown.delete(category)) plan.shown.add(category);
      button.setAttribute("aria-pressed", String(plan.shown.has(category)));
      apply();
      const names = plan.shown.size ? [...plan.shown].map((one) => plan.categories[one].name).join(", ") : "all prices";
      const free = plan.sections.reduce((sum, section) => sum + plan.countShown(section), 0);
      announce(`Showing ${names}: ${free.toLocaleString("en")} left.`);
    });
  });
}
