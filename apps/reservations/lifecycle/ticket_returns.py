"""Returns tickets of a confirmed reservation, some or all.

Locks in the usual order: the reservation, its seats by id, and last the general-admission rows by id. The caller has
locked the order before. Returned tickets are no longer counted, not even by caps; their lines are kept with the time of
the return.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from apps.kernel.db import sql
from apps.reservations.errors import TicketsNotReturnable
from apps.reservations.inventory.log import Change, record
from apps.reservations.lifecycle import after_commit, gate_counts, release
from apps.reservations.lifecycle.changes import StockChange
from apps.reservations.models import BlockedFor, InventoryChange, Reservation

_PACKAGE = "apps.reservations"
_read_clock = sql.load(_PACKAGE, "read_clock")
_unreturned_lines = sql.load(_PACKAGE, "unreturned_lines")
_lock_seats_waiting = sql.load(_PACKAGE, "lock_seats_waiting")
_free_taken_seats = sql.load(_PACKAGE, "free_taken_seats")
_return_lines = sql.load(_PACKAGE, "return_lines")
_split_lines = sql.load(_PACKAGE, "split_lines")
_lower_lines = sql.load(_PACKAGE, "lower_lines")
_lower_reservation = sql.load(_PACKAGE, "lower_reservation")
_insert_transitions = sql.load(_PACKAGE, "insert_transitions")
_block_seats = sql.load(_PACKAGE, "block_seats")
_keep_general_admission = sql.load(_PACKAGE, "keep_general_admission")

_Line = Sequence[Any]
"""Section id, seat id (None: general admission), quantity, price of one ticket."""


def return_tickets(
    reservation_id: UUID, quantities: Mapping[int, int], *, who: str, why: str, keep: bool = False
) -> Reservation:
    """Return the given quantity of each line (by line id) to the stock or, with `keep`, block it as house seats.

    The rest of the reservation stays confirmed; if nothing is left, it is canceled. Joins the caller's transaction.
    Raises ReservationNotFound, and TicketsNotReturnable, with nothing changed, if the reservation is not confirmed or a
    line has less than its quantity.
    """
    reservation = release.lock(reservation_id)
    with connection.cursor() as cursor:
        # Read after the lock: of two concurrent returns of one ticket, the second finds it returned.
        lines = {row[0]: row[1:] for row in _unreturned_lines.rows(cursor, reservation_id=reservation_id)}
        if reservation.status != Reservation.Status.CONFIRMED or not quantities:
            raise TicketsNotReturnable
        if any(not 1 <= count <= (lines[line][2] if line in lines else 0) for line, count in quantities.items()):
            raise TicketsNotReturnable
        returned = _by_section(lines, quantities)
        if all(quantities.get(line) == quantity for line, (_, _, quantity, _) in lines.items()):
            release.end(reservation, who=who, why=why)
        else:
            _return_some(cursor, reservation, lines, quantities, returned, who=who, why=why)
        if keep:
            _block_for_house(cursor, reservation, lines, quantities, returned, who=who, why=why)
    reservation.refresh_from_db()
    return reservation


def _by_section(lines: Mapping[int, _Line], quantities: Mapping[int, int]) -> dict[int, release.Returned]:
    sections: dict[int, release.Returned] = defaultdict(release.Returned)
    for line, count in quantities.items():
        section_id, seat_id, _, _ = lines[line]
        if seat_id is None:
            sections[section_id].tickets += count
        else:
            sections[section_id].seats += 1
    return sections


def _return_some(
    cursor: sql.Cursor,
    reservation: Reservation,
    lines: Mapping[int, _Line],
    quantities: Mapping[int, int],
    returned: Mapping[int, release.Returned],
    *,
    who: str,
    why: str,
) -> None:
    seats = _seats(lines, quantities)
    if seats:
        _lock_seats_waiting.rows(cursor, seat_ids=seats)
        freed = _free_taken_seats.count(cursor, seat_ids=seats, reservation_ids=[reservation.pk] * len(seats))
        if freed != len(seats):
            raise release.Stranded(f"{freed} of {len(seats)} seats still belonged to their reservation")
    ((now,),) = _read_clock.rows(cursor)
    _write_lines(cursor, lines, quantities, now)
    count = sum(quantities.values())
    cost_minor = sum(lines[line][3] * quantity for line, quantity in quantities.items())
    lowered = _lower_reservation.count(cursor, reservation_id=reservation.pk, count=count, cost_minor=cost_minor)
    assert lowered == 1, f"reservation {reservation.pk} has not more than {count} tickets"
    _insert_transitions.count(
        cursor,
        reservation_ids=[reservation.pk],
        from_statuses=[reservation.status],
        whos=[who[:120]],
        to_status=reservation.status,
        why=f"{count} returned: {why}"[:200],
        now=now,
    )
    release.release_general_admission(cursor, returned)
    # The reservation has not ended, so the counts are notified of the stock only.
    _notify_stock_changed(cursor, reservation, returned, 1)


def _write_lines(cursor: sql.Cursor, lines: Mapping[int, _Line], quantities: Mapping[int, int], now: datetime) -> None:
    whole = [line for line, count in quantities.items() if count == lines[line][2]]
    parts = {line: count for line, count in quantities.items() if count < lines[line][2]}
    if whole:
        ended = _return_lines.count(cursor, line_ids=whole, now=now)
        assert ended == len(whole), f"{ended} of {len(whole)} lines returned"
    if parts:
        columns = {"line_ids": list(parts), "quantities": list(parts.values())}
        split, lowered = _split_lines.count(cursor, **columns, now=now), _lower_lines.count(cursor, **columns)
        assert split == lowered == len(parts), f"{split} and {lowered} of {len(parts)} lines split"


def _block_for_house(
    cursor: sql.Cursor,
    reservation: Reservation,
    lines: Mapping[int, _Line],
    quantities: Mapping[int, int],
    returned: Mapping[int, release.Returned],
    *,
    who: str,
    why: str,
) -> None:
    """Block the stock that was just returned, which is still locked, as house seats. It is never free for others, since
    both changes are in one commit."""
    seats = _seats(lines, quantities)
    if seats:
        kept = _block_seats.count(cursor, seat_ids=seats, blocked_for=BlockedFor.HOUSE)
        assert kept == len(seats), f"{kept} of {len(seats)} seats kept"
    counts = {section: returned[section].tickets for section in sorted(returned) if returned[section].tickets}
    if counts:
        kept = _keep_general_admission.count(cursor, section_ids=list(counts), quantities=list(counts.values()))
        assert kept == len(counts), f"tickets of {kept} of {len(counts)} sections kept"
    changes = [
        Change(lines[line][0], lines[line][1], quantities[line], "sold", BlockedFor.HOUSE) for line in quantities
    ]
    record(cursor, reservation.event_id, InventoryChange.Kind.BLOCKED, changes, who=who, why=why)
    _notify_stock_changed(cursor, reservation, returned, -1)


def _notify_stock_changed(
    cursor: sql.Cursor, reservation: Reservation, moved: Mapping[int, release.Returned], each: int
) -> None:
    """After the commit, update the counts with stock that was put on sale (`each` 1) or taken off it (-1)."""
    change = StockChange(
        reservation.event_id,
        {section: each * (back.seats + back.tickets) for section, back in moved.items()},
        gate_counts.read_transaction_id(cursor),
    )
    transaction.on_commit(lambda: after_commit.notify_stock_changed([change]), robust=True)


def _seats(lines: Mapping[int, _Line], quantities: Mapping[int, int]) -> list[int]:
    return sorted(lines[line][1] for line in quantities if lines[line][1] is not None)
