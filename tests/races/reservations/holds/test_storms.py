"""Sixty-four concurrent buyers: exact winners, nothing sold twice, nothing left over, a clean audit."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from apps.kernel import clock
from apps.kernel.checks import reconciler
from apps.kernel.http import problems
from apps.reservations import facade as reservations
from apps.reservations.gate import rebuild
from apps.reservations.holds import service, transaction
from apps.reservations.models import InventoryChange, Reservation, SeatInventory
from apps.reservations.staff import stock, tiers
from apps.reservations.staff.selection import Selection
from tests.processes.reservations.test_processes import deadlocks, sessions
from tests.support.batches import wait_until
from tests.support.factories import assert_audit_clean, backdate_deadline, hold, join, make_event, make_hold_request
from tests.support.races import storm, values
from tests.support.reservations.buyers import (
    begin_payment,
    cancel,
    confirm,
    get_general_admission,
    hold_with_retries,
    is_held,
    is_retryable,
    outcome_types,
    submit_hold,
)

pytestmark = pytest.mark.django_db(transaction=True)

BUYERS = 64
PATIENT_MS = 60_000


def seats_of(outcome: reservations.HoldOutcome) -> set[str]:
    if not isinstance(outcome, reservations.Held):
        return set()
    return {seat.seat_id for seat in reservations.get_reservation(outcome.reservation_id).seats}


def test_sixty_four_buyers_on_fifty_named_seats_sell_each_seat_once() -> None:
    """Buyer n wants seat n modulo 50, so 14 seats are wanted twice: 50 win, 14 are refused by name."""
    event = make_event(rows=5, seats_per_row=10)
    names = [f"hall-{row}-{number}" for row in "ABCDE" for number in range(1, 11)]
    requests = [make_hold_request(event, seats=[names[number % 50]]) for number in range(BUYERS)]
    outcomes = values(storm(BUYERS, lambda number: hold_with_retries(requests[number])))
    assert outcome_types(outcomes) == ["held"] * 50 + ["seats-unavailable"] * 14
    owners = Counter(guid for outcome in outcomes for guid in seats_of(outcome))
    assert owners == Counter(names)
    assert_audit_clean()


def test_every_refused_pair_of_sixty_four_overlaps_a_held_pair() -> None:
    """Buyer n wants two adjacent seats, n and n + 1 around a ring of 50, named in either order. Every refused buyer
    lost to one who holds one of the two; and since a pair is all or nothing, no seat is held alone."""
    event = make_event(rows=5, seats_per_row=10)
    ring = [f"hall-{row}-{number}" for row in "ABCDE" for number in range(1, 11)]
    pairs = [[ring[number % 50], ring[(number + 1) % 50]] for number in range(BUYERS)]
    requests = [make_hold_request(event, seats=pair if number % 2 else pair[::-1]) for number, pair in enumerate(pairs)]
    outcomes = values(storm(BUYERS, lambda number: hold_with_retries(requests[number])))
    taken = Counter(guid for outcome in outcomes for guid in seats_of(outcome))
    assert set(taken.values()) == {1}
    for pair, outcome in zip(pairs, outcomes, strict=True):
        if isinstance(outcome, reservations.Refused):
            assert outcome.problem.type == "seats-unavailable"
            assert set(outcome.problem.extra["unavailable"]) & set(taken) & set(pair)
    held = SeatInventory.objects.filter(status=SeatInventory.Status.HELD).count()
    assert held == len(taken) == 2 * sum(map(is_held, outcomes))
    assert_audit_clean()


def test_sixty_four_buyers_on_forty_tickets_sell_all_forty() -> None:
    event = make_event(rows=0, general_admission=40)
    requests = [make_hold_request(event, ga_section="floor", ga_quantity=1) for _ in range(BUYERS)]
    outcomes = values(storm(BUYERS, lambda number: hold_with_retries(requests[number])))
    assert outcome_types(outcomes) == ["held"] * 40 + ["sold-out"] * 24
    assert (get_general_admission().taken, get_general_admission().capacity) == (40, 40)
    assert_audit_clean()


def test_batches_of_eight_are_decided_like_single_requests() -> None:
    """Eight concurrent batches of eight, as group commit sends them: 40 tickets, 40 winners."""
    event = make_event(rows=0, general_admission=40)
    batches = [[make_hold_request(event, ga_section="floor", ga_quantity=1) for _ in range(8)] for _ in range(8)]

    def hold_batch(number: int) -> list[reservations.HoldOutcome]:
        decided: dict[int, reservations.HoldOutcome] = {}
        while len(decided) < 8:
            undecided = [index for index in range(8) if index not in decided]
            outcomes = reservations.hold([batches[number][index] for index in undecided])
            decided |= {
                index: outcome for index, outcome in zip(undecided, outcomes, strict=True) if not is_retryable(outcome)
            }
        return [decided[index] for index in range(8)]

    outcomes = [outcome for batch in values(storm(8, hold_batch)) for outcome in batch]
    assert outcome_types(outcomes) == ["held"] * 40 + ["sold-out"] * 24
    assert_audit_clean()


@pytest.mark.slow
def test_a_hall_whose_holds_have_all_lapsed_is_sold_again_completely() -> None:
    """Every seat is held and past its deadline; no sweep has run. 64 buyers, 50 seats: 50 winners, and every one of the
    old reservations has expired."""
    event = make_event(rows=5, seats_per_row=10)
    names = [f"hall-{row}-{number}" for row in "ABCDE" for number in range(1, 11)]
    for first in range(0, 50, 5):
        hold(event, seats=names[first : first + 5])
    Reservation.objects.update(expires_at=clock.now())
    requests = [make_hold_request(event, seats=[names[number % 50]]) for number in range(BUYERS)]
    outcomes = values(storm(BUYERS, lambda number: hold_with_retries(requests[number])))
    assert outcome_types(outcomes) == ["held"] * 50 + ["seats-unavailable"] * 14
    assert Reservation.objects.filter(status="expired").count() == 10
    assert_audit_clean()


def test_concurrent_holds_and_releases_never_lose_a_ticket() -> None:
    """Half of the buyers release their ticket while the other half hold: at the end the count equals the sum of the
    lines, and every buyer who still wants one gets it."""
    event = make_event(rows=0, general_admission=16)
    held_before = [hold(event, ga_section="floor", ga_quantity=1) for _ in range(16)]
    backdate_deadline(held_before[0].id)
    requests = [make_hold_request(event, ga_section="floor", ga_quantity=1) for _ in range(16)]

    def act(number: int) -> Any:
        if number < 16:
            return reservations.release(held_before[number].id, who="test").status
        return hold_with_retries(requests[number - 16])

    outcomes = values(storm(32, act))
    assert set(outcomes[:16]) <= {"canceled", "expired"}
    won = sum(is_held(outcome) for outcome in outcomes[16:])
    assert get_general_admission().taken == won
    again = [hold_with_retries(request) for request in requests]
    assert outcome_types(again) == ["held"] * 16
    assert_audit_clean()


def test_no_mix_of_operations_on_the_same_rows_deadlocks_or_unbalances_the_counts(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Six buyers hold, replace, pay, refund, release and let holds lapse; two members of staff block, unblock, resize,
    move and reprice; one thread sweeps, one repairs and resets the gate: all over six seats and one section. Lock waits
    exceed PostgreSQL's deadlock timeout, and it detects no deadlock; the repair finds nothing to repair."""
    for module in (transaction, service, stock):
        monkeypatch.setattr(module, "LOCK_WAIT_MS", PATIENT_MS)
    for module in (transaction, service, stock):
        monkeypatch.setattr(module, "STATEMENT_MS", PATIENT_MS)
    settings.DATABASE_LOCK_TIMEOUT_MS = settings.DATABASE_STATEMENT_TIMEOUT_MS = PATIENT_MS
    event = make_event(rows=1, seats_per_row=6, general_admission=12, per_buyer_max=4)
    by: dict[str, Any] = {"who": "ann", "why": ""}
    tiers.add_price(event, "Better", 9_000, **by)
    guids = [f"hall-A-{number}" for number in range(1, 7)]

    def refused(act: Callable[[], Any]) -> bool:
        try:
            act()
        except problems.Problem:
            return True
        return False

    def buy(number: int, turn: int) -> None:
        entry, first = join(event), (number + turn) % 6
        pair = [guids[first], guids[(first + 1) % 6]]
        if not is_held(
            submit_hold(
                make_hold_request(
                    event, entry, seats=pair if number % 2 else pair[::-1], ga_section="floor", ga_quantity=1
                )
            )
        ):
            return
        held = reservations.live_reservation_of(entry.id)
        if held is not None and turn % 2:
            submit_hold(make_hold_request(event, entry, seats=[guids[(first + 2) % 6], pair[0]], ga_section="floor",
                     ga_quantity=2, replace=str(held.id)))  # fmt: skip
        held = reservations.live_reservation_of(entry.id)
        if held is None:
            return
        email = f"{number % 2}@example.org"
        reservations.prepare_payment(event.id, email)
        match (number + turn) % 3:
            case 0:
                backdate_deadline(held.id)
            case 1 if not refused(lambda: begin_payment(held.id, email)):
                if not refused(lambda: confirm(held.id, clock.now())):
                    cancel(held.id)
            case _:
                refused(lambda: reservations.release(held.id, who="test"))

    def change_stock(number: int) -> None:
        selection = Selection(seats=tuple(guids[number % 2 : 4 + number % 2]))
        for act in (
            lambda: stock.block_seats(event, selection, "house", **by, only_free=True),
            lambda: tiers.move_seats(event, selection, ("Better", "Standard")[number % 2], **by),
            lambda: stock.block_general_admission(event, "floor", 2, "house", **by),
            lambda: stock.resize(event, "floor", 10 + number % 3, **by),
            lambda: tiers.reprice(event, "Floor", 1_000 + number, **by),
            lambda: stock.unblock_seats(event, Selection(seats=tuple(guids)), **by),
            lambda: stock.unblock_general_admission(event, "floor", 2, "house", **by),
        ):
            refused(act)

    def act(number: int) -> None:
        for turn in range(6):
            if number < 6:
                buy(number, turn)
            elif number < 8:
                change_stock(number)
            elif number == 8:
                reservations.sweep(event_id=event.id, waiting=bool(turn % 2), lock_ms=PATIENT_MS)
            else:
                reconciler.run(repair_by="test")
                rebuild.reset(event.id)

    before, others = deadlocks(), sessions()
    values(storm(10, act))
    # A session's deadlock count is final at the latest when it has ended.
    wait_until(lambda: sessions() <= others, "the sessions of the storm are gone")
    assert deadlocks() == before
    assert not InventoryChange.objects.filter(kind=InventoryChange.Kind.REPAIRED).exists()
    assert_audit_clean(without_money=True)
