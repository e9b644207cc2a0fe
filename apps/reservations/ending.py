"""How a reservation ends: released by its owner, canceled, or swept when its deadline has passed.

Locks: the reservations by id, then their seats by id, then general-admission rows by id. The entry's slot is freed
afterwards in a transaction of its own: entries come before reservations in the order of locks.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction

from apps.reservations import aftermath
from apps.reservations.errors import PaymentInProgress, ReservationNotFound
from apps.reservations.models import Reservation
from apps.reservations.slots import refresh_slots
from ticketing.kernel import sql, transactions

logger = logging.getLogger(__name__)

SWEEP_MAX = 500
"""Reservations per transaction: a buyer waits behind a sweep's general-admission row only as long as this takes."""
LOCK_WAIT_MS = 2_000

_PACKAGE = "apps.reservations"
_read_clock = sql.load(_PACKAGE, "read_clock")
_lock_reservation = sql.load(_PACKAGE, "lock_reservation")
_lock_lapsed = sql.load(_PACKAGE, "lock_lapsed")
_lock_lapsed_of_events = sql.load(_PACKAGE, "lock_lapsed_of_events")
_lock_lapsed_of_events_waiting = sql.load(_PACKAGE, "lock_lapsed_of_events_waiting")
_reread_lapsed = sql.load(_PACKAGE, "reread_lapsed")
_live_lines = sql.load(_PACKAGE, "live_lines")
_lock_seats_waiting = sql.load(_PACKAGE, "lock_seats_waiting")
_lock_general_admission = sql.load(_PACKAGE, "lock_general_admission")
_free_taken_seats = sql.load(_PACKAGE, "free_taken_seats")
_give_back_general_admission = sql.load(_PACKAGE, "give_back_general_admission")
_end_lines = sql.load(_PACKAGE, "end_lines")
_end_reservations = sql.load(_PACKAGE, "end_reservations")
_insert_transitions = sql.load(_PACKAGE, "insert_transitions")
_insert_cleanup_log = sql.load(_PACKAGE, "insert_cleanup_log")


class Stranded(RuntimeError):
    """What a reservation's lines say and what the inventory says differ: nothing was changed, the auditor tells."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    reservations: int
    seats: int
    places: int
    """General admission."""


@dataclass(slots=True)
class Returned:
    """What one section got back."""

    seats: int = 0
    places: int = 0
    by: dict[UUID, int] = field(default_factory=dict)
    """How many of both each reservation gave."""


@dataclass(frozen=True, slots=True)
class _Expired:
    """What one transaction of a sweep came to."""

    result: SweepResult
    entry_ids: Sequence[UUID] = ()
    """Whose slots that changes."""
    endings: Sequence[aftermath.Ended] = ()


def sweep(
    limit: int = SWEEP_MAX,
    event_ids: Sequence[int] | None = None,
    by: str = "sweep",
    *,
    waiting: bool = False,
    lock_ms: int = LOCK_WAIT_MS,
    write: transactions.Write = transactions.write_here,
) -> SweepResult:
    """Up to `limit` reservations past their deadline are expired and what they held is free; of these events, or of
    all. A transaction of its own. Any number of sweeps may run at once: each passes over what another has.

    `waiting`, with `event_ids`: waits for those that somebody else is deciding instead. Reservations are the first
    locks of whoever has them (or come after an order, which no sweep wants), and are waited for in id order. One that
    cannot give back what it holds is left as it is, and logged.
    """
    found: list[UUID] = []
    try:
        with write(lock_ms=lock_ms) as cursor:
            if event_ids is None:
                rows = _lock_lapsed.rows(cursor, limit=limit)
            else:
                lock_them = _lock_lapsed_of_events_waiting if waiting else _lock_lapsed_of_events
                rows = lock_them.rows(cursor, limit=limit, event_ids=list(event_ids))
            found = [row[0] for row in rows]
            expired = _expire(cursor, found, by)
    except Stranded:
        # One broken reservation must not keep all others from ending. Each in a transaction of its own now: together
        # they would lock the seats of one after the general-admission row of another.
        logger.exception("a sweep met a stranded reservation and goes on one by one")
        return _sweep_one_by_one(found, by, lock_ms, write)
    return _follow_up(expired, write)


def _follow_up(expired: _Expired, write: transactions.Write) -> SweepResult:
    """The sweep is committed: slots and copies are told."""
    aftermath.ended(expired.endings)
    if expired.entry_ids:
        refresh_slots(expired.entry_ids, write)
    return expired.result


def _sweep_one_by_one(found: Sequence[UUID], by: str, lock_ms: int, write: transactions.Write) -> SweepResult:
    total = SweepResult(0, 0, 0)
    for reservation_id in found:
        try:
            with write(lock_ms=lock_ms) as cursor:
                _lock_reservation.rows(cursor, reservation_id=reservation_id)
                expired = _expire(cursor, [reservation_id], by)
        except Stranded:
            logger.exception("reservation %s is stranded: it cannot give back what it holds", reservation_id)
            continue
        swept = _follow_up(expired, write)
        total = SweepResult(
            total.reservations + swept.reservations, total.seats + swept.seats, total.places + swept.places
        )
    return total


def _expire(cursor: sql.Cursor, locked: Sequence[UUID], by: str) -> _Expired:
    """Those of these locked reservations that are past their deadline have ended, and the cleanup log says so.
    Raises Stranded."""
    begun = time.monotonic()
    # Status and deadline are read again: the list was made before the locks.
    lapsed = _reread_lapsed.rows(cursor, reservation_ids=list(locked)) if locked else []
    if not lapsed:
        return _Expired(SweepResult(0, 0, 0))
    statuses = {row[0]: row[1] for row in lapsed}
    now, sections = give_back(cursor, statuses, Reservation.Status.EXPIRED, who=by, why="deadline passed")
    ordered = sorted(sections)
    _insert_cleanup_log.count(
        cursor,
        section_ids=ordered,
        places=[sections[section].places for section in ordered],
        seats=[sections[section].seats for section in ordered],
        reservations=[len(sections[section].by) for section in ordered],
        duration_ms=int((time.monotonic() - begun) * 1000),
        swept_by=by[:40],
        now=now,
    )
    swept = SweepResult(
        len(statuses),
        sum(returned.seats for returned in sections.values()),
        sum(returned.places for returned in sections.values()),
    )
    events = {row[0]: row[3] for row in lapsed}
    return _Expired(swept, [row[2] for row in lapsed], _endings(events, sections))


def _endings(events: Mapping[UUID, int], sections: Mapping[int, Returned]) -> list[aftermath.Ended]:
    """What each of these reservations gave back, told by reservation instead of by section."""
    returned: dict[UUID, dict[int, int]] = {reservation_id: {} for reservation_id in events}
    for section_id, back in sections.items():
        for reservation_id, count in back.by.items():
            returned[reservation_id][section_id] = count
    return [aftermath.Ended(events[one], one, returned[one]) for one in events]


def sweep_all(by: str = "sweep") -> int:
    """Everything past its deadline at this moment is expired, batch after batch; how many reservations."""
    total = 0
    while count := sweep(by=by).reservations:
        total += count
        if count < SWEEP_MAX:
            break
    return total


def sweep_unswept() -> int:
    """The same, as the net that needs only PostgreSQL: the maintenance loop's. It passes over what beat's sweep has."""
    return sweep_all(by="maintenance")


def release(reservation_id: UUID, who: str, why: str = "released") -> None:
    """The reservation is canceled and what it held is free; one that had ended already is left as it was.

    Raises ReservationNotFound, and PaymentInProgress once paying has begun: then the order is canceled instead.
    """
    with transactions.write():
        reservation = lock(reservation_id)
        if reservation.status == Reservation.Status.PAYING:
            raise PaymentInProgress
        if reservation.status == Reservation.Status.CONFIRMED:
            raise PaymentInProgress("This reservation is paid; cancel its order instead.")
        end(reservation, who=who, why=why)


def cancel(reservation_id: UUID, *, who: str, why: str) -> None:
    """A live or confirmed reservation is canceled and what it held is free again; one that had ended already is left
    as it was. Joins the caller's transaction. Raises ReservationNotFound."""
    end(lock(reservation_id), who=who, why=why)


def end(reservation: Reservation, *, who: str, why: str) -> None:
    """The same for a reservation the caller has locked."""
    if reservation.status in (Reservation.Status.CANCELED, Reservation.Status.EXPIRED):
        return
    with connection.cursor() as cursor:
        statuses = {reservation.pk: reservation.status}
        _, sections = give_back(cursor, statuses, Reservation.Status.CANCELED, who=who, why=why)
    entry_id, endings = reservation.entry_id, _endings({reservation.pk: reservation.event_id}, sections)
    transaction.on_commit(lambda: aftermath.ended(endings), robust=True)
    transaction.on_commit(lambda: refresh_slots([entry_id]), robust=True)


def lock(reservation_id: UUID) -> Reservation:
    """The reservation as it is under its lock. Joins the caller's transaction. Raises ReservationNotFound."""
    transactions.require()
    with connection.cursor() as cursor:
        if not _lock_reservation.rows(cursor, reservation_id=reservation_id):
            raise ReservationNotFound
    return Reservation.objects.get(pk=reservation_id)


def give_back(
    cursor: sql.Cursor, statuses: Mapping[UUID, str], to_status: str, *, who: str, why: str
) -> tuple[datetime, dict[int, Returned]]:
    """These locked reservations end with `to_status`; their seats and places are free. The moment, and what each
    section got back."""
    ids = sorted(statuses)
    lines = _live_lines.rows(cursor, reservation_ids=ids)
    sections: dict[int, Returned] = defaultdict(Returned)
    seats: list[tuple[int, UUID]] = []
    places: dict[int, int] = defaultdict(int)
    for _, reservation_id, section_id, seat_id, quantity in lines:
        returned = sections[section_id]
        returned.by[reservation_id] = returned.by.get(reservation_id, 0) + quantity
        if seat_id is None:
            places[section_id] += quantity
            returned.places += quantity
        else:
            seats.append((seat_id, reservation_id))
            returned.seats += 1
    if seats:
        _lock_seats_waiting.rows(cursor, seat_ids=sorted(seat for seat, _ in seats))
        freed = _free_taken_seats.count(
            cursor, seat_ids=[seat for seat, _ in seats], reservation_ids=[owner for _, owner in seats]
        )
        if freed != len(seats):
            raise Stranded(f"{freed} of {len(seats)} seats were still their reservation's")
    ((now,),) = _read_clock.rows(cursor)
    _end_lines.count(cursor, reservation_ids=ids)
    _end_reservations.count(cursor, reservation_ids=ids, to_status=to_status, now=now)
    _insert_transitions.count(
        cursor,
        reservation_ids=ids,
        from_statuses=[statuses[reservation_id] for reservation_id in ids],
        whos=[who[:120]] * len(ids),
        to_status=to_status,
        why=why[:200],
        now=now,
    )
    if places:
        # The hot row last: a buyer waits behind it only for the commit.
        ordered = sorted(places)
        _lock_general_admission.rows(cursor, section_ids=ordered)
        given = _give_back_general_admission.count(
            cursor, section_ids=ordered, quantities=[places[section] for section in ordered]
        )
        if given != len(ordered):
            raise Stranded(f"{given} of {len(ordered)} general-admission rows could give back")
    return now, sections
