"""What replaces an expired hold: the same tickets if they are still free, else the nearest equivalent.

Read without locks: it promises nothing, and the hold decides.
"""

from collections import defaultdict
from dataclasses import dataclass

from django.db.models import Q

from apps.events import facade as events
from apps.reservations.holds.seat_choice.best_available import BestAvailable, FreeSeatPool
from apps.reservations.holds.seat_choice.free_runs import FreeSeat
from apps.reservations.inventory.availability import free_counts
from apps.reservations.models import SeatInventory
from apps.reservations.selectors import HeldSeat, ReservationView

SEATS_READ_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Equivalent:
    """Tickets that are free now."""

    is_same: bool
    """Whether they are exactly those of the hold."""
    seats: tuple[events.SeatView, ...]
    general_admission: tuple[tuple[str, int], ...]
    """Section names and quantities."""


def find_equivalent(ended: ReservationView) -> Equivalent | None:
    """Return tickets like those of the ended hold: the same seats, else as many of the same section and category, side
    by side if possible. None if some part of the hold has no equivalent left."""
    free = free_counts(held.section_pk for held in ended.general_admission)
    if any(free[held.section_pk] < held.quantity for held in ended.general_admission):
        return None
    tickets = tuple((held.section_name, held.quantity) for held in ended.general_admission)
    own = [seat.seat_pk for seat in ended.seats]
    # Until the sweep, a moment after the deadline, its own seats are still held by it.
    available = SeatInventory.objects.filter(
        Q(status=SeatInventory.Status.AVAILABLE) | Q(status=SeatInventory.Status.HELD, reservation_id=ended.id)
    )
    if available.filter(pk__in=own).count() == len(own):
        return Equivalent(True, _views(own), tickets)
    if SeatInventory.objects.filter(Q(accessible=True) | Q(companion=True), pk__in=own).exists():
        return None  # Which spaces suit this party, only its members know.
    groups: dict[tuple[int, str], list[HeldSeat]] = defaultdict(list)
    for seat in ended.seats:
        groups[seat.section_pk, seat.category].append(seat)
    chosen: list[int] = []
    for (section_id, category), seats in groups.items():
        category_id = events.category_id(ended.event_id, category)
        rows = available.filter(section_id=section_id, category_id=category_id).order_by("rank", "pk")
        fields = rows.values_list(
            "pk", "section_id", "row_index", "place_index", "rank", "category_id", "accessible", "companion"
        )
        pool = FreeSeatPool(FreeSeat(*row) for row in fields[:SEATS_READ_MAX])
        found = pool.choose(BestAvailable(section_id, len(seats), (category_id,)))
        if found is None:
            return None
        chosen += [seat.seat_id for seat in found]
    return Equivalent(False, _views(chosen), tickets)


def _views(seat_ids: list[int]) -> tuple[events.SeatView, ...]:
    found = events.seats_by_id(seat_ids)
    return tuple(found[seat_id] for seat_id in sorted(seat_ids) if seat_id in found)
