"""First stage of a hold transaction: lock queue entries, reservations to be replaced, cap rows and access codes.

Under these locks it replays remembered answers and refuses requests that may not hold, whatever stock is free.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from uuid import UUID

from apps.kernel import clock
from apps.kernel.http import idempotency, problems
from apps.queue import facade as queue
from apps.reservations.errors import PurchaseCapReached, ReservationExists, ReservationNotFound
from apps.reservations.holds import access_codes, prior_answers, statements
from apps.reservations.holds.outcomes import Contended, Held, HoldOutcome, Refused, Shortage, Undecided, Verdict
from apps.reservations.holds.replacement import ReplacedById, added_seat_count, lock_replaced, replaced_by
from apps.reservations.holds.requests import HoldRequest
from apps.reservations.holds.statements import Batch, Results

BuyerKey = tuple[int, str]
"""Event id and buyer: the scope of a purchase cap."""


@dataclass(frozen=True, slots=True)
class BuyerLocks:
    """The state of a transaction once everything that belongs to the buyers is locked."""

    undecided: Undecided
    results: Results
    now: datetime
    entries: Mapping[UUID, queue.EntryState]
    replaced: ReplacedById
    seat_counts: Mapping[BuyerKey, int] = field(default_factory=dict)
    """How many seats each buyer has, where there is a cap."""
    codes: access_codes.LockedCodes = field(default_factory=access_codes.LockedCodes)


def lock_buyers(batch: Batch) -> BuyerLocks:
    """Lock and read everything that belongs to the buyers of these requests, in the order of all locks."""
    locks = _lock_entries(batch)
    locks = _lock_caps(batch, locks)
    return _lock_codes(batch, locks)


def _lock_entries(batch: Batch) -> BuyerLocks:
    """Lock the entries and the reservations to be replaced; judge each request by its entry and by earlier answers."""
    cursor, requests, waiting = batch.cursor, batch.requests, batch.wait.is_waiting
    # Sorted like ids in PostgreSQL. Comparing UUID objects instead of integers takes ten times as long.
    entry_ids = sorted({request.entry_id for request in requests}, key=attrgetter("int"))
    locks = {
        "admissions": statements.lock_admissions_call(entry_ids, batch.wait),
        # Also for busy entries: a transaction that waits for these locks has none that this one may yet wait for.
        "entries": queue.lock_entries_call(entry_ids, waiting=waiting),
    }
    reads = {"now": clock.now_call(), **prior_answers.read_calls(requests)}
    undecided = Undecided(dict(enumerate(requests)))
    replaced: ReplacedById = {}
    if any(request.replaces is not None for request in requests):
        results = statements.execute(cursor, locks, {})
        undecided = _without_busy(batch, undecided, results)
        named = [request.replaces for request in undecided.requests.values() if request.replaces is not None]
        replaced = lock_replaced(cursor, named, waiting=waiting)
        results = statements.execute(cursor, reads, results)
    else:
        results = statements.execute(cursor, locks | reads | statements.early_calls(requests, batch.wait), {})
        undecided = _without_busy(batch, undecided, results)
    ((now,),) = results["now"].rows
    found = BuyerLocks(undecided, results, now, queue.entry_states_from_rows(results["entries"].rows), replaced)
    asking = list(undecided.requests.values())
    answers = prior_answers.answers_of(cursor, asking, results["answers"], results["reservations"])
    blocking = prior_answers.find_blocking_reservations(asking, results["reservations"])
    verdicts: dict[int, Verdict] = {}
    for index, request in undecided.requests.items():
        remembered = answers.get((request.scope, request.idempotency_key)) if answers else None
        if remembered is not None:
            verdicts[index] = replay(request, *remembered)
        elif refusal := _refuse_by_entry(batch, found, request, blocking.get(request.entry_id)):
            verdicts[index] = refusal
    return replace(found, undecided=undecided.without(verdicts))


def _without_busy(batch: Batch, undecided: Undecided, results: Results) -> Undecided:
    """Leave out requests of entries that another transaction decides for. After a wait there are none."""
    busy = set() if batch.wait.is_waiting else {row[0] for row in results["admissions"].rows}
    asking = undecided.requests.items() if busy else ()
    problem = problems.IdempotencyInProgress()
    return undecided.without({index: Contended(problem) for index, one in asking if one.entry_id in busy})


def replay(request: HoldRequest, fingerprint: str, status: int, answer: str) -> HoldOutcome:
    """Return the answer that was already given to the request's idempotency key."""
    if fingerprint != request.fingerprint:
        return Refused(problems.IdempotencyMismatch())
    return Held(UUID(json.loads(answer)["reservation_id"]), idempotency.Answer(status, answer))


def _refuse_by_entry(
    batch: Batch, found: BuyerLocks, request: HoldRequest, blocking: prior_answers.BlockingReservation | None
) -> Verdict | None:
    entry = found.entries.get(request.entry_id)
    if entry is None:
        return Refused(queue.NotAdmitted()) if batch.wait.is_waiting else Contended(problems.Busy())
    if entry.event_id != request.event.id:
        return Refused(queue.NotAdmitted())  # An entry of another event's queue.
    if request.replaces is not None:
        replaced = found.replaced.get(request.replaces)
        if replaced is None:
            # Without waiting, a reservation that exists is not found while it is locked.
            return Refused(ReservationNotFound()) if batch.wait.is_waiting else Contended(problems.Busy())
        if refusal := replaced.refusal(request.entry_id, request.event.id, found.now):
            return Refused(refusal)
    if blocking is not None and blocking.reservation_id != request.replaces:
        if blocking.is_paid:
            # A separate transaction after the sale completes the entry; until then its status is still ready.
            return Refused(queue.AdmissionExpired("Your turn has been used. Join the line again."))
        exists = ReservationExists(reservation=str(blocking.reservation_id))
        return Shortage(exists, (blocking.reservation_id,)) if blocking.has_lapsed else Refused(exists)
    # An admission must be valid to start a reservation, but not to replace a live one.
    refusal = entry.refusal(found.now) if request.replaces is None else None
    if refusal is not None:
        return Refused(refusal)
    try:
        queue.require_on_sale(request.event, found.now)
    except queue.NotOnSale as not_on_sale:
        return Refused(not_on_sale)
    return None


def _lock_caps(batch: Batch, locks: BuyerLocks) -> BuyerLocks:
    """Lock the cap rows and judge each request by what its buyer has, counted from the reservations themselves."""
    capped = {i: one for i, one in locks.undecided.requests.items() if one.event.policy.per_buyer_max is not None}
    if not capped:
        return locks
    results = locks.results
    if "caps" not in results:
        results = statements.execute(batch.cursor, statements.lock_caps_calls(capped.values(), batch.wait), results)
    locked = {(event_id, buyer) for _, event_id, buyer in results["caps"].rows}
    lapsed = {(row[0], row[1]): row[3] for row in results["counts"].rows}
    counts = dict.fromkeys([(request.event.id, request.buyer) for request in capped.values()], 0)
    counts |= {(row[0], row[1]): row[2] for row in results["counts"].rows}
    verdicts: dict[int, Verdict] = {}
    for index, request in capped.items():
        key = (request.event.id, request.buyer)
        if key not in locked:
            # Another transaction decides for this buyer, or is just creating the row.
            verdicts[index] = Contended(problems.Busy())
        elif refusal := refuse_by_cap(request, locks.replaced, counts):
            verdicts[index] = refusal
        elif lapsed.get(key):
            # Overdue reservations still hold seats until they are swept. Sweep them first, so that the cap is exact.
            verdicts[index] = Shortage(problems.Busy(), tuple(lapsed[key]))
    return replace(locks, undecided=locks.undecided.without(verdicts), results=results, seat_counts=counts)


def refuse_by_cap(request: HoldRequest, replaced: ReplacedById, counts: Mapping[BuyerKey, int]) -> Refused | None:
    """Return the refusal of a request that would take its buyer beyond the event's purchase cap."""
    most = request.event.policy.per_buyer_max
    if most is None or counts[request.event.id, request.buyer] + added_seat_count(request, replaced) <= most:
        return None
    return Refused(PurchaseCapReached(f"The limit for this event is {most} tickets per buyer.", cap=most))


def _lock_codes(batch: Batch, locks: BuyerLocks) -> BuyerLocks:
    """Lock the access codes and judge each request that wants a section behind one."""
    asking = locks.undecided.requests
    guarded = {index: request for index, request in asking.items() if request.guarded}
    if not guarded:
        return locks
    results = locks.results
    if "codes" not in results:
        waiting = batch.wait is not statements.LockWait.NONE
        calls = access_codes.lock_codes_calls(guarded.values(), locks.replaced, waiting=waiting)
        results = statements.execute(batch.cursor, calls, results)
    named = statements.seats_named(asking.values())
    results = statements.with_seats(batch, named, results)
    section_of_seat = {row[0]: row[3] for row in results["seats"].rows} if named else {}
    codes = access_codes.read_codes(results)
    releasable = access_codes.count_released_uses([replaced_by(one, locks.replaced) for one in asking.values()])
    verdicts: dict[int, Verdict] = {}
    for index, request in guarded.items():
        sections = access_codes.guarded_sections(request, section_of_seat)
        released = replaced_by(request, locks.replaced)
        if sections and (refusal := codes.judge(request, released, sections, added={}, releasable=releasable)):
            verdicts[index] = refusal
    return replace(locks, undecided=locks.undecided.without(verdicts), results=results, codes=codes)
