"""The price categories of a draft's plan that have no price yet, to fill in in its form."""

from typing import Any

from apps.events.models import Category, Event
from apps.events.plans.colors import distinct_color


def missing_tiers(event: Event) -> list[dict[str, Any]]:
    """Return key, name, color and position of each category of the plan that has seats and no price, in the plan's
    order. The plan's colors are kept as long as they differ."""
    if event.plan is None or event.status != Event.Status.DRAFT:
        return []
    layout = event.plan.layout
    used = {index for section in layout["sections"] for index in section["seats"]["category"]}
    priced = {row.key: row.color for row in Category.objects.filter(event=event)}
    colors, found = set(priced.values()), []
    for position, (name, own) in enumerate(layout["categories"]):
        if position in used and name not in priced:
            color = distinct_color(own, colors)
            colors.add(color)
            found.append({"key": name, "name": name, "color": color, "position": position})
    return found
