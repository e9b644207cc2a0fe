"""The end of a reservation: released by its owner, canceled, or swept after its deadline.

Locks: the reservations by id, then their seats by id, then general-admission rows by id. The entry's slot is freed
afterwards in a separate transaction, since entries precede reservations in the lock order.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import accumulate
from typing import Any
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
"""Reservations per transaction, which bounds how long a buyer waits for a general-admission row."""
SWEEP_TICKETS_MAX = 5_000
"""Seats and tickets per transaction: large reservations that lapse together delay neither other sweeps nor holds."""
LOCK_WAIT_MS = 2_000
BOUNDED_LOCK_WAIT_MS = 200
"""Lock timeout of a sweep with bounded time: a longer wait for one lock would leave no time to skip it."""
HALF_LOCK_WAIT_MS = 100
"""Lock timeout while splitting a batch, which waits for the same lock several times."""
SKIP_SECONDS = 60.0
UNTRIED_SKIP_SECONDS = 5.0
"""Skip time of reservations in a failed batch that were not tried alone before the time was up."""

_PACKAGE = "apps.reservations"
_read_clock_and_transaction = sql.load(_PACKAGE, "read_clock_and_transaction")
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
_release_general_admission = sql.load(_PACKAGE, "release_general_admission")
_end_lines = sql.load(_PACKAGE, "end_lines")
_end_reservations = sql.load(_PACKAGE, "end_reservations")
_insert_transitions = sql.load(_PACKAGE, "insert_transitions")
_insert_cleanup_log = sql.load(_PACKAGE, "insert_cleanup_log")


class Stranded(RuntimeError):
    """A reservation's lines and the inventory disagree. Nothing was changed; the auditor reports it."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    reservations: int
    seats: int
    tickets: int
    """General-admission tickets."""
    found: int = field(default=0, compare=False)
    """Reservations that were locked, including those that another process had ended meanwhile."""
    stranded: int = field(default=0, compare=False)
    """Reservations whose stock could not be released."""
    left: int = field(default=0, compare=False)
    """Overdue reservations that the next sweep ends: with them this one would have had too many seats and tickets."""


@dataclass(slots=True)
class Returned:
    """The stock returned to one section."""

    seats: int = 0
    tickets: int = 0
    by: dict[UUID, int] = field(default_factory=dict)
    """The number of seats and tickets returned by each reservation."""


@dataclass(frozen=True, slots=True)
class _Expired:
    """The result of one transaction of a sweep."""

    result: SweepResult
    entry_ids: Sequence[UUID] = ()
    """Entries whose slots must be refreshed."""
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
    """Expire up to `limit` overdue reservations of this event, or of all, and release their stock. Own transaction.

    Any number of sweeps may run concurrently: each skips rows that another has locked. With `until` (monotonic clock)
    it splits a batch that meets a lock timeout, like `sweep_all`, until that time. With `waiting` (one event only) it
    waits for locked reservations instead of skipping them. That cannot deadlock: each transaction locks reservations
    first (or after an order, which no sweep locks) and waits for them in id order. A reservation whose
    stock cannot be released is left unchanged and logged.
    """
    assert event_id is not None or not waiting

    def lock_lapsed(cursor: sql.Cursor) -> list[UUID]:
        if event_id is None:
            return _ids(_lock_lapsed.rows(cursor, limit=limit, lapsed_seconds=0.0, apart_from=[]))
        lock = _lock_lapsed_of_event_waiting if waiting else _lock_lapsed_of_event
        return _ids(lock.rows(cursor, limit=limit, event_id=event_id))

    return _sweep(lock_lapsed, by, lock_ms, write, splits=until is not None, until=until)


def sweep_these(
    reservation_ids: Sequence[UUID],
    by: str,
    *,
    waiting: bool = False,
    splits: bool = False,
    until: float | None = None,
    lock_ms: int | None = None,
    write: transactions.TransactionOpener = transactions.write_on_django,
) -> SweepResult:
    """Expire those of these reservations that are overdue and not locked by another transaction. Own transaction.

    `waiting`: see `sweep`. With `splits` a batch that meets a lock timeout is split, until the time `until`
    (monotonic clock).
    """
    lock = _lock_reservations_waiting if waiting else _lock_reservations_skipping

    def lock_them(cursor: sql.Cursor) -> list[UUID]:
        return _ids(lock.rows(cursor, reservation_ids=list(reservation_ids)))

    lock_ms = LOCK_WAIT_MS if lock_ms is None else lock_ms
    return _sweep(lock_them, by, lock_ms, write, splits=splits, until=until)


def sweep_all(by: str = "sweep", *, lapsed_seconds: float = 0.0, seconds_max: float | None = None) -> int:
    """Expire reservations overdue for `lapsed_seconds`, in batches, until none is left or the time is up; return how
    many.

    A reservation whose stock cannot be released, or whose seats stay locked, does not prevent others from ending: it is
    logged and skipped for a minute.
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

        swept = _sweep(lock_lapsed, by, lock_ms, transactions.write_on_django, splits=True, until=until)
        total += swept.reservations
        if (swept.found < SWEEP_MAX and not swept.left) or _is_past(until):
            return total


def _sweep(
    lock: Callable[[sql.Cursor], list[UUID]],
    by: str,
    lock_ms: int,
    write: transactions.TransactionOpener,
    *,
    splits: bool = False,
    until: float | None = None,
) -> SweepResult:
    """Expire the reservations that `lock` returns in one transaction or, if that fails, part by part in several."""
    found: list[UUID] = []
    try:
        with write(lock_ms=lock_ms) as cursor:
            found = lock(cursor)
            expired = _expire(cursor, found, by)
    except Stranded as error:
        # One inconsistent reservation must not prevent the others from ending.
        obstacle: Exception = error
    except transactions.FAILURES as error:
        # A lock held by another transaction must not prevent that either.
        if not splits or not found or not transactions.is_transient(error):
            raise
        obstacle = error
    else:
        after_commit.notify_ended(expired.endings)
        if expired.entry_ids:
            _refresh_slots(expired.entry_ids, lock_ms, write)
        return replace(expired.result, found=len(found))
    if len(found) > 1 and _is_past(until):
        # They are retried soon: the sweep's time is bounded even if many reservations wait for one lock.
        logger.warning("%s reservations were not released: %s", len(found), obstacle)
        for one in found:
            _skipped.put(one, UNTRIED_SKIP_SECONDS)
        return SweepResult(0, 0, 0, found=len(found))
    if len(found) > 1:
        # Try each half in its own transaction: after a few, the obstacle is alone.
        middle = len(found) // 2
        halves = [
            sweep_these(half, by, splits=splits, until=until, lock_ms=min(lock_ms, HALF_LOCK_WAIT_MS), write=write)
            for half in (found[:middle], found[middle:])
        ]
        return replace(_sum(halves), found=len(found))
    if isinstance(obstacle, Stranded):
        logger.error("reservation %s is stranded, its stock cannot be released: %s", found[0], obstacle)
    else:
        logger.warning("reservation %s was not released, its locks timed out: %s", found[0], obstacle)
    _skipped.put(found[0], SKIP_SECONDS)
    return SweepResult(0, 0, 0, found=len(found), stranded=int(isinstance(obstacle, Stranded)))


def _is_past(until: float | None) -> bool:
    return until is not None and time.monotonic() >= until


def _refresh_slots(entry_ids: Sequence[UUID], lock_ms: int, write: transactions.TransactionOpener) -> None:
    """Refresh the slots of swept reservations after the commit. A locked entry must not stop further sweeps: its slot
    is then freed by its own deadline."""
    try:
        refresh_slots(entry_ids, write, lock_ms=lock_ms)
    except transactions.FAILURES as error:
        if not transactions.is_transient(error):
            raise
        logger.warning("the slots of %s swept reservations wait for their own deadlines: %s", len(entry_ids), error)


class _SkipList:
    """Reservations that this process could not end a moment ago. Sweeps take the longest overdue first, and without
    this list would try the same ones again before all others."""

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
        sum(result.tickets for result in results),
        stranded=sum(result.stranded for result in results),
        left=sum(result.left for result in results),
    )


def _expire(cursor: sql.Cursor, locked: Sequence[UUID], by: str) -> _Expired:
    """Expire those of these locked reservations that are overdue, and write the cleanup log. Raises Stranded."""
    begun = time.monotonic()
    # Status and deadline are read again: the list was selected before the locks.
    overdue = _reread_lapsed.rows(cursor, reservation_ids=list(locked)) if locked else []
    lapsed = _within_tickets(overdue)
    if not lapsed:
        return _Expired(SweepResult(0, 0, 0))
    statuses = {row[0]: row[1] for row in lapsed}
    now, transaction_id, sections = _end_all_but_general_admission(
        cursor, statuses, Reservation.Status.EXPIRED, who=by, why="deadline passed"
    )
    ordered = sorted(sections)
    _insert_cleanup_log.count(
        cursor,
        section_ids=ordered,
        tickets=[sections[section].tickets for section in ordered],
        seats=[sections[section].seats for section in ordered],
        reservations=[len(sections[section].by) for section in ordered],
        duration_ms=int((time.monotonic() - begun) * 1000),
        swept_by=by[:40],
        now=now,
    )
    release_general_admission(cursor, sections)
    swept = SweepResult(
        len(statuses),
        sum(returned.seats for returned in sections.values()),
        sum(returned.tickets for returned in sections.values()),
        left=len(overdue) - len(lapsed),
    )
    events = {row[0]: row[3] for row in lapsed}
    return _Expired(swept, [row[2] for row in lapsed], _endings(events, sections, transaction_id, lapsed=True))


def _within_tickets(overdue: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the first of these rows, which have SWEEP_TICKETS_MAX seats and tickets together; at least one."""
    sums = accumulate(row[4] for row in overdue)
    return [row for row, tickets in zip(overdue, sums, strict=True) if tickets <= SWEEP_TICKETS_MAX] or list(
        overdue[:1]
    )


def _endings(
    events: Mapping[UUID, int], sections: Mapping[int, Returned], transaction_id: int, *, lapsed: bool = False
) -> list[Ended]:
    """Group the returned stock by reservation instead of by section."""
    returned: dict[UUID, dict[int, int]] = {reservation_id: {} for reservation_id in events}
    for section_id, back in sections.items():
        for reservation_id, count in back.by.items():
            returned[reservation_id][section_id] = count
    return [Ended(events[one], one, returned[one], lapsed, transaction_id) for one in events]


def release(reservation_id: UUID, who: str, why: str = "released") -> None:
    """Cancel the reservation and release its stock; an ended one stays unchanged.

    Raises ReservationNotFound, and PaymentInProgress once payment has begun: then its order must be canceled.
    """
    with transactions.write():
        reservation = lock(reservation_id)
        if reservation.status == Reservation.Status.PAYING:
            raise PaymentInProgress
        _end_unpaid(reservation, who, why)


def cancel_unpaid(reservation_id: UUID, who: str, why: str) -> None:
    """Cancel the reservation, also while it is being paid for, and release its stock; an ended one stays unchanged. A
    payment that arrives afterwards is refunded.

    Raises ReservationNotFound, and PaymentInProgress once it is paid: then its order must be canceled.
    """
    with transactions.write():
        _end_unpaid(lock(reservation_id), who, why)


def _end_unpaid(reservation: Reservation, who: str, why: str) -> None:
    """Cancel a reservation that the caller has locked, which may have been paid while the lock was awaited."""
    if reservation.status == Reservation.Status.CONFIRMED:
        raise PaymentInProgress("This reservation is paid; cancel its order instead.")
    end(reservation, who=who, why=why)


def cancel_pending(event_id: int, limit: int, *, who: str, why: str) -> int:
    """Cancel up to `limit` of the event's holds whose payment has not begun; return how many. Each in its own
    transaction; one whose payment begins meanwhile is left to its order."""
    held = Reservation.objects.filter(event_id=event_id, status=Reservation.Status.PENDING_PAYMENT).order_by("pk")
    ended = 0
    for reservation_id in list(held.values_list("pk", flat=True)[:limit]):
        with suppress(PaymentInProgress):
            release(reservation_id, who, why)
            ended += 1
    return ended


def cancel(reservation_id: UUID, *, who: str, why: str) -> None:
    """Cancel a live or confirmed reservation and release its stock; an ended one stays unchanged. Joins the caller's
    transaction, which has locked the reservation's order, if it has one, and decides about it. Raises
    ReservationNotFound."""
    end(lock(reservation_id), who=who, why=why)


def end(reservation: Reservation, *, who: str, why: str) -> None:
    """Cancel a reservation that the caller has locked, like `cancel`."""
    if reservation.status in (Reservation.Status.CANCELED, Reservation.Status.EXPIRED):
        return
    with connection.cursor() as cursor:
        statuses = {reservation.pk: reservation.status}
        transaction_id, sections = end_reservations(cursor, statuses, Reservation.Status.CANCELED, who=who, why=why)
    entry_id = reservation.entry_id
    endings = _endings({reservation.pk: reservation.event_id}, sections, transaction_id)
    transaction.on_commit(lambda: after_commit.notify_ended(endings), robust=True)
    transaction.on_commit(lambda: refresh_slots([entry_id]), robust=True)


def lock(reservation_id: UUID) -> Reservation:
    """Lock and return the reservation. Joins the caller's transaction. Raises ReservationNotFound."""
    transactions.require_transaction()
    with connection.cursor() as cursor:
        rows = model_rows.build_instances(Reservation, _lock_reservation.rows(cursor, reservation_id=reservation_id))
    if not rows:
        raise ReservationNotFound
    return rows[0]


def end_reservations(
    cursor: sql.Cursor, statuses: Mapping[UUID, str], to_status: str, *, who: str, why: str
) -> tuple[int, dict[int, Returned]]:
    """End these locked reservations with `to_status` and release their stock; return the transaction's id, and the
    returned stock by section id."""
    _, transaction_id, sections = _end_all_but_general_admission(cursor, statuses, to_status, who=who, why=why)
    release_general_admission(cursor, sections)
    return transaction_id, sections


def _end_all_but_general_admission(
    cursor: sql.Cursor, statuses: Mapping[UUID, str], to_status: str, *, who: str, why: str
) -> tuple[datetime, int, dict[int, Returned]]:
    ids = sorted(statuses)
    lines = _live_lines.rows(cursor, reservation_ids=ids)
    sections: dict[int, Returned] = defaultdict(Returned)
    seats: list[tuple[int, UUID]] = []
    for _, reservation_id, section_id, seat_id, quantity in lines:
        returned = sections[section_id]
        returned.by[reservation_id] = returned.by.get(reservation_id, 0) + quantity
        if seat_id is None:
            returned.tickets += quantity
        else:
            seats.append((seat_id, reservation_id))
            returned.seats += 1
    if seats:
        _lock_seats_waiting.rows(cursor, seat_ids=sorted(seat for seat, _ in seats))
        freed = _free_taken_seats.count(
            cursor, seat_ids=[seat for seat, _ in seats], reservation_ids=[owner for _, owner in seats]
        )
        if freed != len(seats):
            raise Stranded(f"{freed} of {len(seats)} seats still belonged to their reservation")
    ((now, transaction_id),) = _read_clock_and_transaction.rows(cursor)
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
    return now, transaction_id, sections


def release_general_admission(cursor: sql.Cursor, sections: Mapping[int, Returned]) -> None:
    """Release the returned general-admission tickets. This is a transaction's last step, so that buyers wait for these
    contended rows only until the commit."""
    tickets = {section: sections[section].tickets for section in sorted(sections) if sections[section].tickets}
    if not tickets:
        return
    ordered = list(tickets)
    _lock_general_admission.rows(cursor, section_ids=ordered)
    released = _release_general_admission.count(cursor, section_ids=ordered, quantities=list(tickets.values()))
    if released != len(ordered):
        raise Stranded(f"{released} of {len(ordered)} general-admission rows could be released")
