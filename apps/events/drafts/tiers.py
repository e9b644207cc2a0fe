"""The price categories of a draft's plan: those that have no price yet, and their prices."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.events.models import Category, Event
from apps.events.plans.colors import distinct_color
from apps.kernel.db import transactions


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


def count_seats(event: Event) -> Mapping[str, int]:
    """Return the number of seats of each category of the event's plan that has any."""
    if event.plan is None:
        return {}
    layout = event.plan.layout
    counts = Counter(index for section in layout["sections"] for index in section["seats"]["category"])
    return {layout["categories"][index][0]: count for index, count in counts.items()}


@dataclass(frozen=True, slots=True)
class Tier:
    """A price category of the draft. `key` is its name in the plan."""

    key: str
    name: str
    color: str
    seat_count: int | None
    """Seats of the plan; None for a category that has none there."""
    price_minor: int | None


def list_tiers(event: Event) -> list[Tier]:
    """Return the draft's price categories in their order, with those of the plan that have no price yet."""
    seats = count_seats(event)
    known = [
        (row.position, Tier(row.key, row.name, row.color, seats.get(row.key), row.price_minor))
        for row in Category.objects.filter(event=event)
    ]
    missing = [
        (tier["position"], Tier(tier["key"], tier["name"], tier["color"], seats[tier["key"]], None))
        for tier in missing_tiers(event)
    ]
    return [tier for _, tier in sorted([*known, *missing], key=lambda pair: pair[0])]


def write_prices(event: Event, prices: Mapping[str, int]) -> None:
    """Store the prices of these categories, by their names in the plan. Those of the plan that have none yet are
    created; unknown ones are ignored. Joins the caller's transaction, which has locked the draft."""
    transactions.require_transaction()
    for category in Category.objects.filter(event=event, key__in=prices):
        if category.price_minor != prices[category.key]:
            category.price_minor = prices[category.key]
            category.save(update_fields=["price_minor"])
    for tier in missing_tiers(event):
        if tier["key"] in prices:
            Category.objects.create(event=event, price_minor=prices[tier["key"]], **tier)
