"""A parsed plan before its arrangement: the file's content, checked, in absolute coordinates."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from django.utils.text import slugify

from apps.events.plans.arrangement import Point, RawRow, Stage, arrange_section, seating_axis
from apps.events.plans.geometry import area_outline
from apps.events.plans.plan import Area, Plan, PlanCategory, PlanSection

SLUG_CHARACTERS_MAX = 80
# Words in the texts of a plan's areas that mark the stage or field.
_STAGE_WORDS = frozenset(
    {"stage", "bühne", "buehne", "scène", "scene", "escenario", "palco", "screen", "leinwand", "court", "pitch"}
    | {"field", "spielfeld", "rink", "ring", "ice", "podium", "altar"}
)
_MARGIN = 20.0


@dataclass(frozen=True, slots=True)
class DraftSection:
    slug: str
    name: str
    rows: Sequence[RawRow]


@dataclass(frozen=True, slots=True)
class Draft:
    name: str
    size: tuple[float, float] | None
    categories: Sequence[PlanCategory]
    sections: Sequence[DraftSection]
    areas: Sequence[Area]
    notes: Sequence[str]


@dataclass(slots=True)
class SlugMaker:
    """Assigns unique section ids: the slug of the name, with a number from the second such section on."""

    _taken: set[str] = field(default_factory=set)

    def slug(self, name: str, fallback: str = "") -> str:
        stem = slugify(name) or slugify(fallback) or "section"
        stem = stem[: SLUG_CHARACTERS_MAX - 6].strip("-_") or "section"
        slug, number = stem, 1
        while slug in self._taken:
            number += 1
            slug = f"{stem}-{number}"
        self._taken.add(slug)
        return slug


def arrange(draft: Draft) -> Plan:
    """Return the draft as a plan: everything inside its size, rows ordered, neighbors and ranks assigned."""
    framed, (width, height) = _fit_to_size(draft)
    stage = _stage(framed.areas)
    axis = seating_axis(stage, [(seat.x, seat.y) for row in _rows(framed) for seat in row.seats])
    return Plan(
        name=framed.name,
        width=width,
        height=height,
        categories=tuple(framed.categories),
        sections=tuple(
            PlanSection(section.slug, section.name, arrange_section(section.rows, stage, axis))
            for section in framed.sections
        ),
        areas=tuple(framed.areas),
        notes=tuple(framed.notes),
    )


def _rows(draft: Draft) -> Iterator[RawRow]:
    for section in draft.sections:
        yield from section.rows


def _extent_points(draft: Draft) -> Iterator[Point]:
    for row in _rows(draft):
        for seat in row.seats:
            yield seat.x, seat.y
    for area in draft.areas:
        yield from area_outline(area)
        if area.text is not None:
            yield area.text.x, area.text.y


def _fit_to_size(draft: Draft) -> tuple[Draft, tuple[float, float]]:
    """Return the draft and its size. If the file's size is too small, move everything into a box that fits."""
    points = list(_extent_points(draft))
    if not points:
        return draft, draft.size or (100.0, 100.0)
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    top, bottom = min(y for _, y in points), max(y for _, y in points)
    if draft.size is not None and left >= 0 and top >= 0 and right <= draft.size[0] and bottom <= draft.size[1]:
        return draft, draft.size
    dx, dy = _MARGIN - left, _MARGIN - top
    sections = [
        replace(
            section,
            rows=[
                replace(row, seats=[replace(seat, x=seat.x + dx, y=seat.y + dy) for seat in row.seats])
                for row in section.rows
            ],
        )
        for section in draft.sections
    ]
    areas = [_move_area(area, dx, dy) for area in draft.areas]
    return replace(draft, sections=sections, areas=areas), (right - left + 2 * _MARGIN, bottom - top + 2 * _MARGIN)


def _stage(areas: Sequence[Area]) -> Stage | None:
    """Return the first area whose text names the stage. A text without a shape counts too, at its position."""
    for area in areas:
        words = area.text.text.casefold().replace("/", " ").split() if area.text else ()
        if not _STAGE_WORDS.isdisjoint(words):
            corners = area_outline(area) or [(area.x, area.y)]
            return Stage(
                min(x for x, _ in corners),
                min(y for _, y in corners),
                max(x for x, _ in corners),
                max(y for _, y in corners),
            )
    return None


def _move_area(area: Area, dx: float, dy: float) -> Area:
    text = area.text
    moved_text = None if text is None else replace(text, x=text.x + dx, y=text.y + dy)
    points = tuple((x + dx, y + dy) for x, y in area.points)
    return replace(area, x=area.x + dx, y=area.y + dy, points=points, text=moved_text)
