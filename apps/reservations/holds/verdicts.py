"""Third stage of a hold transaction: decide each request in arrival order, in memory, under all locks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache

from apps.kernel import clock
from apps.kernel.http import idempotency, problems
from apps.reservations.errors import ReservationExists
from apps.reservations.holds.access_codes import CodeKey, guarded_sections
from apps.reservations.holds.answers import HoldAnswer
from apps.reservations.holds.buyer_locks import BuyerLocks, refuse_by_cap, replay
from apps.reservations.holds.claims import judge_claims
from apps.reservations.holds.inventory_locks import (
    Choice,
    Choices,
    read_lapsed_events,
    refused_or_shortage,
    shortage_problem,
)
from apps.reservations.holds.outcomes import Contended, Held, Refused, Shortage, Verdict
from apps.reservations.holds.replacement import Replaced, added_seat_count, replaced_by
from apps.reservations.holds.requests import HoldRequest
from apps.reservations.holds.seat_choice.best_available import BestAvailable
from apps.reservations.holds.statements import Batch
from apps.reservations.holds.writes import ANSWER_STATUS, Line, Win

_iso = lru_cache(maxsize=64)(clock.iso)  # All holds of one batch and event have the same deadline.


@dataclass(frozen=True, slots=True)
class Verdicts:
    by_request: Mapping[int, Verdict]
    """By index, of every request of the batch."""
    wins: Sequence[Win]


def decide(batch: Batch, buyers: BuyerLocks, choices: Choices) -> Verdicts:
    """Decide every request that is still undecided: it wins all it asks for or nothing."""
    verdicts: dict[int, Verdict] = dict(choices.undecided.verdicts)
    remaining = _Remaining(buyers, choices)
    wins: dict[object, Win] = {}
    """By buyer and by entry, since a guest may have logged in between two clicks."""
    by_key: dict[tuple[str, str], Win] = {}
    short: dict[int, Shortage] = {}
    for index, request in choices.undecided.requests.items():
        key = (request.scope, request.idempotency_key)
        if (earlier := by_key.get(key)) is not None:
            verdicts[index] = replay(request, earlier.request.fingerprint, ANSWER_STATUS, earlier.answer)
            continue
        buyer = (request.event.id, request.buyer)
        if winner := wins.get(buyer) or wins.get(request.entry_id):
            exists = ReservationExists(reservation=str(winner.request.reservation_id))
            verdicts[index] = Refused(exists)
            continue
        choice = choices.chosen.get(index, ())
        if refusal := remaining.refuse(request, choice):
            verdicts[index] = refusal
            if isinstance(refusal, Shortage) and not refusal.holders:
                short[index] = refusal
            continue
        win = remaining.take(request, choice)
        wins[buyer] = wins[request.entry_id] = by_key[key] = win
        verdicts[index] = Held(request.reservation_id, idempotency.Answer(ANSWER_STATUS, win.answer))
    if short:
        lapsed = read_lapsed_events(batch) if choices.lapsed_events is None else choices.lapsed_events
        for index, shortage in short.items():
            verdicts[index] = refused_or_shortage(batch.requests[index], shortage.problem, lapsed)
    return Verdicts(verdicts, list(by_key.values()))


class _Remaining:
    """The stock and the uses of caps and access codes that are left after the winners so far."""

    def __init__(self, buyers: BuyerLocks, choices: Choices) -> None:
        self._buyers, self._choices = buyers, choices
        self._free = {seat_id for seat_id, seat in choices.seats.items() if seat.is_free}
        self._owners = {seat_id: seat.owner for seat_id, seat in choices.seats.items() if not seat.is_free}
        self._released: set[int] = set()
        """Seats of reservations that a winner replaced: free with the commit of this batch, not within it."""
        self._left = dict(choices.left)
        self._seat_counts = dict(buyers.seat_counts)
        self._added_uses: dict[CodeKey, int] = {}

    def refuse(self, request: HoldRequest, choice: Choice) -> Verdict | None:
        """Return why the request cannot win; None if it can."""
        released = replaced_by(request, self._buyers.replaced)
        seats = self._choices.seats
        if released is not None and not released.seats.keys() <= seats.keys():
            return Contended(problems.Busy())  # Waiting for the seats that it releases would violate the lock order.
        if not request.seats.keys() <= self._free:
            taken = [seat for seat in request.seats if seat in seats and not self._is_free_for(request, seat)]
            if taken:
                owners = {seat: self._owners.get(seat) for seat in taken}
                return judge_claims(self._choices.claims, request.seats, owners, self._released)
            if not request.seats.keys() <= seats.keys():
                return Contended(problems.Busy())
        is_free = all(self._is_free_for(request, seat.seat_id) for seat in choice)
        if not is_free or not self._choices.can_have(request, choice):
            return Contended(problems.Busy())
        for section_id, quantity in request.quantities.items():
            left = self._left.get(section_id, 0) + (released.quantities.get(section_id, 0) if released else 0)
            if left < quantity:
                return Shortage(shortage_problem(left))
        if refusal := refuse_by_cap(request, self._buyers.replaced, self._seat_counts):
            return refusal
        best = request.best
        if best is not None and not all(self._allows_price(best, seat.seat_id) for seat in choice):
            return Contended(problems.Busy())  # The price has just been raised: the retry chooses by the new one.
        sections = self._guarded_sections(request, choice)
        if not sections:
            return None
        return self._buyers.codes.judge(request, released, sections, added=self._added_uses, releasable={})

    def take(self, request: HoldRequest, choice: Choice) -> Win:
        """Let the request win: subtract what it asks for from what is left for the others. Return the win."""
        released = replaced_by(request, self._buyers.replaced)
        seats = (*request.seats, *[seat.seat_id for seat in choice])
        self._free.difference_update(seats)
        for section_id, quantity in request.quantities.items():
            self._left[section_id] -= quantity
        if released is not None:
            # Its general admission is only counted, so other requests of this batch may take it. Its seats are free
            # for others only from the next batch on.
            for seat_id in released.seats:
                self._owners.pop(seat_id, None)
            self._released |= released.seats.keys() - set(seats)
            for section_id, quantity in released.quantities.items():
                self._left[section_id] += quantity
        if request.event.policy.per_buyer_max is not None:
            added = added_seat_count(request, self._buyers.replaced)
            self._seat_counts[request.event.id, request.buyer] += added
        return self._build_win(request, released, seats, choice)

    def _is_free_for(self, request: HoldRequest, seat_id: int) -> bool:
        is_own = request.replaces is not None and self._owners.get(seat_id) == request.replaces
        return is_own or seat_id in self._free

    def _allows_price(self, best: BestAvailable, seat_id: int) -> bool:
        category_id = self._choices.seats[seat_id].category_id
        return best.allows_price(category_id, self._choices.prices[category_id])

    def _guarded_sections(self, request: HoldRequest, choice: Choice) -> set[int]:
        if not request.guarded:
            return set()
        seats = (*request.seats, *[seat.seat_id for seat in choice])
        return guarded_sections(request, {seat: self._choices.seats[seat].section_id for seat in seats})

    def _build_win(
        self, request: HoldRequest, released: Replaced | None, seat_ids: Sequence[int], choice: Choice
    ) -> Win:
        seats, prices, chosen_names = self._choices.seats, self._choices.prices, self._choices.chosen_names
        lines = [
            Line((seat := seats[seat_id]).section_id, seat.category_id, seat_id, 1, prices[seat.category_id])
            for seat_id in seat_ids
        ]
        for section_id, quantity in request.quantities.items():
            category_id = request.general_admission[section_id].category_id
            assert category_id is not None, "a general-admission section has one price"
            lines.append(Line(section_id, category_id, None, quantity, prices[category_id]))
        total = sum([line.quantity * line.price_minor for line in lines])
        inherited = released.expires_at if released is not None else None
        until = inherited or self._buyers.now + timedelta(seconds=request.event.policy.hold_seconds)
        section, quantity = next(iter(request.quantities.items()), (None, 0))
        answer = HoldAnswer(
            reservation_id=request.reservation_id,
            reserved_until=_iso(until),
            seats=[*request.seats.values(), *[chosen_names[seat.seat_id] for seat in choice]],
            ga_section=None if section is None else request.general_admission[section].slug,
            ga_quantity=quantity,
            total_minor=total,
            currency=request.event.currency,
        ).text
        code_id = None
        if request.guarded or released is not None:
            sections = self._guarded_sections(request, choice)
            changes, code_id = self._buyers.codes.uses_changed_by(request, released, sections)
            for key, change in changes.items():
                self._added_uses[key] = self._added_uses.get(key, 0) + change
        account_id = self._buyers.entries[request.entry_id].account_id
        return Win(request, account_id, tuple(lines), total, until, answer, released, code_id)
