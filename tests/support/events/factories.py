"""Seating plans and events for tests, created through the real services only."""

import json
from datetime import datetime, timedelta
from typing import Any

from apps.events.creation import EventSpec, GeneralAdmission, create_event
from apps.events.models import Event
from apps.kernel import clock

SPACING = 25


def seat(guid: str, number: int | str, x: float = 0, y: float = 0, category: str = "Stalls", **extra: Any) -> dict:
    return {
        "seat_guid": guid,
        "seat_number": str(number),
        "position": {"x": x, "y": y},
        "category": category,
        **extra,
    }


def row(label: str, seats: list[dict], x: float = 0, y: float = 0, **extra: Any) -> dict:
    return {"row_number": label, "position": {"x": x, "y": y}, "seats": seats, **extra}


def zone(name: str, rows: list[dict], x: float = 0, y: float = 0, **extra: Any) -> dict:
    return {"name": name, "position": {"x": x, "y": y}, "rows": rows, **extra}


def plan(zones: list[dict] | None = None, categories: tuple[str, ...] = ("Stalls",), **extra: Any) -> dict:
    """Return a plan as the editor writes it; by default one zone `Stalls` with rows A and B of four seats each."""
    if zones is None:
        zones = [block("Stalls", rows=2, seats=4)]
    return {
        "name": "Plan",
        "size": {"width": 2000, "height": 2000},
        "categories": [{"name": name, "color": "#0f766e"} for name in categories],
        "zones": zones,
        **extra,
    }


def block(name: str, rows: int, seats: int, category: str = "Stalls", x: float = 100, y: float = 100) -> dict:
    """A zone of straight rows A, B, …; seat ids are `name-row-number`."""
    return zone(
        name,
        [
            row(
                chr(65 + r),
                [seat(f"{name}-{chr(65 + r)}-{s + 1}", s + 1, x=s * SPACING, category=category) for s in range(seats)],
                y=r * 30,
            )
            for r in range(rows)
        ],
        x=x,
        y=y,
    )


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


def spec(slug: str = "hamlet", **changes: Any) -> EventSpec:
    """Return the specification of an event on sale now: eight seats at 45.00 and a floor of ten tickets at 20.00."""
    values: dict[str, Any] = {
        "slug": slug,
        "name": "Hamlet",
        "venue": "Old Theatre",
        "starts_at": in_days(30),
        "currency": "USD",
        "plan": encoded(plan()),
        "prices": {"Stalls": 4500},
        "general_admission": (GeneralAdmission("Floor", 10, 2000),),
    }
    return EventSpec(**values | changes)


def in_days(days: float) -> datetime:
    """Return that time from now by the database's clock, to the second."""
    return (clock.now() + timedelta(days=days)).replace(microsecond=0)


def make_event(slug: str = "hamlet", **changes: Any) -> Event:
    """Create a published event from `spec`."""
    create_event(spec(slug, **changes))
    return Event.objects.select_related("venue", "on_sale", "plan").get(slug=slug)
