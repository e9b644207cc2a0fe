"""Purchase caps hold per buyer and event under any concurrency (rule 14)."""

from dataclasses import replace
from typing import Any

import pytest

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql
from apps.queue.room import operations
from apps.reservations import facade as reservations
from apps.reservations import payment
from apps.reservations.holds import prior_answers
from tests.support.factories import (
    assert_audit_clean,
    audit_breaches,
    backdate_deadline,
    hold,
    join,
    make_event,
    make_hold_request,
)
from tests.support.races import rival_at, rival_waiting_at, storm, values
from tests.support.reservations.buyers import (
    begin_payment,
    confirm,
    hold_with_retries,
    is_held,
    outcome_types,
    problem_of,
    submit_hold,
)

pytestmark = pytest.mark.django_db(transaction=True)

EMAIL = "one@example.org"


def paying(event: events.EventView, count: int) -> list[reservations.ReservationView]:
    """Return reservations of one seat that different buyers are paying, all with one email address."""
    reservations.prepare_payment(event.id, EMAIL)
    return [begin_payment(hold(event, seats=[f"hall-B-{number}"]).id, EMAIL) for number in range(1, count + 1)]


def test_control_a_cap_counted_without_its_lock_lets_two_payments_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The naive way: count, then write.

    A: counts 1 of 2 paid seats of this address, and pays for 1: fits
    B: counts the same, since A is not committed: fits; COMMIT
    A: COMMIT. The address has paid 3 of at most 2; the auditor names it.
    """
    event = make_event(per_buyer_max=2)
    paid, first, second = paying(event, 3)
    confirm(paid.id, clock.now())
    monkeypatch.setattr(payment, "_lock_caps", sql.Statement("lock_off", "SELECT %(event_ids)s, %(buyers)s"))
    with rival_at("insert_transitions", "before", lambda: confirm(second.id, clock.now())):
        confirm(first.id, clock.now())
    assert any(breach.startswith("I5") and EMAIL in breach for breach in audit_breaches())


def test_two_payments_with_one_email_address_are_counted_one_after_the_other() -> None:
    """A: locks the address's cap row; counts 1 of 2 paid so far: fits
    B: waits for the cap row
    A: COMMIT
    B: has the lock, counts again: 2 of 2; its payment must be refunded
    """
    event = make_event(per_buyer_max=2)
    paid, first, second = paying(event, 3)
    confirm(paid.id, clock.now())
    with rival_waiting_at("insert_transitions", "before", lambda: confirm(second.id, clock.now())) as rival:
        confirm(first.id, clock.now())
    with pytest.raises(reservations.PurchaseCapReached) as refused:
        rival.result()
    assert refused.value.extra == {"cap": 2}
    assert_audit_clean(without_money=True)


def test_of_eight_payments_with_one_email_address_exactly_the_cap_is_confirmed() -> None:
    """All eight checkouts are accepted: each could be a stranger's, who never pays."""
    event = make_event(per_buyer_max=3)
    views = paying(event, 8)

    def pay(number: int) -> str:
        try:
            return str(confirm(views[number].id, clock.now()).status)
        except reservations.PurchaseCapReached:
            return "cap"

    assert sorted(values(storm(8, pay))) == ["cap"] * 5 + ["confirmed"] * 3
    assert_audit_clean(without_money=True)


class OfEntriesOnly:
    """Lets one buyer hold several times, from several queue entries, so that only the cap can refuse."""

    def __init__(self, statement: sql.Statement) -> None:
        self._statement = statement

    def call(self, *, buyers: Any, **params: Any) -> sql.Call:
        return self._statement.call(buyers=["none"], **params)


def test_many_queue_entries_of_one_buyer_hold_exactly_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen tabs of the same buyer, each with its own admission."""
    monkeypatch.setattr(
        prior_answers, "_reservations_of_entries", OfEntriesOnly(prior_answers._reservations_of_entries)
    )
    event = make_event(per_buyer_max=3, general_admission=50)
    tabs = [
        replace(make_hold_request(event, ga_section="floor", ga_quantity=1), buyer="visitor:one-of-many")
        for _ in range(16)
    ]
    outcomes = values(storm(16, lambda number: hold_with_retries(tabs[number])))
    assert outcome_types(outcomes) == ["held"] * 3 + ["purchase-cap"] * 13
    assert_audit_clean()


def test_of_several_entries_of_one_buyer_in_one_batch_the_first_that_fits_the_cap_holds() -> None:
    event = make_event(per_buyer_max=3, general_admission=50)
    tabs = [
        replace(make_hold_request(event, ga_section="floor", ga_quantity=quantity), buyer="visitor:one-of-many")
        for quantity in (4, 2, 1)
    ]
    outcomes = reservations.hold(tabs)
    assert [problem_of(outcomes[0]).type, problem_of(outcomes[2]).type] == ["purchase-cap", "reservation-exists"]
    assert is_held(outcomes[1])
    assert_audit_clean()


def test_a_buyer_who_was_removed_and_joins_again_keeps_the_cap() -> None:
    """The reservation of the removed queue entry is still the buyer's: a second one is refused beside it, and once paid
    it counts toward the cap."""
    event = make_event(per_buyer_max=2)
    visitor = "a-visitor-who-is-sent-away"
    held = hold(event, join(event, visitor_id=visitor), seats=["hall-A-1", "hall-A-2"])
    operations.remove(held.entry_id, who="ann")
    again = join(event, visitor_id=visitor)
    assert problem_of(submit_hold(make_hold_request(event, again, seats=["hall-A-3"]))).type == "reservation-exists"
    begin_payment(held.id, EMAIL)
    confirm(held.id, clock.now())
    assert problem_of(submit_hold(make_hold_request(event, again, seats=["hall-A-3"]))).type == "purchase-cap"
    assert_audit_clean(without_money=True)


def test_a_late_payment_does_not_lift_its_buyer_over_the_cap() -> None:
    """R: the buyer's first reservation, two of at most two, lapses while its payment, made in time, is in transit
    S: sweeps it
    H: the buyer holds two others: within the cap, since the first has expired
    C: the payment arrives: its seats are free, but four would exceed the cap: the money is refunded
    """
    event = make_event(per_buyer_max=2)
    visitor = "a-visitor-in-a-hurry"
    entry = join(event, visitor_id=visitor)
    first = begin_payment(hold(event, entry, seats=["hall-A-1", "hall-A-2"]).id, EMAIL)
    occurred_at = clock.now()
    backdate_deadline(first.id)
    second = hold(event, entry, seats=["hall-B-1", "hall-B-2"])
    with pytest.raises(reservations.ReservationExpired):
        confirm(first.id, occurred_at)
    assert reservations.get_reservation(second.id).status == "pending_payment"
    assert_audit_clean(without_money=True)


def test_a_late_payment_does_not_lift_its_email_address_over_the_cap() -> None:
    """The same with two browsers and one email address: the second has paid after the first was swept."""
    event = make_event(per_buyer_max=2)
    reservations.prepare_payment(event.id, EMAIL)
    first = begin_payment(hold(event, seats=["hall-A-1", "hall-A-2"]).id, EMAIL)
    occurred_at = clock.now()
    backdate_deadline(first.id)
    reservations.sweep()
    second = begin_payment(hold(event, seats=["hall-B-1", "hall-B-2"]).id, EMAIL)
    confirm(second.id, clock.now())
    with pytest.raises(reservations.ReservationExpired):
        confirm(first.id, occurred_at)
    assert_audit_clean(without_money=True)


def test_a_late_payment_within_the_cap_is_confirmed() -> None:
    event = make_event(per_buyer_max=2)
    reservations.prepare_payment(event.id, EMAIL)
    entry = join(event)
    first = begin_payment(hold(event, entry, seats=["hall-A-1"]).id, EMAIL)
    occurred_at = clock.now()
    backdate_deadline(first.id)
    hold(event, entry, seats=["hall-B-1"])
    assert confirm(first.id, occurred_at).status == "confirmed"
    assert_audit_clean(without_money=True)


def test_an_unswept_lapsed_reservation_does_not_block_its_email_address_and_keeps_the_cap_if_it_is_paid() -> None:
    """A payment made in time may still confirm it: then the other payment with its address is refunded."""
    event = make_event(per_buyer_max=2)
    reservations.prepare_payment(event.id, EMAIL)
    first = begin_payment(hold(event, seats=["hall-A-1", "hall-A-2"]).id, EMAIL)
    occurred_at = clock.now()
    backdate_deadline(first.id)
    second = begin_payment(hold(event, seats=["hall-B-1", "hall-B-2"]).id, EMAIL)
    assert confirm(first.id, occurred_at).status == "confirmed"
    with pytest.raises(reservations.PurchaseCapReached):
        confirm(second.id, clock.now())
    assert_audit_clean(without_money=True)
