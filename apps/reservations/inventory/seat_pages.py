"""Pages of a section's seats: a list of thousands of seats would take long to render, and to read."""

from dataclasses import dataclass, replace

from apps.events import facade as events

SEATS_MAX = 600
"""Seats on a page."""
_DIGITS_MAX = 5


@dataclass(frozen=True, slots=True)
class SeatPage:
    """One page of the seats of a section. Its name contains the section's slug, so that the name of a page of another
    section is recognized."""

    section: str
    number: int
    seat_count: int
    """Of the section."""

    @property
    def count(self) -> int:
        return max(1, -(-self.seat_count // SEATS_MAX))

    @property
    def first(self) -> int:
        """The number of the page's first seat in the section, from 1."""
        return (self.number - 1) * SEATS_MAX + 1

    @property
    def last(self) -> int:
        return min(self.number * SEATS_MAX, self.seat_count)

    @property
    def name(self) -> str:
        return f"{self.section}.{self.number}"

    @property
    def previous(self) -> str:
        """The name of the page before this one, or empty."""
        return replace(self, number=self.number - 1).name if self.number > 1 else ""

    @property
    def next(self) -> str:
        return replace(self, number=self.number + 1).name if self.number < self.count else ""


def find_page(name: str, section: events.SectionView) -> SeatPage:
    """Return the section's page of this name; its first one if the name is of no page of this section, and its last one
    if the number is too high."""
    first = SeatPage(section.slug, 1, section.capacity)
    slug, _, number = name.rpartition(".")
    if slug != section.slug or not (number.isascii() and number.isdigit() and len(number) <= _DIGITS_MAX):
        return first
    return replace(first, number=min(max(int(number), 1), first.count))
