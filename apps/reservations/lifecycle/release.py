"""How a reservation ends: released by its owner, canceled, or swept when its deadline has passed.

Locks: the reservations by id, then their seats by id, then general-admission rows by id. The entry's slot is freed
afterwards in a transaction of its own: entries come before reservations in the order of locks.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction

from apps.kernel.db import model_rows, sql, transactions
from apps.reservations.errors import PaymentInProgress, ReservationNotFound
from apps.reservations.lifecycle import after_commit
from apps.reservations.lifecycle.changes import Ended
from apps.reservations.lifecycle.queue_slots import refresh_slots
from apps.reservations.models import Reservation

logger = logging.getLogger(__name__)

SWEEP_MAX = 500
"""Reservations per transaction: a buyer waits behind a sweep's general-admission row only as long as this takes."""
LOCK_WAIT_MS = 2_000
BOUNDED_LOCK_WAIT_MS = 200
"""Of a sweep whose time is bounded: one that waited longer for the first lock would have none left to go round it."""
HALF_LOCK_WAIT_MS = 100
"""Going round a lock that did not come: it is met again a few times."""
SKIP_SECONDS = 60.0
UNTRIED_SKIP_SECONDS = 5.0
"""For those beside a kept lock that were not tried alone before the time was up."""

_PACKAGE = "apps.reservations"
_read_clock = sql.load(_PACKAGE, "read_clock")
_lock_reservation = sql.load(_PACKAGE, "lock_reservation")
_lock_reservations_waiting = sql.load(_PACKAGE, "lock_reservations_waiting")
_lock_reservations_skipping = sql.load(_PACKAGE, "lock_reservations_skipping")
_lock_lapsed = sql.load(_PACKAGE, "lock_lapsed")
_lock_lapsed_of_event = sql.load(_PACKAGE, "lock_lapsed_of_event")
_lock_lapsed_of_event_waiting = sql.load(_PACKAGE, "lock_lapsed_of_event_waiting")
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
    found: int = field(default=0, compare=False)
    """How many it had locked, those counted in that somebody else had ended meanwhile,"""
    stranded: int = field(default=0, compare=False)
    """and those that could not give back what they hold."""


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
    endings: Sequence[Ended] = ()


def sweep(
    limit: int = SWEEP_MAX,
    event_id: int | None = None,
    by: str = "sweep",
    *,
    waiting: bool = False,
    until: float | None = None,
    lock_ms: int = LOCK_WAIT_MS,
    write: transactions.TransactionOpener = transactions.write_on_django,
) -> SweepResult:
    """Up to `limit` reservations past their deadline are expired and what they held is free; of this event, or of
    all. A transaction of its own. Any number of sweeps may run at once: each passes over what another has.

    `until`: it goes round kept locks, as `sweep_all`, but to this moment of the monotonic clock. `waiting`, of an event
    only: waits for those that somebody else is deciding instead. Reservations are the first locks of whoever has them
    (or come after an order, which no sweep wants), and are waited for in id order. One that cannot give back what it
    holds is left as it is, and logged.
    """
    assert event_id is not None or not waiting

    def lock_lapsed(cursor: sql.Cursor) -> list[UUID]:
        if event_id is None:
            return _ids(_lock_lapsed.rows(cursor, limit=limit, lapsed_seconds=0.0, apart_from=[]))
        lock = _lock_lapsed_of_event_waiting if waiting else _lock_lapsed_of_event
        return _ids(lock.rows(cursor, limit=limit, event_id=event_id))

    return _sweep(lock_lapsed, by, lock_ms, write, goes_round=until is not None, until=until)


def sweep_these(
    reservation_ids: Sequence[UUID],
    by: str,
    *,
    waiting: bool = False,
    goes_round: bool = False,
    until: float | None = None,
    lock_ms: int | None = None,
    write: transactions.TransactionOpener = transactions.write_on_django,
) -> SweepResult:
    """Those of these reservations that are past their deadline are expired, unless somebody else is deciding them. A
    transaction of its own. `waiting`: see `sweep`; `goes_round`: see `sweep_all`, `until` on the monotonic clock."""
    lock = _lock_reservations_waiting if waiting else _lock_reservations_skipping

    def lock_them(cursor: sql.Cursor) -> list[UUID]:
        return _ids(lock.rows(cursor, reservation_ids=list(reservation_ids)))

    lock_ms = LOCK_WAIT_MS if lock_ms is None else lock_ms
    return _sweep(lock_them, by, lock_ms, write, goes_round=goes_round, until=until)


def sweep_all(by: str = "sweep", *, lapsed_seconds: float = 0.0, seconds_max: float | None = None) -> int:
    """What lapsed so many seconds ago or more is expired, batch after batch until nothing is left or the time is up;
    how many reservations.

    It goes round what is in its way: one that cannot give back what it holds, or whose seat somebody keeps locked,
    keeps no other from ending. It is logged, and left alone for a minute.
    """
    total = 0
    lock_ms, until = LOCK_WAIT_MS, None
    if seconds_max is not None:
        lock_ms, until = BOUNDED_LOCK_WAIT_MS, time.monotonic() + seconds_max
    while True:
        apart_from = _skipped.ids()

        def lock_lapsed(cursor: sql.Cursor, apart_from: list[UUID] = apart_from) -> list[UUID]:
            rows = _lock_lapsed.rows(cursor, limit=SWEEP_MAX, lapsed_seconds=lapsed_seconds, apart_from=apart_from)
            return _ids(rows)

        swept = _sweep(lock_lapsed, by, lock_ms, transactions.write_on_django, goes_round=True, until=until)
        total += swept.reservations
        if swept.found < SWEEP_MAX or _is_past(until):
            return total


def _sweep(
    lock: Callable[[sql.Cursor], list[UUID]],
    by: str,
    lock_ms: int,
    write: transactions.TransactionOpener,
    *,
    goes_round: bool = False,
    until: float | None = None,
) -> SweepResult:
    """One transaction over what `lock` has locked; where that fails, several over parts of it."""
    found: list[UUID] = []
    try:
        with write(lock_ms=lock_ms) as cursor:
            found = lock(cursor)
            expired = _expire(cursor, found, by)
    except Stranded as error:
        # One broken reservation must not keep all others from ending.
        in_the_way: Exception = error
    except transactions.FAILURES as error:
        # Neither must a lock that somebody keeps.
        if not goes_round or not found or not transactions.is_transient(error):
            raise
        in_the_way = error
    else:
        after_commit.notify_ended(expired.endings)
        if expired.entry_ids:
            _refresh_slots(expired.entry_ids, lock_ms, write)
        return replace(expired.result, found=len(found))
    if len(found) > 1 and _is_past(until):
        # Met again soon. The time of whoever sweeps is bounded, however many wait for one lock.
        logger.warning("%s reservations keep what they hold: %s", len(found), in_the_way)
        for one in found:
            _skipped.put(one, UNTRIED_SKIP_SECONDS)
        return SweepResult(0, 0, 0, found=len(found))
    if len(found) > 1:
        # Each half in a transaction of its own, so what is in the way is alone after a few of them.
        middle = len(found) // 2
        halves = [
            sweep_these(
                half, by, goes_round=goes_round, until=until, lock_ms=min(lock_ms, HALF_LOCK_WAIT_MS), write=write
            )
            for half in (found[:middle], found[middle:])
        ]
        return replace(_sum(halves), found=len(found))
    if isinstance(in_the_way, Stranded):
        logger.error("reservation %s is stranded, it cannot give back what it holds: %s", found[0], in_the_way)
    else:
        logger.warning("reservation %s keeps what it holds: its locks do not come: %s", found[0], in_the_way)
    _skipped.put(found[0], SKIP_SECONDS)
    return SweepResult(0, 0, 0, found=len(found), stranded=int(isinstance(in_the_way, Stranded)))


def _is_past(until: float | None) -> bool:
    return until is not None and time.monotonic() >= until


def _refresh_slots(entry_ids: Sequence[UUID], lock_ms: int, write: transactions.TransactionOpener) -> None:
    """The slots of what was swept, whose end is committed: an entry that somebody keeps locked must not keep others
    from being swept. Its slot is free by its own deadline then."""
    try:
        refresh_slots(entry_ids, write, lock_ms=lock_ms)
    except transactions.FAILURES as error:
        if not transactions.is_transient(error):
            raise
        logger.warning("the slots of %s swept reservations wait for their own deadlines: %s", len(entry_ids), error)


class _SkipList:
    """Reservations that a sweep of this process could not end a moment ago: the longest overdue are taken first, and
    without this they would be taken again and again before all others."""

    def __init__(self) -> None:
        self._until: dict[UUID, float] = {}

    def put(self, reservation_id: UUID, seconds: float) -> None:
        self._until[reservation_id] = time.monotonic() + seconds

    def ids(self) -> list[UUID]:
        now = time.monotonic()
        self._until = {one: until for one, until in self._until.items() if until > now}
        return sorted(self._until)


_skipped = _SkipList()


def _ids(rows: Sequence[tuple[UUID]]) -> list[UUID]:
    return sorted(row[0] for row in rows)


def _sum(results: Sequence[SweepResult]) -> SweepResult:
    return SweepResult(
        sum(result.reservations for result in results),
        sum(result.seats for result in results),
        sum(result.places for result in results),
        stranded=sum(result.stranded for result in results),
    )


def _expire(cursor: sql.Cursor, locked: Sequence[UUID], by: str) -> _Expired:
    """Those of these locked reservations that are past their deadline have ended, and the cleanup log says so.
    Raises Stranded."""
    begun = time.monotonic()
    # Status and deadline are read again: the list was made before the locks.
    lapsed = _reread_lapsed.rows(cursor, reservation_ids=list(locked)) if locked else []
    if not lapsed:
        return _Expired(SweepResult(0, 0, 0))
    statuses = {row[0]: row[1] for row in lapsed}
    now, sections = _end_all_but_places(cursor, statuses, Reservation.Status.EXPIRED, who=by, why="deadline passed")
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
    release_places(cursor, sections)
    swept = SweepResult(
        len(statuses),
        sum(returned.seats for returned in sections.values()),
        sum(returned.places for returned in sections.values()),
    )
    events = {row[0]: row[3] for row in lapsed}
    return _Expired(swept, [row[2] for row in lapsed], _endings(events, sections, lapsed=True))


def _endings(events: Mapping[UUID, int], sections: Mapping[int, Returned], *, lapsed: bool = False) -> list[Ended]:
    """What each of these reservations gave back, told by reservation instead of by section."""
    returned: dict[UUID, dict[int, int]] = {reservation_id: {} for reservation_id in events}
    for section_id, back in sections.items():
        for reservation_id, count in back.by.items():
            returned[reservation_id][section_id] = count
    return [Ended(events[one], one, returned[one], lapsed) for one in events]


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


def cancel_pending(event_id: int, limit: int, *, who: str, why: str) -> int:
    """Up to `limit` holds of the event that nobody has begun to pay for are canceled; how many. Each in a transaction
    of its own; one whose payment begins at this moment is left to its order."""
    held = Reservation.objects.filter(event_id=event_id, status=Reservation.Status.PENDING_PAYMENT).order_by("pk")
    ended = 0
    for reservation_id in list(held.values_list("pk", flat=True)[:limit]):
        with suppress(PaymentInProgress):
            release(reservation_id, who, why)
            ended += 1
    return ended


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
        _, sections = end_reservations(cursor, statuses, Reservation.Status.CANCELED, who=who, why=why)
    entry_id, endings = reservation.entry_id, _endings({reservation.pk: reservation.event_id}, sections)
    transaction.on_commit(lambda: after_commit.notify_ended(endings), robust=True)
    transaction.on_commit(lambda: refresh_slots([entry_id]), robust=True)


def lock(reservation_id: UUID) -> Reservation:
    """The reservation as it is under its lock. Joins the caller's transaction. Raises ReservationNotFound."""
    transactions.require_transaction()
    with connection.cursor() as cursor:
        found = model_rows.build_instances(Reservation, _lock_reservation.rows(cursor, reservation_id=reservation_id))
    if not found:
        raise ReservationNotFound
    return found[0]


def end_reservations(
    cursor: sql.Cursor, statuses: Mapping[UUID, str], to_status: str, *, who: str, why: str
) -> tuple[datetime, dict[int, Returned]]:
    """These locked reservations end with `to_status`; their seats and places are free. The moment, and what each
    section got back."""
    now, sections = _end_all_but_places(cursor, statuses, to_status, who=who, why=why)
    release_places(cursor, sections)
    return now, sections


def _end_all_but_places(
    cursor: sql.Cursor, statuses: Mapping[UUID, str], to_status: str, *, who: str, why: str
) -> tuple[datetime, dict[int, Returned]]:
    ids = sorted(statuses)
    lines = _live_lines.rows(cursor, reservation_ids=ids)
    sections: dict[int, Returned] = defaultdict(Returned)
    seats: list[tuple[int, UUID]] = []
    for _, reservation_id, section_id, seat_id, quantity in lines:
        returned = sections[section_id]
        returned.by[reservation_id] = returned.by.get(reservation_id, 0) + quantity
        if seat_id is None:
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
    return now, sections


def release_places(cursor: sql.Cursor, sections: Mapping[int, Returned]) -> None:
    """What these sections got back of general admission is free. The very last thing a transaction does: a buyer waits
    behind these hot rows only for the commit."""
    places = {section: sections[section].places for section in sorted(sections) if sections[section].places}
    if not places:
        return
    ordered = list(places)
    _lock_general_admission.rows(cursor, section_ids=ordered)
    given = _give_back_general_admission.count(cursor, section_ids=ordered, quantities=list(places.values()))
    if given != len(ordered):
        raise Stranded(f"{given} of {len(ordered)} general-admission rows could give back")
