"""Second stage of a hold transaction: choose seats for best-available requests, then lock seats and general admission.

Named seats are first read without a lock, so that a request for a sold seat locks nothing.
"""

import time
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

from apps.events import facade as events
from apps.kernel.db import arrays, sql
from apps.kernel.http import problems
from apps.reservations.errors import NotEnoughLeft, SoldOut
from apps.reservations.holds import statements
from apps.reservations.holds.buyer_locks import BuyerLocks
from apps.reservations.holds.claims import Claims, judge_claims, read_claims
from apps.reservations.holds.outcomes import Contended, Refused, Shortage, Undecided, Verdict
from apps.reservations.holds.replacement import replaced_by, seats_released_by
from apps.reservations.holds.requests import HoldRequest
from apps.reservations.holds.seat_choice.area_candidates import Proposer
from apps.reservations.holds.seat_choice.areas import Areas
from apps.reservations.holds.seat_choice.best_available import BestAvailable
from apps.reservations.holds.seat_choice.free_runs import FreeSeat
from apps.reservations.holds.statements import Batch, LockWait, Results

CHOICES_MAX = 3
# After each choice that a rival's lock spoiled, the next one is drawn from more alternatives: 4, 16, 64. All buyers
# read the same best seats; if all took the same second best, they would only collide there.
ALTERNATIVES_FACTOR = 4
ALTERNATIVES_MAX = 64
_FREE = 0

_PACKAGE = "apps.reservations"
_lock_seats_skipping = sql.load(_PACKAGE, "lock_seats_skipping", prepared=True)
_lock_seats_waiting = sql.load(_PACKAGE, "lock_seats_waiting", prepared=True)
_any_lapsed = sql.load(_PACKAGE, "any_lapsed", prepared=True)
_live_lines_on_seats = sql.load(_PACKAGE, "live_lines_on_seats", prepared=True)

Choice = tuple[FreeSeat, ...]


class LockedSeat(NamedTuple):
    """A seat's inventory row, locked by this transaction."""

    section_id: int
    category_id: int
    is_free: bool
    owner: UUID | None
    """The reservation that has it, if it is not free."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The state of a transaction once all inventory of its requests is chosen and locked."""

    undecided: Undecided
    results: Results
    claims: Claims = field(default_factory=dict)
    seats: Mapping[int, LockedSeat] = field(default_factory=dict)
    chosen: Mapping[int, Choice] = field(default_factory=dict)
    """By request, the seats chosen for best available."""
    chosen_names: Mapping[int, str] = field(default_factory=dict)
    """Their public ids."""
    passed_over: Set[int] = frozenset()
    """Seats that this transaction wanted and may not have: a rival had them locked."""
    lapsed_events: Set[int] | None = None
    """The events with lapsed reservations, if they were read."""
    left: Mapping[int, int] = field(default_factory=dict)
    """General admission that is left, by section id."""
    prices: Mapping[int, int] = field(default_factory=dict)
    """By category id."""

    def can_have(self, request: HoldRequest, choice: Choice) -> bool:
        """Return whether all seats of the choice are locked by this transaction, free for the request, and still in the
        category that it asked for."""
        best = request.best
        for chosen in choice:
            seat = self.seats.get(chosen.seat_id)
            if seat is None or not (seat.is_free or (request.replaces and seat.owner == request.replaces)):
                return False
            if best is not None and not best.allows_category(seat.category_id):
                return False
        return True


def lock_inventory(batch: Batch, buyers: BuyerLocks) -> Choices:
    """Choose and lock the seats of all requests that can still win, then the general-admission rows; then read prices
    and the claims on seats that are not free."""
    choices = _judge_named_seats(batch, buyers)
    is_choosing = bool(_best_available(choices))
    for try_number in range(CHOICES_MAX):
        choices = _choose(batch, buyers, choices, try_number)
        choices = _lock_seats(batch, buyers, choices, try_number, is_choosing=is_choosing)
        if all(choices.can_have(one, choices.chosen.get(i, ())) for i, one in _best_available(choices).items()):
            break
    choices = _lock_general_admission(batch, buyers, choices)
    asking = choices.undecided.requests
    chosen = [seat.seat_id for index in asking for seat in choices.chosen.get(index, ())]
    named = [choices.seats[seat].owner for one in asking.values() for seat in one.seats if seat in choices.seats]
    return replace(
        choices,
        chosen_names=events.seat_guids(batch.cursor, chosen),
        claims=read_claims(batch.cursor, named, choices.claims),
    )


def _best_available(choices: Choices) -> Mapping[int, HoldRequest]:
    return {index: one for index, one in choices.undecided.requests.items() if one.best is not None}


def _judge_named_seats(batch: Batch, buyers: BuyerLocks) -> Choices:
    """Judge requests for seats that, read without a lock, are not free. Seats that this batch may release by replacing
    a reservation are judged later, under the locks."""
    asking, results = buyers.undecided.requests, buyers.results
    named = statements.seats_named(asking.values())
    if not named:
        return Choices(buyers.undecided, results)
    results = statements.with_seats(batch, named, results)
    released = {seat for request in asking.values() for seat in seats_released_by(request, buyers.replaced)}
    found = {row[0]: row for row in results["seats"].rows}
    taken = {
        seat_id: found[seat_id][2] if seat_id in found else None
        for seat_id in named
        if seat_id not in released and (seat_id not in found or found[seat_id][1] != _FREE)
    }
    claims = read_claims(batch.cursor, taken.values(), {})
    verdicts: dict[int, Verdict] = {}
    for index, request in asking.items() if taken else ():
        if gone := {seat: taken[seat] for seat in request.seats if seat in taken}:
            verdicts[index] = judge_claims(claims, request.seats, gone)
    return Choices(buyers.undecided.without(verdicts), results, claims)


def _choose(batch: Batch, buyers: BuyerLocks, choices: Choices, try_number: int) -> Choices:
    """Choose seats for every best-available request without a choice that it can have. No two requests of the batch get
    the same seat. A request for which nothing fits gets a verdict, and so does one that is too late to choose."""
    asking, chosen, passed_over = choices.undecided.requests, dict(choices.chosen), set(choices.passed_over)
    reserved = {seat_id for request in asking.values() for seat_id in request.seats}
    choosing: dict[int, HoldRequest] = {}
    for index, request in asking.items():
        current = chosen.get(index, ())
        if current and choices.can_have(request, current):
            reserved |= {seat.seat_id for seat in current}
        elif request.best is not None:
            # Rivals have locked the seats that were skipped: no request of the batch chooses them again.
            passed_over |= {seat.seat_id for seat in current if seat.seat_id not in choices.seats}
            choosing[index] = request
    if not choosing:
        return choices
    tries = try_number + (CHOICES_MAX if batch.wait.is_waiting else 0)
    demands = [request.best for request in choosing.values() if request.best is not None]
    alternatives = min(ALTERNATIVES_FACTOR**tries, ALTERNATIVES_MAX)
    named = frozenset(seat_id for one in choosing.values() if one.best and one.best.areas for seat_id in one.seats)
    proposer = Proposer(batch.cursor, demands, reserved | passed_over, alternatives, named=named)
    verdicts: dict[int, Verdict] = {}
    lapsed_events = choices.lapsed_events
    for place, (index, request) in enumerate(_small_events_first(choosing)):
        assert request.best is not None
        if place > 0 and time.monotonic() >= batch.choose_until:
            # Final, since a further round of the batch would take as long. The first one always gets its choice.
            verdicts[index] = Refused(problems.Busy())
            chosen.pop(index, None)
            continue
        demand = request.best
        if demand.areas and request.guarded:
            demand = _within_opened_areas(request, demand, buyers)
            if not demand.areas:
                verdicts[index] = _refuse_areas(request, buyers)
                chosen.pop(index, None)
                continue
        own = seats_released_by(request, buyers.replaced)
        proposal = proposer.propose(demand, own, request.seats.keys())
        is_short = proposal.seats is None and proposal.fitting_count < demand.quantity
        if is_short and lapsed_events is None:
            # Read the seats again after the lapsed reservations. Otherwise a sweep that commits between the two reads
            # would be missed: the seats would still be held in the first, and nothing overdue in the second.
            lapsed_events = read_lapsed_events(batch)
            proposer = Proposer(batch.cursor, demands, proposer.taken | passed_over, alternatives, named=named)
            proposal = proposer.propose(demand, own, request.seats.keys())
            is_short = proposal.seats is None and proposal.fitting_count < demand.quantity
        if proposal.seats is not None:
            chosen[index] = proposal.seats
            proposer.take(proposal.seats)
            continue
        chosen.pop(index, None)
        released = [
            seat.section_id
            for other, one in asking.items()
            if other != index and other not in verdicts
            for seat in seats_released_by(one, buyers.replaced).values()
        ]
        if not is_short or any(section in demand.section_ids for section in released):
            # Rivals or requests of this batch have locked the missing seats, or may release some: not final.
            verdicts[index] = Contended(problems.Busy())
        else:
            problem = shortage_problem(proposal.fitting_count)
            verdicts[index] = refused_or_shortage(request, problem, lapsed_events or ())
    undecided = choices.undecided.without(verdicts)
    return replace(choices, undecided=undecided, chosen=chosen, passed_over=passed_over, lapsed_events=lapsed_events)


def _small_events_first(choosing: Mapping[int, HoldRequest]) -> Sequence[tuple[int, HoldRequest]]:
    """Return these requests with those of events with few areas first, so that the time for choosing is not used up for
    them by others. Requests of one event stay in the order of arrival."""
    area_counts: dict[int, int] = {}
    for request in choosing.values():
        areas = request.best.areas if request.best is not None else ()
        area_counts[request.event.id] = max(len(areas), area_counts.get(request.event.id, 0))
    return sorted(choosing.items(), key=lambda item: area_counts[item[1].event.id])


def _within_opened_areas(request: HoldRequest, demand: BestAvailable, buyers: BuyerLocks) -> BestAvailable:
    """Return the request without the areas that require an access code, unless its code opens them."""
    opened = {
        section_id: section_id not in request.guarded or _judge_code(request, {section_id}, buyers) is None
        for section_id in demand.section_ids
    }
    return replace(demand, areas=Areas(area for area in demand.areas if opened[area.section_id]))


def _refuse_areas(request: HoldRequest, buyers: BuyerLocks) -> Verdict:
    """Return the verdict on a request of which every area requires an access code that it does not have."""
    assert request.best is not None
    verdicts = [_judge_code(request, {section_id}, buyers) for section_id in sorted(request.best.section_ids)]
    undecided = [verdict for verdict in verdicts if isinstance(verdict, Contended | Shortage)]
    verdict = undecided[0] if undecided else _judge_code(request, set(request.best.section_ids), buyers)
    return verdict or Contended(problems.Busy())


def _judge_code(request: HoldRequest, sections: Collection[int], buyers: BuyerLocks) -> Verdict | None:
    released = replaced_by(request, buyers.replaced)
    return buyers.codes.judge(request, released, sections, added={}, releasable={})


def _lock_seats(batch: Batch, buyers: BuyerLocks, choices: Choices, try_number: int, *, is_choosing: bool) -> Choices:
    """Lock the seats of all requests that can still win, in id order: named, chosen, and those of replaced
    reservations."""
    asking = choices.undecided.requests
    wanted = {seat_id for request in asking.values() for seat_id in request.seats}
    wanted |= {seat.seat_id for index in asking for seat in choices.chosen.get(index, ())}
    wanted |= {seat_id for request in asking.values() for seat_id in seats_released_by(request, buyers.replaced)}
    wanted -= choices.seats.keys()
    if not wanted:
        return choices
    # Only the first statement may wait: a second wait would violate the lock order.
    waiting = batch.wait.is_waiting and try_number == 0
    lock = _lock_seats_waiting if waiting else _lock_seats_skipping
    calls = {"seats locked": lock.call(seat_ids=arrays.numbers(sorted(wanted)))}
    if not is_choosing:
        # If seats are chosen, others may be locked later. If not, the last locks can share this round trip.
        calls |= statements.lock_general_admission_calls(asking.values(), buyers.replaced, batch.wait)
    results = statements.execute(batch.cursor, calls, choices.results)
    rows = results["seats locked"].rows
    with_line: set[int] = set()
    if batch.careful and rows:
        with_line = {row[0] for row in _live_lines_on_seats.rows(batch.cursor, seat_ids=[row[0] for row in rows])}
    locked = {
        seat_id: LockedSeat(section_id, category_id, status == _FREE and seat_id not in with_line, owner)
        for seat_id, section_id, category_id, status, owner in rows
    }
    passed_over = choices.passed_over | {seat_id for seat_id in with_line if locked[seat_id].owner is None}
    return replace(choices, results=results, seats={**choices.seats, **locked}, passed_over=passed_over)


def _lock_general_admission(batch: Batch, buyers: BuyerLocks, choices: Choices) -> Choices:
    """Lock the general-admission rows that requests change, which are the last locks, and read the prices."""
    asking, results = choices.undecided.requests, choices.results
    if not asking:
        return choices
    if "prices" not in results:
        calls = statements.lock_general_admission_calls(asking.values(), buyers.replaced, batch.wait)
        results = statements.execute(batch.cursor, calls, results)
    left = dict(results["stock"].rows) if "stock" in results else {}
    verdicts: dict[int, Verdict] = {}
    for index, request in asking.items() if "stock" in results and batch.wait is LockWait.NONE else ():
        released = replaced_by(request, buyers.replaced)
        if not request.quantities.keys() | (released.quantities.keys() if released else set()) <= left.keys():
            verdicts[index] = Contended(problems.Busy())
    undecided = choices.undecided.without(verdicts)
    return replace(choices, undecided=undecided, results=results, left=left, prices=dict(results["prices"].rows))


def read_lapsed_events(batch: Batch) -> Set[int]:
    """Return which events of the batch have reservations past their deadline."""
    ids = sorted({request.event.id for request in batch.requests})
    return {row[0] for row in _any_lapsed.rows(batch.cursor, event_ids=ids)}


def refused_or_shortage(request: HoldRequest, problem: problems.Problem, lapsed_events: Collection[int]) -> Verdict:
    """Return the verdict on missing stock, counted under its lock or read after the lapsed reservations: final unless a
    sweep may release some."""
    return Shortage(problem) if request.event.id in lapsed_events else Refused(problem)


def shortage_problem(available: int) -> problems.Problem:
    return SoldOut() if available <= 0 else NotEnoughLeft(available=available)
