"""Areas: the seats of one price in one section. A request without a section may sit in thousands of them."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple


class Area(NamedTuple):
    """The seats of one price in one section."""

    section_id: int
    category_id: int
    price_minor: int
    """The category's price when the request was resolved."""


class Candidate(NamedTuple):
    """An area, or several areas of one section."""

    place: int
    """In the order of preference."""
    section_id: int
    category_ids: tuple[int, ...]


class Areas(tuple[Area, ...]):
    """Areas, the preferred one first. Many requests of an event share one object, so that what follows from thousands
    of areas is computed once."""

    @cached_property
    def section_ids(self) -> tuple[int, ...]:
        """Their sections, each once, in the order of the areas."""
        return tuple(self.category_ids_by_section)

    @cached_property
    def category_ids_by_section(self) -> Mapping[int, tuple[int, ...]]:
        """The categories of each section, sorted; the sections in the order of the areas."""
        found: dict[int, list[int]] = {}
        for area in self:
            found.setdefault(area.section_id, []).append(area.category_id)
        return {section_id: tuple(sorted(categories)) for section_id, categories in found.items()}

    @cached_property
    def area_candidates(self) -> Sequence[Candidate]:
        return [Candidate(at, area.section_id, (area.category_id,)) for at, area in enumerate(self)]

    @cached_property
    def section_candidates(self) -> Sequence[Candidate]:
        return [Candidate(at, *section) for at, section in enumerate(self.category_ids_by_section.items())]

    @cached_property
    def area_at(self) -> Mapping[tuple[int, int], int]:
        """The index of each area by its section and category."""
        return {(area.section_id, area.category_id): at for at, area in enumerate(self)}

    @cached_property
    def section_at(self) -> Mapping[int, int]:
        """The index of each section among the sections."""
        return {section_id: at for at, section_id in enumerate(self.category_ids_by_section)}

    @cached_property
    def price_by_category(self) -> Mapping[int, int]:
        return {area.category_id: area.price_minor for area in self}

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash


NO_AREAS = Areas()
