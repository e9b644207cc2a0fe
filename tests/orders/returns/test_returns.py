"""Tickets given back, in part or whole, by buyers and by staff: what comes back, what stands, and that both together
are always what was captured."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.events import facade as events
from apps.events.models import Event
from apps.events.pricing import calculate_bill
from apps.kernel import clock
from apps.kernel.http import problems
from apps.orders import return_quotes
from apps.orders.cancellation import order_cancellation
from apps.orders.errors import (
    AmountChanged,
    AmountTooLarge,
    OrderNotReturnable,
    RefundNotFailed,
    ReturnNotAllowed,
    TicketsCheckedIn,
    TicketsNotValid,
)
from apps.orders.models import (
    Order,
    OrderAdjustment,
    OrderLine,
    OrganizerMessage,
    Payment,
    PaymentDifference,
    Refund,
    ReturnPolicy,
    SandboxRefund,
    Ticket,
)
from apps.orders.payments import refunds
from apps.orders.payments.providers.protocol import RefundAnswer, RefundState
from apps.orders.provider_sync import daily_comparison, discrepancies
from apps.orders.returns import returns
from apps.orders.selectors import get_order
from apps.reservations import facade as reservations
from tests.support.factories import SEAT_PRICE_MINOR, assert_audit_clean, hold, make_event
from tests.support.orders.sale import SAME_ORIGIN, buy, deliver_outbox
from tests.support.orders.webhook_endpoints import make_feed_key
from tests.support.races import storm
from tests.support.reservations.buyers import get_general_admission, seat
from tests.support.tiers import examples

pytestmark = pytest.mark.django_db(transaction=True)
STAFF = {"who": "staff:7", "why": "the singer is ill"}


@pytest.fixture(autouse=True)
def _audit() -> Any:
    yield
    assert_audit_clean()


def allow(event: events.EventView, *, hours: int = 24, keeps_fees: bool = True) -> None:
    ReturnPolicy.objects.create(event_id=event.id, until_hours=hours, keeps_fees=keeps_fees)


def bought(event: events.EventView, **payload: Any) -> Order:
    return buy(hold(event, **(payload or {"seats": ["hall-A-1", "hall-A-2"], "ga_section": "floor", "ga_quantity": 2})))


@pytest.fixture
def order() -> Order:
    """Two seats and two places on the floor."""
    event = make_event(general_admission=10)
    allow(event)
    return bought(event)


def codes(order: Order) -> list[str]:
    return list(Ticket.objects.filter(order=order, voided_at=None).order_by("id").values_list("code", flat=True))


def give(order: Order, tickets: list[str], key: str = "key") -> dict[str, Any]:
    answer = returns.return_idempotently(order.pk, {"tickets": tickets}, key)
    assert answer.status == 202
    return json.loads(answer.body)


def test_a_buyer_returns_one_ticket_and_has_its_price_back(order) -> None:
    mail.outbox.clear()
    said = give(order, codes(order)[:1])
    assert (said["status"], said["amount_minor"], said["kept_minor"]) == ("partly_refunded", SEAT_PRICE_MINOR, 0)
    deliver_outbox()
    order.refresh_from_db()
    assert Refund.objects.get().status == Refund.Status.SUCCEEDED
    assert SandboxRefund.objects.get().amount_minor == SEAT_PRICE_MINOR
    assert len(codes(order)) == 3
    assert seat("hall-A-1").status == 0
    (note,) = mail.outbox
    assert "Hall, row A, seat 1" in note.body
    assert "$50.00 goes back" in note.body


def test_the_organizer_is_told_which_tickets_came_back(order) -> None:
    make_feed_key()
    (code, *_) = codes(order)
    give(order, [code])
    (told,) = OrganizerMessage.objects.all()
    assert (told.kind, told.body["order"]["status"]) == ("order.partly_refunded", "partly_refunded")
    assert [(one["code"], one["valid"]) for one in told.body["tickets"]] == [(code, False)]


def test_tickets_come_back_one_after_the_other_until_nothing_stands(order) -> None:
    for number, code in enumerate(codes(order)):
        said = give(order, [code], f"key {number}")
    assert said["status"] == "refunded"
    deliver_outbox()
    order.refresh_from_db()
    assert (order.status, order.reason) == (Order.Status.REFUNDED, Order.Reason.RETURNED)
    payment = Payment.objects.get()
    assert payment.refunded_minor == payment.captured_minor == order.total_minor
    assert reservations.get_reservation(order.reservation_id).status == "canceled"
    assert (seat("hall-A-1").status, seat("hall-A-2").status, get_general_admission().taken) == (0, 0, 0)


def test_the_same_key_has_the_same_answer_and_another_body_is_refused(order) -> None:
    first, second = codes(order)[:2]
    answers = [returns.return_idempotently(order.pk, {"tickets": [first]}, "key") for _ in range(2)]
    assert answers[0] == answers[1]
    with pytest.raises(problems.IdempotencyMismatch):
        returns.return_idempotently(order.pk, {"tickets": [second]}, "key")
    with pytest.raises(TicketsNotValid):
        returns.return_idempotently(order.pk, {"tickets": [first]}, "another")
    assert Refund.objects.count() == 1


@pytest.mark.parametrize(
    "payload",
    [{}, {"tickets": []}, {"tickets": "x"}, {"tickets": [1]}, {"tickets": ["a", "a"]}, {"tickets": ["a"] * 201},
     {"tickets": ["nobody's"]}, {"tickets": ["ä"]}, {"tickets": ["a"], "why": "x"}],
)  # fmt: skip
def test_what_names_no_tickets_of_the_order_is_refused_by_field(order, payload) -> None:
    with pytest.raises(problems.Invalid):
        returns.return_idempotently(order.pk, payload, "key")


def test_another_order_s_tickets_are_not_given_back(order) -> None:
    other = bought(events.get_event("concert"), seats=["hall-B-1"])
    with pytest.raises(problems.Invalid):
        give(order, codes(other))
    assert len(codes(other)) == 1


def test_without_a_policy_a_buyer_returns_nothing() -> None:
    order = bought(make_event(), seats=["hall-A-1"])
    with pytest.raises(ReturnNotAllowed):
        give(order, codes(order))


def test_when_the_time_is_over_a_buyer_returns_nothing(order) -> None:
    Event.objects.update(starts_at=clock.now() + timedelta(hours=24))
    with pytest.raises(ReturnNotAllowed) as refused:
        give(order, codes(order)[:1])
    assert refused.value.extra["until"]


def test_who_is_inside_stays_inside_unless_staff_says_so(order) -> None:
    Ticket.objects.filter(code=codes(order)[0]).update(checked_in_at=clock.now())
    with pytest.raises(TicketsCheckedIn) as refused:
        give(order, codes(order))
    assert refused.value.extra["tickets"] == codes(order)[:1]
    with pytest.raises(TicketsCheckedIn):
        returns.return_by_staff(order.pk, codes(order)[:1], (), **STAFF)
    returns.return_by_staff(order.pk, codes(order)[:1], (), also_checked_in=True, **STAFF)
    assert len(codes(order)) == 3


def test_staff_may_keep_the_places_from_being_sold_again(order) -> None:
    given = codes(order)
    returns.return_by_staff(order.pk, [given[0], given[2]], (), keep_off_sale=True, **STAFF)
    assert seat("hall-A-1").blocked_for == "house"
    assert (get_general_admission().taken, get_general_admission().house) == (1, 1)


def test_goodwill_leaves_the_tickets_valid_and_is_not_given_twice(order) -> None:
    total = order.total_minor
    returns.give_goodwill(order.pk, 1_000, seen_minor=total, **STAFF)
    with pytest.raises(AmountChanged):
        returns.give_goodwill(order.pk, 1_000, seen_minor=total, **STAFF)
    with pytest.raises(AmountTooLarge):
        returns.give_goodwill(order.pk, total, **STAFF)
    with pytest.raises(problems.Invalid):
        returns.give_goodwill(order.pk, 0, **STAFF)
    order.refresh_from_db()
    assert order.status == Order.Status.PARTLY_REFUNDED
    assert len(codes(order)) == 4
    # Of the last tickets that much less comes back.
    assert give(order, codes(order))["amount_minor"] == total - 1_000


def test_an_order_that_is_given_back_whole_after_parts_of_it_owes_nothing(order) -> None:
    returns.give_goodwill(order.pk, 1_000, **STAFF)
    give(order, codes(order)[:1])
    assert order_cancellation.refund_order(order.pk, "staff:7")
    deliver_outbox()
    payment = Payment.objects.get()
    assert payment.refunded_minor == payment.captured_minor
    assert sum(Refund.objects.values_list("amount_minor", flat=True)) == payment.captured_minor


def test_staff_sees_the_amount_it_decided_on_or_is_refused(order) -> None:
    given = codes(order)[:1]
    with pytest.raises(AmountChanged):
        returns.return_by_staff(order.pk, given, (), seen_minor=1, **STAFF)
    assert returns.return_by_staff(order.pk, given, (), seen_minor=SEAT_PRICE_MINOR, **STAFF).back_minor


@pytest.mark.parametrize("status", ["placed", "canceled"])
def test_an_unpaid_order_has_nothing_to_return(status) -> None:
    event = make_event()
    allow(event)
    order = buy(hold(event, seats=["hall-A-1"]), "sandbox_decline")
    if status == "canceled":
        order_cancellation.cancel_order(order.pk)
    with pytest.raises(OrderNotReturnable):
        give(order, ["x"])
    with pytest.raises(OrderNotReturnable):
        returns.give_goodwill(order.pk, 1, **STAFF)


def test_a_free_order_is_returned_without_money() -> None:
    event = make_event(price_minor=0)
    allow(event)
    order = bought(event, seats=["hall-A-1", "hall-A-2"])
    assert give(order, codes(order)[:1])["amount_minor"] == 0
    assert give(order, codes(order), "rest")["status"] == "refunded"
    assert not Refund.objects.exists()


def test_a_failed_refund_is_sent_again_once_under_a_key_of_its_own(order) -> None:
    give(order, codes(order)[:1])
    refund = Refund.objects.get()
    with pytest.raises(RefundNotFailed):
        refunds.retry_refund(refund.pk, "staff:7")
    deliver_outbox()
    Refund.objects.update(status=Refund.Status.FAILED, failure="account closed")
    assert get_order(order.pk).refunds[0].words == "Your bank refused it; the organizer will contact you."
    outcomes = storm(4, lambda _: refunds.retry_refund(refund.pk, "staff:7"))
    assert sum(outcome.error is None for outcome in outcomes) == 1
    deliver_outbox()
    assert Refund.objects.get(replaces=refund).status == Refund.Status.SUCCEEDED
    assert [shown.state for shown in get_order(order.pk).refunds] == ["succeeded"]


def failed_refund(order: Order) -> Refund:
    """A ticket's refund that its bank has refused, and that is listed."""
    give(order, codes(order)[:1])
    deliver_outbox()
    Refund.objects.update(status=Refund.Status.FAILED, failure="account closed")
    discrepancies.record_failed_refunds()
    return Refund.objects.get()


def test_a_refund_that_no_bank_takes_is_paid_out_by_other_means_and_its_buyer_reads_so(order) -> None:
    refund = failed_refund(order)
    before = Payment.objects.get().refunded_minor
    with pytest.raises(problems.Invalid):
        refunds.record_payout(refund.pk, " \x00\n", "staff:7")
    refunds.record_payout(refund.pk, "Cash at the box office,\nreceipt 17\x00", "staff:7")
    refund.refresh_from_db()
    assert (refund.status, refund.paid_out_by) == (Refund.Status.PAID_OUT, "staff:7")
    assert refund.paid_out_note == "Cash at the box office, receipt 17"
    assert refund.failure == "account closed"
    (shown,) = get_order(order.pk).refunds
    assert "paid it out to you by other means" in shown.words
    assert shown.contract()["state"] == "paid_out"
    assert "receipt 17" not in str(shown.contract())
    (listed,) = PaymentDifference.objects.all()
    assert (listed.settled_by, listed.note) == (
        "staff:7",
        "paid out by other means: Cash at the box office, receipt 17",
    )
    assert Payment.objects.get().refunded_minor == before
    for act in (
        lambda: refunds.retry_refund(refund.pk, "staff:7"),
        lambda: refunds.record_payout(refund.pk, "x", "staff:7"),
    ):
        with pytest.raises(RefundNotFailed):
            act()
    assert discrepancies.record_failed_refunds() == 0
    assert daily_comparison.compare_day("sandbox", clock.now().date())[0] == 1


def test_of_all_who_see_to_a_failed_refund_at_once_one_does(order) -> None:
    """All wait for the order's lock; who comes second reads that it was paid out, or sent again."""
    refund = failed_refund(order)

    def act(number: int) -> object:
        if number % 2:
            return refunds.retry_refund(refund.pk, "staff:7")
        return refunds.record_payout(refund.pk, f"cash {number}", "staff:7")

    outcomes = storm(6, act)
    assert sum(outcome.error is None for outcome in outcomes) == 1
    deliver_outbox()


def test_a_word_of_the_provider_s_about_what_was_paid_out_is_listed_and_changes_nothing(order) -> None:
    """The bank took it after all: the buyer has it twice, and a person must know."""
    refund = failed_refund(order)
    refunds.record_payout(refund.pk, "cash", "staff:7")
    refunds.record_refund_answer(refund.pk, order.pk, RefundAnswer("re_1", RefundState.SUCCEEDED))
    refund.refresh_from_db()
    assert refund.status == Refund.Status.PAID_OUT
    daily_comparison.compare_day("sandbox", clock.now().date())
    assert list(PaymentDifference.objects.filter(settled_at=None).values_list("kind", flat=True)) == [
        "unsettled_refund"
    ]


def test_staff_says_at_the_desk_how_it_was_paid_out(order, admin_client) -> None:
    refund = failed_refund(order)
    desk = f"/admin/orders/order/{order.pk}/money/"
    assert "Paid out by other means" in admin_client.get(desk).content.decode()
    sent = {"action": "paid_out", "refund": str(refund.pk)}
    assert admin_client.post(desk, sent, headers=SAME_ORIGIN).status_code == 422
    assert admin_client.post(desk, {**sent, "note": "Cash, receipt 17"}, headers=SAME_ORIGIN).status_code == 302
    page = admin_client.get(desk).content.decode()
    assert "Cash, receipt 17" in page
    assert 'value="paid_out"' not in page
    assert admin_client.post(desk, {**sent, "note": "again"}, headers=SAME_ORIGIN).status_code == 409


# --- races -----------------------------------------------------------------------------------------------------------


def test_of_eight_tabs_that_return_one_ticket_one_does(order) -> None:
    """Each has a key of its own. All wait for the order's lock; seven read a void ticket under it."""
    one = codes(order)[:1]
    outcomes = storm(8, lambda number: give(order, one, f"tab {number}"))
    assert sum(outcome.error is None for outcome in outcomes) == 1
    assert Refund.objects.get().amount_minor == SEAT_PRICE_MINOR


def test_returns_goodwill_and_a_whole_refund_at_once_give_back_what_was_captured(order) -> None:
    """All of them are decided under the order's lock, in some order: whatever it is, the sum is what was captured."""
    given = codes(order)

    def act(number: int) -> object:
        if number == 4:
            return order_cancellation.refund_order(order.pk, "staff:7")
        if number == 5:
            return returns.give_goodwill(order.pk, 700, **STAFF)
        return give(order, [given[number]], f"tab {number}")

    for outcome in storm(6, act):
        assert outcome.error is None or isinstance(outcome.error, problems.Problem), outcome.error
    deliver_outbox()
    payment = Payment.objects.get()
    assert payment.refunded_minor == payment.captured_minor
    assert sum(Refund.objects.values_list("amount_minor", flat=True)) == payment.captured_minor


# --- arithmetic ------------------------------------------------------------------------------------------------------

MONEY = st.integers(0, 10**6)


@st.composite
def made_of(draw: Any) -> list[OrderLine]:
    """The lines of some order, tax included or added, with fees and discounts, as checkout would have written them."""
    policy = events.PricePolicy(tax_rate=draw(st.sampled_from([0, 700, 10_000])), tax_included=draw(st.booleans()))
    found = []
    for number in range(draw(st.integers(1, 6))):
        price, fee = draw(MONEY), draw(MONEY)
        discount = draw(st.integers(0, price))
        tax, total = policy.taxed(price - discount + fee)
        found.append(
            OrderLine(
                pk=number + 1, kind="place", description=f"place {number}", price_minor=price, discount_minor=discount,
                fee_minor=fee, tax_rate=policy.tax_rate, tax_included=policy.tax_included, tax_minor=tax,
                total_minor=total,
            )
        )  # fmt: skip
    if draw(st.booleans()):
        tax, total = policy.taxed(500)
        found.append(OrderLine(pk=99, kind="fee", description="fee", price_minor=500, tax_minor=tax, total_minor=total))
    return found


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order_lines=made_of(), data=st.data())
def test_whatever_is_returned_in_whatever_steps_all_of_it_is_what_was_captured(order_lines, data) -> None:
    captured = sum(line.total_minor for line in order_lines)
    adjusted = refunded = 0
    while True:
        standing = [line for line in order_lines if line.canceled_at is None]
        owed = sum(line.total_minor for line in standing) + adjusted
        assert captured == refunded + owed
        assert owed >= 0
        places_left = [line.pk for line in standing if line.kind == "place"]
        if not places_left:
            break
        if owed and data.draw(st.booleans()):
            goodwill = data.draw(st.integers(1, owed))
            adjusted, refunded = adjusted - goodwill, refunded + goodwill
            continue
        chosen = data.draw(st.sets(st.sampled_from(places_left), min_size=1))
        fees_back = data.draw(st.sets(st.sampled_from(sorted(chosen))))
        quoted = return_quotes.quote(order_lines, adjusted, chosen, fees_back)
        assert quoted.back_minor >= 0
        for line in order_lines:
            if line.pk in {*(one.line_id for one in quoted.lines), *quoted.order_fees}:
                line.canceled_at = clock.process_now()
        adjusted += quoted.kept_minor + quoted.settled_minor
        refunded += quoted.back_minor


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order_lines=made_of())
def test_who_returns_all_with_fees_has_all_back_and_without_them_less(order_lines) -> None:
    every = {line.pk for line in order_lines if line.kind == "place"}
    total = sum(line.total_minor for line in order_lines)
    assert return_quotes.quote(order_lines, 0, every, every).back_minor == total
    kept = return_quotes.quote(order_lines, 0, every, ())
    fees = sum(line.total_minor for line in order_lines if line.kind == "fee")
    assert kept.back_minor + kept.kept_minor + fees == total


def test_a_kept_fee_is_on_record_and_can_still_be_given_back(monkeypatch) -> None:
    fees = events.PricePolicy(ticket_fee_minor=150)
    monkeypatch.setattr(events, "calculate_bill", lambda wanted, policy, *codes: calculate_bill(wanted, fees, *codes))
    event = make_event()
    allow(event)
    order = bought(event, seats=["hall-A-1"])
    said = give(order, codes(order))
    assert (said["amount_minor"], said["kept_minor"], said["status"]) == (SEAT_PRICE_MINOR, 150, "refunded")
    assert OrderAdjustment.objects.get().amount_minor == 150
    assert_audit_clean()
    returns.give_goodwill(order.pk, 150, **STAFF)
    payment = Payment.objects.get()
    assert payment.refunded_minor == payment.captured_minor
