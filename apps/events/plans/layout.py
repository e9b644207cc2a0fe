"""The stored form of a plan: JSON with seats as columns, so that 60,000 seats are a few arrays instead of objects."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from apps.events.plans.plan import Area, AreaText, Plan, PlanCategory, PlanSeat, PlanSection

VERSION = 1
_COLUMNS = (
    "guid", "row", "number", "x", "y", "category", "row_index", "place_index", "rank", "accessible", "companion",
)  # fmt: skip


def to_layout(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON values."""
    return {
        "version": VERSION,
        "name": plan.name,
        "size": [plan.width, plan.height],
        "categories": [[category.name, category.color] for category in plan.categories],
        "areas": [asdict(area) for area in plan.areas],
        "sections": [
            {
                "slug": section.slug,
                "name": section.name,
                "seats": {column: [getattr(seat, column) for seat in section.seats] for column in _COLUMNS},
            }
            for section in plan.sections
        ],
    }


def from_layout(layout: dict[str, Any]) -> Plan:
    """Return the plan that `to_layout` stored."""
    width, height = layout["size"]
    return Plan(
        name=layout["name"],
        width=width,
        height=height,
        categories=tuple(PlanCategory(name, color) for name, color in layout["categories"]),
        sections=tuple(
            PlanSection(
                section["slug"],
                section["name"],
                tuple(
                    PlanSeat(*values) for values in zip(*(section["seats"][column] for column in _COLUMNS), strict=True)
                ),
            )
            for section in layout["sections"]
        ),
        areas=areas_of(layout),
    )


class StoredSection(NamedTuple):
    slug: str
    name: str
    seats: Mapping[str, Sequence[Any]]
    """The values of all seats by column: see PlanSeat."""


class StoredLayout(NamedTuple):
    """The sections of a stored plan as columns, which takes a tenth of the time of `from_layout`."""

    categories: Sequence[str]
    """Names. A seat's `category` is an index into them."""
    sections: Sequence[StoredSection]


def stored_layout(layout: dict[str, Any]) -> StoredLayout:
    """Return the sections of the plan that `to_layout` stored, without making its seats."""
    return StoredLayout(
        tuple(name for name, _ in layout["categories"]),
        tuple(StoredSection(section["slug"], section["name"], section["seats"]) for section in layout["sections"]),
    )


def areas_of(layout: dict[str, Any]) -> tuple[Area, ...]:
    """Return only the drawn areas of a stored plan."""
    return tuple(
        Area(
            **area
            | {
                "points": tuple((x, y) for x, y in area["points"]),
                "text": AreaText(**area["text"]) if area["text"] else None,
            }
        )
        for area in layout["areas"]
    )
