"""The statements of a hold transaction, and which of them share a round trip.

Locks come in the order of the whole system: queue entries, reservations to be replaced, cap rows, access codes, seats,
then general-admission rows. A lock whose rows are known beforehand may share the round trip of an earlier one. It may
then lock rows for requests that the earlier results refuse. That delays other transactions no longer than a lock that
is used: a transaction that holds such a row waits for no lock that comes before it in the order.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from apps.events import facade as events
from apps.kernel.db import arrays, roundtrip, sql
from apps.reservations.holds import access_codes
from apps.reservations.holds.replacement import ReplacedById, replaced_by
from apps.reservations.holds.requests import HoldRequest


class LockWait(Enum):
    """The locks that a hold transaction waits for. Locked rows of other kinds are skipped."""

    GENERAL_ADMISSION_ONLY = "general admission only"
    """Also access codes. Such rows are contended, but waits are short. A double click or locked seat delays no hold."""
    WAITING = "everything, in the order of all locks"
    NONE = "nothing"

    @property
    def is_waiting(self) -> bool:
        return self is LockWait.WAITING


@dataclass(frozen=True, slots=True)
class Batch:
    """The input of one hold transaction."""

    cursor: sql.Cursor
    requests: Sequence[HoldRequest]
    wait: LockWait
    careful: bool
    """Whether seats with status free but a live line, a state that no service leaves behind, count as taken."""
    choose_until: float = math.inf
    """By the monotonic clock: after this, only the first request that leaves the choice of seats is decided."""


Results = Mapping[str, roundtrip.StatementResult]
"""Results of statements by purpose, including those that were sent before they are needed."""

_PACKAGE = "apps.reservations"
_try_admissions = sql.load(_PACKAGE, "try_admissions", prepared=True)
_lock_admissions = sql.load(_PACKAGE, "lock_admissions", prepared=True)
_lock_caps = sql.load(_PACKAGE, "lock_caps", prepared=True)
_lock_caps_skipping = sql.load(_PACKAGE, "lock_caps_skipping", prepared=True)
_count_of_buyers = sql.load(_PACKAGE, "count_of_buyers", prepared=True)
_read_seats = sql.load(_PACKAGE, "read_seats", prepared=True)
_read_seats_and_sections = sql.load(_PACKAGE, "read_seats_and_sections")
_lock_general_admission = sql.load(_PACKAGE, "lock_general_admission", prepared=True)
_lock_general_admission_skipping = sql.load(_PACKAGE, "lock_general_admission_skipping", prepared=True)


def execute(cursor: sql.Cursor, calls: Mapping[str, sql.Call], earlier: Results) -> Results:
    """Execute these statements in order, in one round trip; return their results with the earlier ones."""
    return {**earlier, **dict(zip(calls, sql.execute_batch(cursor, list(calls.values())), strict=True))}


def lock_admissions_call(entry_ids: Sequence[UUID], wait: LockWait) -> sql.Call:
    """Claim the right to decide for these entries. The first round never waits, so that a double click delays no other
    hold. Later rounds wait for a bounded time, in id order and holding no other lock, so that the second of two clicks
    gets the answer of the first."""
    lock = _lock_admissions if wait.is_waiting else _try_admissions
    return lock.call(entry_ids=arrays.uuids(entry_ids))


def early_calls(requests: Sequence[HoldRequest], wait: LockWait) -> dict[str, sql.Call]:
    """Return the statements that share the entries' round trip if no request replaces a reservation: the locks of cap
    rows and codes, then the read of the named seats, or the locks of general admission if no request wants seats."""
    calls = lock_caps_calls(requests, wait)
    calls |= access_codes.lock_codes_calls(requests, {}, waiting=wait is not LockWait.NONE)
    named = seats_named(requests)
    if named:
        calls["seats"] = read_seats_call(named, requests)
    elif all(request.best is None for request in requests):
        calls |= lock_general_admission_calls(requests, {}, wait)
    return calls


def lock_caps_calls(requests: Iterable[HoldRequest], wait: LockWait) -> dict[str, sql.Call]:
    """Return the calls that lock these buyers' cap rows, where the event has a cap, and count their seats."""
    capped = [request for request in requests if request.event.policy.per_buyer_max is not None]
    keys = sorted({(request.event.id, request.buyer) for request in capped})
    if not keys:
        return {}
    event_ids, buyers = arrays.numbers([one for one, _ in keys]), arrays.texts([buyer for _, buyer in keys])
    lock = _lock_caps if wait.is_waiting else _lock_caps_skipping
    return {
        "caps": lock.call(event_ids=event_ids, buyers=buyers),
        "counts": _count_of_buyers.call(event_ids=event_ids, buyers=buyers),
    }


def count_standing_seats(cursor: sql.Cursor, event_id: int, buyer: str) -> int:
    """Return how many tickets the buyer has, bought or held in time, read without a lock: for display only."""
    rows = _count_of_buyers.rows(cursor, event_ids=[event_id], buyers=[buyer])
    return rows[0][2] if rows else 0


def seats_named(requests: Iterable[HoldRequest]) -> list[int]:
    """Return the seats that these requests name, in the order in which they are locked."""
    return sorted({seat_id for request in requests for seat_id in request.seats})


def read_seats_call(named: Sequence[int], requests: Sequence[HoldRequest]) -> sql.Call:
    """Read these seats without a lock; with their sections if the event has sections behind an access code."""
    read = _read_seats_and_sections if any(request.guarded for request in requests) else _read_seats
    return read.call(seat_ids=arrays.numbers(named))


def with_seats(batch: Batch, named: Sequence[int], results: Results) -> Results:
    """Return the results, adding the unlocked read of the named seats unless an earlier round trip included it."""
    if not named or "seats" in results:
        return results
    return execute(batch.cursor, {"seats": read_seats_call(named, batch.requests)}, results)


def lock_general_admission_calls(
    requests: Collection[HoldRequest], replaced: ReplacedById, wait: LockWait
) -> dict[str, sql.Call]:
    """Lock the general-admission rows that these requests change, then read the prices: after all locks, because the
    writes store them."""
    wanted = {section_id for request in requests for section_id in request.quantities}
    for request in requests:
        if (released := replaced_by(request, replaced)) is not None:
            wanted |= released.quantities.keys()
    lock = _lock_general_admission if wait is not LockWait.NONE else _lock_general_admission_skipping
    locking = {"stock": lock.call(section_ids=arrays.numbers(sorted(wanted)))} if wanted else {}
    return {**locking, "prices": events.read_prices_call({request.event.id for request in requests})}
