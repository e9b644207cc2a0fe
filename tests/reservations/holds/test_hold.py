"""The hold function, one caller at a time: winners, refusals, and their reasons."""

import json
import uuid
from datetime import timedelta

import pytest

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.http import idempotency, problems
from apps.reservations import facade as reservations
from apps.reservations.holds.answers import HoldAnswer
from apps.reservations.models import Reservation, ReservationTransition, SeatInventory
from tests.support.factories import (
    PLACE_PRICE_MINOR,
    SEAT_PRICE_MINOR,
    assert_audit_clean,
    backdate_deadline,
    hold,
    join,
    make_event,
    make_hold_request,
)
from tests.support.reservations.buyers import begin_payment, confirm

pytestmark = pytest.mark.django_db(transaction=True)


def decide(*requests: reservations.HoldRequest) -> list[reservations.HoldOutcome]:
    outcomes = reservations.hold(requests)
    assert_audit_clean(without_money=True)
    return outcomes


def refusal(outcome: reservations.HoldOutcome) -> problems.Problem:
    assert isinstance(outcome, reservations.Refused), outcome
    return outcome.problem


def test_a_response_is_the_canonical_text_of_the_contracts_byte_for_byte() -> None:
    """A stored response and a new one are compared as texts."""
    now, id_ = clock.now(), uuid.uuid4()
    hard = ["hall-A-1", 'a "b" \\ /', "\t\n\r\b\f\x01\x1f\x7f", "ö漢\U0001f39f\u2028"]
    for seats, slug, quantity in ((hard, None, 0), ([], "flöor", 3), (hard[:1], "floor", 1)):
        known = {"reservation_id": id_, "seats": seats, "total_minor": 10**12, "currency": "EUR"}
        known |= {"reserved_until": clock.iso(now), "ga_section": slug, "ga_quantity": quantity}
        expected = known | {"reservation_id": str(id_), "status": "pending_payment"}
        assert HoldAnswer(**known).text == idempotency.canonical(expected)


def test_named_seats_are_held_and_the_response_follows_the_contract() -> None:
    event = make_event()
    (outcome,) = decide(make_hold_request(event, seats=["hall-A-2", "hall-A-1"]))
    assert isinstance(outcome, reservations.Held)
    answer = json.loads(outcome.answer.body)
    assert answer["seats"] == ["hall-A-2", "hall-A-1"]
    assert answer["total_minor"] == 2 * SEAT_PRICE_MINOR
    assert answer["status"] == "pending_payment"
    assert answer["ga_section"] is None
    view = reservations.get_reservation(outcome.reservation_id)
    shown = view.contract()
    assert shown.pop("bill")["total_minor"] == answer["total_minor"]
    assert shown | {"seats": sorted(answer["seats"])} == answer | {"seats": sorted(answer["seats"])}
    remaining = view.expires_at - clock.now()
    assert timedelta(minutes=9) < remaining <= timedelta(minutes=10)


def test_a_mixed_request_holds_all_or_nothing() -> None:
    event = make_event(general_admission=3)
    (outcome,) = decide(make_hold_request(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=4))
    assert refusal(outcome).type == "not-enough-left"
    assert refusal(outcome).extra == {"available": 3}
    counts = reservations.free_by_event(events.section_slugs([event.id]))[event.id]
    assert sorted(counts.values()) == [3, 50]
    (outcome,) = decide(make_hold_request(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=3))
    assert isinstance(outcome, reservations.Held)
    assert json.loads(outcome.answer.body)["total_minor"] == SEAT_PRICE_MINOR + 3 * PLACE_PRICE_MINOR


def test_best_available_excludes_the_seats_named_in_the_same_request() -> None:
    event = make_event(rows=1, seats_per_row=3)
    best = {"section": "hall", "quantity": 3}
    (outcome,) = decide(make_hold_request(event, seats=["hall-A-1"], best_available=best))
    assert refusal(outcome).type == "not-enough-left"
    assert refusal(outcome).extra == {"available": 2}
    (outcome,) = decide(make_hold_request(event, seats=["hall-A-1"], best_available=best | {"quantity": 2}))
    assert isinstance(outcome, reservations.Held)


def test_a_batch_is_decided_in_arrival_order() -> None:
    event = make_event(general_admission=5)
    outcomes = decide(
        make_hold_request(event, seats=["hall-A-1", "hall-A-2"]),
        make_hold_request(event, seats=["hall-A-2", "hall-A-3"]),
        make_hold_request(event, seats=["hall-A-3"]),
        make_hold_request(event, ga_section="floor", ga_quantity=4),
        make_hold_request(event, ga_section="floor", ga_quantity=2),
        make_hold_request(event, ga_section="floor", ga_quantity=1),
        make_hold_request(event, ga_section="floor", ga_quantity=1),
    )
    won = [isinstance(outcome, reservations.Held) for outcome in outcomes]
    assert won == [True, False, True, True, False, True, False]
    assert refusal(outcomes[1]).extra == {"unavailable": ["hall-A-2"]}
    assert refusal(outcomes[4]).extra == {"available": 1}
    assert refusal(outcomes[6]).type == "sold-out"


def test_a_request_refused_for_another_reason_leaves_its_seats_to_the_next() -> None:
    event = make_event(general_admission=1)
    outcomes = decide(
        make_hold_request(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=2),
        make_hold_request(event, seats=["hall-A-1"]),
    )
    assert [isinstance(outcome, reservations.Held) for outcome in outcomes] == [False, True]


def test_the_same_key_gives_the_same_response_byte_for_byte() -> None:
    event = make_event()
    entry = join(event)
    first = decide(make_hold_request(event, entry, key="once", seats=["hall-A-1"]))
    again = decide(make_hold_request(event, entry, key="once", seats=["hall-A-1"]))
    assert again == first
    (other,) = decide(make_hold_request(event, entry, key="once", seats=["hall-A-2"]))
    assert refusal(other).type == "idempotency-mismatch"
    assert Reservation.objects.count() == 1


def test_one_key_twice_in_one_batch_is_one_reservation() -> None:
    event = make_event()
    entry = join(event)
    twin = [make_hold_request(event, entry, key="once", seats=["hall-A-1"]) for _ in range(2)]
    first, second = decide(*twin)
    assert first == second
    assert Reservation.objects.count() == 1


def test_two_keys_of_one_admission_in_one_batch_are_one_reservation() -> None:
    event = make_event()
    entry = join(event)
    first, second = decide(
        make_hold_request(event, entry, seats=["hall-A-1"]), make_hold_request(event, entry, seats=["hall-A-2"])
    )
    assert isinstance(first, reservations.Held)
    assert refusal(second).extra == {"reservation": str(first.reservation_id)}


def test_a_refusal_is_not_stored() -> None:
    event = make_event()
    rival = hold(event, seats=["hall-A-1"])
    entry = join(event)
    (refused,) = decide(make_hold_request(event, entry, key="once", seats=["hall-A-1"]))
    assert refusal(refused).type == "seats-unavailable"
    reservations.release(rival.id, who="test")
    (held,) = decide(make_hold_request(event, entry, key="once", seats=["hall-A-1"]))
    assert isinstance(held, reservations.Held)


def test_the_same_response_is_returned_after_the_admission_expired() -> None:
    event = make_event()
    entry = join(event)
    first = decide(make_hold_request(event, entry, key="once", seats=["hall-A-1"]))
    from apps.queue.models import QueueEntry

    QueueEntry.objects.filter(pk=entry.id).update(admission_expires_at=clock.now() - timedelta(minutes=1))
    assert decide(make_hold_request(event, entry, key="once", seats=["hall-A-1"])) == first
    reservations.release(first[0].reservation_id, who="test")  # type: ignore[union-attr]
    (refused,) = decide(make_hold_request(event, entry, seats=["hall-A-1"]))
    assert refusal(refused).type == "admission-expired"


def test_seats_past_their_deadline_are_sold_without_waiting_for_a_sweep() -> None:
    event = make_event(general_admission=2)
    backdate_deadline(hold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=2).id)
    named, tickets = decide(
        make_hold_request(event, seats=["hall-A-1"]), make_hold_request(event, ga_section="floor", ga_quantity=2)
    )
    assert isinstance(named, reservations.Held)
    assert isinstance(tickets, reservations.Held)


def test_a_buyer_whose_own_reservation_lapsed_can_hold_again() -> None:
    event = make_event()
    entry = join(event)
    first = hold(event, entry, seats=["hall-A-1"])
    backdate_deadline(first.id)
    (outcome,) = decide(make_hold_request(event, entry, seats=["hall-A-1"]))
    assert isinstance(outcome, reservations.Held)
    assert reservations.get_reservation(first.id).status == "expired"


def test_caps_count_what_the_buyer_holds_and_has_bought() -> None:
    event = make_event(general_admission=20, per_buyer_max=3)
    visitor = "visitor-with-a-cap"
    first = hold(event, join(event, visitor_id=visitor), ga_section="floor", ga_quantity=2)
    begin_payment(first.id)
    confirm(first.id, clock.now())
    entry = join(event, visitor_id=visitor)
    assert entry.id != first.entry_id
    (refused,) = decide(make_hold_request(event, entry, ga_section="floor", ga_quantity=2))
    assert refusal(refused).extra == {"cap": 3}
    (held,) = decide(make_hold_request(event, entry, ga_section="floor", ga_quantity=1))
    assert isinstance(held, reservations.Held)


def test_a_lapsed_reservation_does_not_count_against_the_cap() -> None:
    event = make_event(general_admission=20, per_buyer_max=2)
    entry = join(event)
    backdate_deadline(hold(event, entry, ga_section="floor", ga_quantity=2).id)
    (held,) = decide(make_hold_request(event, entry, ga_section="floor", ga_quantity=2))
    assert isinstance(held, reservations.Held)


def test_best_available_takes_neighboring_seats_of_the_best_row() -> None:
    event = make_event()
    view = hold(event, best_available={"section": "hall", "quantity": 4})
    assert {seat.row for seat in view.seats} == {"A"}
    numbers = sorted(int(seat.number) for seat in view.seats)
    assert numbers == list(range(numbers[0], numbers[0] + 4))


def test_best_available_of_one_batch_never_chooses_a_seat_twice() -> None:
    event = make_event(rows=2, seats_per_row=8)
    outcomes = decide(*(make_hold_request(event, best_available={"section": "hall", "quantity": 4}) for _ in range(5)))
    won = [outcome for outcome in outcomes if isinstance(outcome, reservations.Held)]
    assert len(won) == 4
    assert refusal(outcomes[4]).type == "sold-out"
    assert SeatInventory.objects.filter(status=SeatInventory.Status.HELD).count() == 16


def test_best_available_leaves_accessible_seats_to_buyers_who_request_them() -> None:
    event = make_event(rows=1, seats_per_row=4, accessible=frozenset({"hall-A-1", "hall-A-2"}))
    (refused,) = decide(make_hold_request(event, best_available={"section": "hall", "quantity": 3}))
    assert refusal(refused).extra == {"available": 2}
    chosen = hold(event, best_available={"section": "hall", "quantity": 2, "accessible": True, "companions": 1})
    assert [seat.seat_id for seat in chosen.seats] == ["hall-A-2", "hall-A-3"]


def test_released_inventory_is_free_again_and_the_ledger_records_it() -> None:
    event = make_event(general_admission=5)
    view = hold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=5)
    assert reservations.release(view.id, who="visitor:x").status == "canceled"
    assert reservations.release(view.id, who="visitor:x").status == "canceled"
    assert sorted(reservations.free_by_event(events.section_slugs([event.id]))[event.id].values()) == [5, 50]
    story = ReservationTransition.objects.filter(reservation_id=view.id).values_list("from_status", "to_status", "why")
    assert list(story) == [("", "pending_payment", "hold"), ("pending_payment", "canceled", "released")]
    assert_audit_clean()


def test_nothing_is_held_before_the_opening_or_after_the_closing() -> None:
    event = make_event(seats_per_row=2, closes_at=clock.now() + timedelta(days=1))
    entry = join(event)
    request = make_hold_request(event, entry, seats=["hall-A-1"])
    from dataclasses import replace

    early = replace(event, policy=replace(event.policy, opens_at=clock.now() + timedelta(hours=1)))
    (refused,) = decide(replace(request, event=early))
    assert refusal(refused).type == "not-on-sale"
    late = replace(event, policy=replace(event.policy, closes_at=clock.now() - timedelta(hours=1)))
    (refused,) = decide(replace(request, event=late))
    assert refusal(refused).type == "not-on-sale"


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({}, "body"),
        ({"seats": "hall-A-1"}, "seats"),
        ({"seats": ["hall-A-1", "hall-A-1"]}, "seats"),
        ({"seats": ["hall-Z-1"]}, "seats"),
        ({"seats": ["\x00"]}, "seats"),
        ({"seats": ["\ud800"]}, "seats"),
        ({"seats": [7]}, "seats"),
        ({"seats": [f"hall-A-{n}" for n in range(1, 10)]}, "seats"),
        ({"ga_section": "floor"}, "ga_quantity"),
        ({"ga_section": "floor", "ga_quantity": True}, "ga_quantity"),
        ({"ga_section": "floor", "ga_quantity": -1}, "ga_quantity"),
        ({"ga_section": "floor", "ga_quantity": 10**30}, "ga_quantity"),
        ({"ga_section": "hall", "ga_quantity": 1}, "ga_section"),
        ({"ga_quantity": 1}, "ga_section"),
        ({"ga_section": "floor", "ga_quantity": 9}, "body"),
        ({"best_available": []}, "best_available"),
        ({"best_available": {"section": "floor", "quantity": 1}}, "best_available"),
        ({"best_available": {"section": "hall", "quantity": 1, "companions": 1}}, "best_available"),
        ({"best_available": {"section": "hall", "quantity": 1, "category": "Nope"}}, "best_available"),
        ({"best_available": {"section": "hall", "quantity": 1, "color": "red"}}, "best_available"),
        ({"seats": ["hall-A-1"], "color": "red"}, "color"),
        ({"seats": ["hall-A-1"], "replace": "x"}, "replace"),
    ],
)
def test_a_request_that_can_never_succeed_names_its_field(payload: dict[str, object], field: str) -> None:
    event = make_event(general_admission=20)
    with pytest.raises(problems.Invalid) as refused:
        make_hold_request(event, **payload)
    assert field in refused.value.extra["errors"]
