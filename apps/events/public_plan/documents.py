"""The public seating plan of an event: geometry and prices, the same for every visitor, without availability."""

import gzip
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from django.core.cache import cache
from django.db.models import Max

from apps.events import event_views
from apps.events.models import Category, Event, Seat, Section
from apps.events.plans.layout import StoredLayout, stored_layout
from apps.events.public_plan.drawings import COLUMNS, Drawing, encode_drawing
from apps.kernel.fastpath.cache import RefreshingCache

PLAN_CACHE_SECONDS = 3_600
PLANS_MAX = 64
PLAN_BYTES_MAX = 64 * 1024 * 1024
"""Plans kept in one process, and their compressed size. The oldest are removed first."""
DRAWING_BYTES_MAX = 4 * 1024 * 1024
"""A larger drawing, compressed, is not kept in Redis: its labels are no names of seats."""
_PLAN_COMPRESSION, _DRAWING_COMPRESSION = 6, 1


def plan_version(slug: str) -> str:
    """Return a value that changes whenever the event's public plan does, without building the plan.

    Raises EventNotFound.
    """
    return event_views.plan_version(event_views.get_event(slug).id)


class PlanDocument(NamedTuple):
    compressed: bytes
    """The JSON, compressed with gzip."""

    @property
    def body(self) -> bytes:
        return gzip.decompress(self.compressed)


def plan_document(slug: str, version: str = "") -> PlanDocument:
    """Return the public plan as JSON: geometry and prices, the same for every visitor, without availability. `version`
    is its `plan_version`; empty: it is read.

    Seats are columns, in the order of their ids (`event_views.seat_ids_in_plan_order`). Raises EventNotFound.
    """
    return _plans.read((slug, version or plan_version(slug)))


def _read_plan(key: tuple[str, str]) -> PlanDocument:
    slug, _ = key
    return PlanDocument(gzip.compress(msgspec.json.encode(_plan(slug)), _PLAN_COMPRESSION, mtime=0))


class _PlanCache(RefreshingCache[tuple[str, str], PlanDocument]):
    """The plans of this process, by slug and version: to build one takes tenths of a second of a processor for a large
    venue. Threads that need the same plan wait for one of them to build it."""

    def _keep(self, values: Mapping[tuple[str, str], PlanDocument], begun: float) -> None:
        kept = {key: (entry.begun, len(entry.value.compressed)) for key, entry in self._kept.copy().items()}
        size = sum(size for _, size in kept.values()) + sum(len(plan.compressed) for plan in values.values())
        for key in sorted(kept, key=kept.__getitem__):
            if size <= PLAN_BYTES_MAX and len(kept) + len(values) <= PLANS_MAX:
                break
            size -= kept.pop(key)[1]
            self._kept.pop(key, None)
        super()._keep(values, begun)


_plans = _PlanCache(_read_plan, fresh_seconds=PLAN_CACHE_SECONDS, stale_seconds=0, most=PLANS_MAX)


def draft_sections(event_id: int) -> list[event_views.SectionView]:
    """Return the sections that a draft would have: those of its plan, with ids below 0, and general admission. A
    category without a price is left out."""
    event = Event.objects.select_related("plan").defer("poster").get(pk=event_id)
    return _draft_sections(event_id, _draft_layout(event))


def _draft_sections(event_id: int, layout: StoredLayout) -> list[event_views.SectionView]:
    prices = {
        row.key: event_views.PriceView(row.key, row.name, row.color, row.price_minor, row.tax_rate)
        for row in Category.objects.filter(event_id=event_id)
    }
    found = []
    for position, section in enumerate(layout.sections):
        categories = section.seats["category"]
        used = {layout.categories[category] for category in set(categories)}
        offered = sorted((prices[key] for key in used if key in prices), key=lambda price: -price.price_minor)
        kind, count = Section.Kind.RESERVED, len(categories)
        found.append(event_views.SectionView(-1 - position, section.slug, section.name, kind, count, tuple(offered)))
    return [*found, *event_views.list_sections(event_id)]


def draft_plan_document(event_id: int) -> bytes:
    """Return the public plan that a draft would have, as JSON. Seats without a price are left out."""
    event = Event.objects.select_related("plan").defer("poster").get(pk=event_id)
    layout = _draft_layout(event)
    keys = dict(Category.objects.filter(event_id=event_id).values_list("key", "pk"))
    category_ids = [keys.get(name) for name in layout.categories]
    rows: list[tuple[Any, ...]] = []
    for position, section in enumerate(layout.sections):
        columns = {
            **section.seats,
            "section": [-1 - position] * len(section.seats["guid"]),
            "category": [category_ids[category] for category in section.seats["category"]],
        }
        seats = zip(*(columns[name] for name in COLUMNS), strict=True)
        rows += [seat for seat, category in zip(seats, columns["category"], strict=True) if category is not None]
    sections, categories = _draft_sections(event_id, layout), _categories_of(event)
    encoded = encode_drawing(event, sections, categories, rows, None)
    drawing = msgspec.json.decode(encoded, type=Drawing)
    return msgspec.json.encode(_plan_with(event, sections, categories, drawing))


def _draft_layout(event: Event) -> StoredLayout:
    return StoredLayout((), ()) if event.plan is None else stored_layout(event.plan.layout)


def _plan(slug: str) -> dict[str, Any]:
    event = Event.objects.defer("poster").get(slug=slug)
    # Before the seats, so that no older ones are kept for it.
    links = Section.categories.through.objects.filter(section__event=event)
    latest_link = links.aggregate(latest=Max("id"))["latest"]
    # One for each event, which the next one replaces: it may have megabytes.
    name = f"events:drawing.gz:{event_views.PLAN_FORMAT}:{event.pk}"
    kept = _kept_drawing(name)
    sections, categories = event_views.list_sections(event.pk), _categories_of(event)
    current = latest_link, [section.id for section in sections], [category.pk for category in categories]
    if kept is not None and (kept.latest_link, kept.section_ids, kept.category_ids) == current:
        return _plan_with(event, sections, categories, kept)
    rows = list(
        Seat.objects.filter(event=event)
        .order_by("id")
        .values_list(
            "guid", "section_id", "row", "number", "x", "y", "category_id", "accessible", "companion", "row_index"
        )
    )
    # Read again, since the seats may have others by now.
    sections, categories = event_views.list_sections(event.pk), _categories_of(event)
    encoded = encode_drawing(event, sections, categories, rows, latest_link)
    compressed = gzip.compress(encoded, _DRAWING_COMPRESSION, mtime=0)
    if len(compressed) <= DRAWING_BYTES_MAX:
        cache.set(name, compressed, PLAN_CACHE_SECONDS)
    return _plan_with(event, sections, categories, msgspec.json.decode(encoded, type=Drawing))


def _kept_drawing(name: str) -> Drawing | None:
    kept = cache.get(name)
    try:
        return msgspec.json.decode(gzip.decompress(kept), type=Drawing) if isinstance(kept, bytes) else None
    except (OSError, EOFError, zlib.error, msgspec.MsgspecError):  # It is damaged.
        return None


def _categories_of(event: Event) -> list[Category]:
    return list(Category.objects.filter(event=event))


def _plan_with(
    event: Event, sections: Sequence[event_views.SectionView], categories: Sequence[Category], drawing: Drawing
) -> dict[str, Any]:
    policy = event_views.get_event_by_id(event.pk).price_policy
    category_at = {category.pk: index for index, category in enumerate(categories)}
    return {
        "event": event.slug,
        "currency": event.currency,
        "size": drawing.size,
        "seat_radius": drawing.seat_radius,
        "categories": [
            {
                "key": category.key,
                "name": category.name,
                "color": category.color,
                "price_minor": category.price_minor,
                "full_price_minor": policy.place_total_minor(category.price_minor, category.tax_rate),
            }
            for category in categories
        ],
        "areas": drawing.areas,
        "sections": [
            {
                "id": section.slug,
                "name": section.name,
                "kind": section.kind,
                "capacity": section.capacity,
                "needs_access": section.needs_access,
                "category": category_at.get(section.category_id) if section.category_id is not None else None,
                "outline": outline,
            }
            for section, outline in zip(sections, drawing.outlines, strict=True)
        ],
        "seats": drawing.seats,
    }
