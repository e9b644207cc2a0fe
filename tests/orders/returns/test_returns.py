"""Returns of some or all tickets, by buyers and by staff: the refunded and the kept amount always add up to the
captured amount."""

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
from tests.support.orders.sandbox_rows import SandboxRefund
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
    """A paid order of two seats and two floor tickets."""
    event = make_event(general_admission=10)
    allow(event)
    return bought(event)


def codes(order: Order) -> list[str]:
    return list(Ticket.objects.filter(order=order, voided_at=None).order_by("id").values_list("code", flat=True))


def return_tickets(order: Order, tickets: list[str], key: str = "key") -> dict[str, Any]:
    answer = returns.return_idempotently(order.pk, {"tickets": tickets}, key)
    assert answer.status == 202
    return json.loads(answer.body)


def test_a_buyer_returns_one_ticket_and_is_refunded_its_price(order) -> None:
    mail.outbox.clear()
    response = return_tickets(order, codes(order)[:1])
    assert (response["status"], response["amount_minor"], response["kept_minor"]) == (
        "partly_refunded",
        SEAT_PRICE_MINOR,
        0,
    )
    deliver_outbox()
    order.refresh_from_db()
    assert Refund.objects.get().status == Refund.Status.SUCCEEDED
    assert SandboxRefund.objects.get().amount_minor == SEAT_PRICE_MINOR
    assert len(codes(order)) == 3
    assert seat("hall-A-1").status == 0
    (note,) = mail.outbox
    assert "Hall, row A, seat 1" in note.body
    assert "$50.00 goes back" in note.body


def test_the_organizer_is_notified_of_the_returned_tickets(order) -> None:
    make_feed_key()
    (code, *_) = codes(order)
    return_tickets(order, [code])
    (message,) = OrganizerMessage.objects.all()
    assert (message.kind, message.body["order"]["status"]) == ("order.partly_refunded", "partly_refunded")
    assert [(ticket["code"], ticket["valid"]) for ticket in message.body["tickets"]] == [(code, False)]


def test_tickets_are_returned_one_by_one_until_none_is_valid(order) -> None:
    for number, code in enumerate(codes(order)):
        response = return_tickets(order, [code], f"key {number}")
    assert response["status"] == "refunded"
    deliver_outbox()
    order.refresh_from_db()
    assert (order.status, order.reason) == (Order.Status.REFUNDED, Order.Reason.RETURNED)
    payment = Payment.objects.get()
    assert payment.refunded_minor == payment.captured_minor == order.total_minor
    assert reservations.get_reservation(order.reservation_id).status == "canceled"
    assert (seat("hall-A-1").status, seat("hall-A-2").status, get_general_admission().taken) == (0, 0, 0)


def test_the_same_key_gets_the_same_response_and_another_body_is_refused(order) -> None:
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
     {"tickets": ["unknown"]}, {"tickets": ["ä"]}, {"tickets": ["a"], "why": "x"}],
)  # fmt: skip
def test_invalid_ticket_lists_are_refused_by_field(order, payload) -> None:
    with pytest.raises(problems.Invalid):
        returns.return_idempotently(order.pk, payload, "key")


def test_another_orders_tickets_are_not_returned(order) -> None:
    other = bought(events.get_event("concert"), seats=["hall-B-1"])
    with pytest.raises(problems.Invalid):
        return_tickets(order, codes(other))
    assert len(codes(other)) == 1


def test_without_a_policy_a_buyer_cannot_return_tickets() -> None:
    order = bought(make_event(), seats=["hall-A-1"])
    with pytest.raises(ReturnNotAllowed):
        return_tickets(order, codes(order))


def test_after_the_return_period_a_buyer_cannot_return_tickets(order) -> None:
    Event.objects.update(starts_at=clock.now() + timedelta(hours=24))
    with pytest.raises(ReturnNotAllowed) as refused:
        return_tickets(order, codes(order)[:1])
    assert refused.value.extra["until"]


def test_checked_in_tickets_are_returned_only_if_staff_allows_it(order) -> None:
    Ticket.objects.filter(code=codes(order)[0]).update(checked_in_at=clock.now())
    with pytest.raises(TicketsCheckedIn) as refused:
        return_tickets(order, codes(order))
    assert refused.value.extra["tickets"] == codes(order)[:1]
    with pytest.raises(TicketsCheckedIn):
        returns.return_by_staff(order.pk, codes(order)[:1], (), **STAFF)
    returns.return_by_staff(order.pk, codes(order)[:1], (), also_checked_in=True, **STAFF)
    assert len(codes(order)) == 3


def test_staff_can_keep_returned_seats_off_sale(order) -> None:
    given = codes(order)
    returns.return_by_staff(order.pk, [given[0], given[2]], (), keep_off_sale=True, **STAFF)
    assert seat("hall-A-1").blocked_for == "house"
    assert (get_general_admission().taken, get_general_admission().house) == (1, 1)


def test_goodwill_keeps_the_tickets_valid_and_is_not_refunded_twice(order) -> None:
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
    # The refund of the last tickets is lower by that amount.
    assert return_tickets(order, codes(order))["amount_minor"] == total - 1_000


def test_an_order_fully_refunded_after_partial_returns_owes_nothing(order) -> None:
    returns.give_goodwill(order.pk, 1_000, **STAFF)
    return_tickets(order, codes(order)[:1])
    assert order_cancellation.refund_order(order.pk, "staff:7")
    deliver_outbox()
    payment = Payment.objects.get()
    assert payment.refunded_minor == payment.captured_minor
    assert sum(Refund.objects.values_list("amount_minor", flat=True)) == payment.captured_minor


def test_a_return_is_refused_if_the_amount_changed_since_staff_saw_it(order) -> None:
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
        return_tickets(order, ["x"])
    with pytest.raises(OrderNotReturnable):
        returns.give_goodwill(order.pk, 1, **STAFF)


def test_a_free_order_is_returned_without_money() -> None:
    event = make_event(price_minor=0)
    allow(event)
    order = bought(event, seats=["hall-A-1", "hall-A-2"])
    assert return_tickets(order, codes(order)[:1])["amount_minor"] == 0
    assert return_tickets(order, codes(order), "rest")["status"] == "refunded"
    assert not Refund.objects.exists()


def test_a_failed_refund_is_retried_once_with_a_new_key(order) -> None:
    return_tickets(order, codes(order)[:1])
    refund = Refund.objects.get()
    with pytest.raises(RefundNotFailed):
        refunds.retry_refund(refund.order_id, refund.pk, "staff:7")
    deliver_outbox()
    Refund.objects.update(status=Refund.Status.FAILED, failure="account closed")
    assert get_order(order.pk).refunds[0].words == "Your bank rejected the refund. The organizer will contact you."
    outcomes = storm(4, lambda _: refunds.retry_refund(refund.order_id, refund.pk, "staff:7"))
    assert sum(outcome.error is None for outcome in outcomes) == 1
    deliver_outbox()
    assert Refund.objects.get(replaces=refund).status == Refund.Status.SUCCEEDED
    assert [shown.state for shown in get_order(order.pk).refunds] == ["succeeded"]


def failed_refund(order: Order) -> Refund:
    """Return a ticket's refund that the bank has rejected and that is listed."""
    return_tickets(order, codes(order)[:1])
    deliver_outbox()
    Refund.objects.update(status=Refund.Status.FAILED, failure="account closed")
    discrepancies.record_failed_refunds()
    return Refund.objects.get()


def test_a_rejected_refund_is_paid_out_by_other_means_and_shown_to_the_buyer(order) -> None:
    refund = failed_refund(order)
    before = Payment.objects.get().refunded_minor
    with pytest.raises(problems.Invalid):
        refunds.record_payout(refund.order_id, refund.pk, " \x00\n", "staff:7")
    refunds.record_payout(refund.order_id, refund.pk, "Cash at the box office,\nreceipt 17\x00", "staff:7")
    refund.refresh_from_db()
    assert (refund.status, refund.paid_out_by) == (Refund.Status.PAID_OUT, "staff:7")
    assert refund.paid_out_note == "Cash at the box office, receipt 17"
    assert refund.failure == "account closed"
    (shown,) = get_order(order.pk).refunds
    assert "the organizer paid you by other means" in shown.words
    assert shown.contract()["state"] == "paid_out"
    assert "receipt 17" not in str(shown.contract())
    (listed,) = PaymentDifference.objects.all()
    assert (listed.settled_by, listed.note) == (
        "staff:7",
        "paid out by other means: Cash at the box office, receipt 17",
    )
    assert Payment.objects.get().refunded_minor == before
    for act in (
        lambda: refunds.retry_refund(refund.order_id, refund.pk, "staff:7"),
        lambda: refunds.record_payout(refund.order_id, refund.pk, "x", "staff:7"),
    ):
        with pytest.raises(RefundNotFailed):
            act()
    assert discrepancies.record_failed_refunds() == 0
    assert daily_comparison.compare_day("sandbox", clock.now().date())[0] == 1


def test_a_failed_refund_is_handled_only_with_its_own_order(order) -> None:
    refund = failed_refund(order)
    other = bought(make_event("other"), seats=["hall-A-1"])
    for act in (
        lambda: refunds.retry_refund(other.pk, refund.pk, "staff:7"),
        lambda: refunds.record_payout(other.pk, refund.pk, "cash", "staff:7"),
    ):
        with pytest.raises(RefundNotFailed):
            act()
    assert Refund.objects.get().status == Refund.Status.FAILED


def test_of_concurrent_retries_and_payouts_of_a_failed_refund_one_succeeds(order) -> None:
    """All wait for the order's lock; the second reads that the refund was paid out or requested again."""
    refund = failed_refund(order)

    def act(number: int) -> object:
        if number % 2:
            return refunds.retry_refund(refund.order_id, refund.pk, "staff:7")
        return refunds.record_payout(refund.order_id, refund.pk, f"cash {number}", "staff:7")

    outcomes = storm(6, act)
    assert sum(outcome.error is None for outcome in outcomes) == 1
    deliver_outbox()


def test_a_provider_message_about_a_paid_out_refund_is_listed_and_changes_nothing(order) -> None:
    """The bank accepted the refund after all: the buyer has the money twice, so staff must know."""
    refund = failed_refund(order)
    refunds.record_payout(refund.order_id, refund.pk, "cash", "staff:7")
    refunds.record_refund_answer(refund.pk, order.pk, RefundAnswer("re_1", RefundState.SUCCEEDED))
    refund.refresh_from_db()
    assert refund.status == Refund.Status.PAID_OUT
    daily_comparison.compare_day("sandbox", clock.now().date())
    assert list(PaymentDifference.objects.filter(settled_at=None).values_list("kind", flat=True)) == [
        "unsettled_refund"
    ]


def test_staff_records_a_payout_on_the_refund_page(order, admin_client) -> None:
    refund = failed_refund(order)
    desk = f"/admin/orders/order/{order.pk}/money/"
    assert "Mark as paid out" in admin_client.get(desk).content.decode()
    sent = {"action": "paid_out", "refund": str(refund.pk)}
    assert admin_client.post(desk, sent, headers=SAME_ORIGIN).status_code == 422
    assert admin_client.post(desk, {**sent, "note": "Cash, receipt 17"}, headers=SAME_ORIGIN).status_code == 302
    page = admin_client.get(desk).content.decode()
    assert "Cash, receipt 17" in page
    assert 'value="paid_out"' not in page
    assert admin_client.post(desk, {**sent, "note": "again"}, headers=SAME_ORIGIN).status_code == 409


# --- races -----------------------------------------------------------------------------------------------------------


def test_of_eight_tabs_that_return_one_ticket_one_succeeds(order) -> None:
    """Each tab has its own key. All wait for the order's lock; seven read a void ticket under it."""
    one = codes(order)[:1]
    outcomes = storm(8, lambda number: return_tickets(order, one, f"tab {number}"))
    assert sum(outcome.error is None for outcome in outcomes) == 1
    assert Refund.objects.get().amount_minor == SEAT_PRICE_MINOR


def test_concurrent_returns_goodwill_and_a_full_refund_add_up_to_the_capture(order) -> None:
    """All are decided under the order's lock; in any order, the sum is the captured amount."""
    given = codes(order)

    def act(number: int) -> object:
        if number == 4:
            return order_cancellation.refund_order(order.pk, "staff:7")
        if number == 5:
            return returns.give_goodwill(order.pk, 700, **STAFF)
        return return_tickets(order, [given[number]], f"tab {number}")

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
    """Draw an order's lines with fees and discounts, tax included or added, as checkout writes them."""
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
def test_returns_in_any_steps_add_up_to_the_capture(order_lines, data) -> None:
    captured = sum(line.total_minor for line in order_lines)
    adjusted = refunded = 0
    while True:
        standing = [line for line in order_lines if line.canceled_at is None]
        owed = sum(line.total_minor for line in standing) + adjusted
        assert captured == refunded + owed
        assert owed >= 0
        lines_left = [line.pk for line in standing if line.kind == "place"]
        if not lines_left:
            break
        if owed and data.draw(st.booleans()):
            goodwill = data.draw(st.integers(1, owed))
            adjusted, refunded = adjusted - goodwill, refunded + goodwill
            continue
        chosen = data.draw(st.sets(st.sampled_from(lines_left), min_size=1))
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
def test_returning_everything_refunds_the_total_or_the_total_without_fees(order_lines) -> None:
    every = {line.pk for line in order_lines if line.kind == "place"}
    total = sum(line.total_minor for line in order_lines)
    assert return_quotes.quote(order_lines, 0, every, every).back_minor == total
    without_fees = return_quotes.quote(order_lines, 0, every, ())
    fees = sum(line.total_minor for line in order_lines if line.kind == "fee")
    assert without_fees.back_minor + without_fees.kept_minor + fees == total


def test_a_kept_fee_is_recorded_and_can_be_refunded_later(monkeypatch) -> None:
    fees = events.PricePolicy(ticket_fee_minor=150)
    monkeypatch.setattr(events, "calculate_bill", lambda wanted, policy, *codes: calculate_bill(wanted, fees, *codes))
    event = make_event()
    allow(event)
    order = bought(event, seats=["hall-A-1"])
    response = return_tickets(order, codes(order))
    assert (response["amount_minor"], response["kept_minor"], response["status"]) == (SEAT_PRICE_MINOR, 150, "refunded")
    assert OrderAdjustment.objects.get().amount_minor == 150
    assert_audit_clean()
    returns.give_goodwill(order.pk, 150, **STAFF)
    payment = Payment.objects.get()
    assert payment.refunded_minor == payment.captured_minor
