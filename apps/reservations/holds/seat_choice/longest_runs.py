"""How many seats side by side the last large searches found, kept for a moment in each process.

In an event with tens of thousands of single free seats (every other one blocked), a party is searched for side by side
among thousands of them. Without this, every batch with a party would repeat a search that takes 0.1 s, and delay all
other holds of the event. Seats that have become free side by side in that moment are not found: the party then sits
close together elsewhere. Smaller searches are repeated each time.
"""

import time
from typing import NamedTuple

SEATS_MIN = 2_000
"""What a search of fewer seats found is not kept."""
SECONDS = 2.0
ENTRIES_MAX = 10_000


class _Found(NamedTuple):
    longest: int
    seats: int
    until: float


_found: dict[tuple[int, tuple[int, ...]], _Found] = {}


def keep(section_id: int, category_ids: tuple[int, ...], longest: int, seats: int) -> None:
    """Keep that at most `longest` of so many free `seats` of these categories (none: of all) are side by side."""
    if len(_found) >= ENTRIES_MAX:
        _found.clear()
    _found[section_id, category_ids] = _Found(longest, seats, time.monotonic() + SECONDS)


def seats_without(section_id: int, category_ids: tuple[int, ...], quantity: int) -> int | None:
    """Return among how many seats a search has just found no `quantity` side by side; None if it is not known."""
    found = _found.get((section_id, category_ids))
    if found is None or found.longest >= quantity or found.until < time.monotonic():
        return None
    return found.seats
