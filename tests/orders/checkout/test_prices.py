"""A sale with fees and tax: the same total on every page, in every response, at the provider and in the mail."""

from html import unescape
from uuid import UUID

import pytest
from django.core import mail

from apps.events.creation import EventDiffers
from apps.events.facade import PricePolicy
from apps.orders import selectors
from apps.orders.models import Order, OrderLine, Payment
from apps.orders.payments.providers import sandbox
from apps.reservations import facade as reservations
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import SAME_ORIGIN, buy, joined_browser
from tests.support.orders.sandbox_rows import SandboxCharge

pytestmark = pytest.mark.django_db(transaction=True)

# A seat of 50.00: fee 2.50 and 10% of it, tax 20% on top, 69.00; a floor ticket of 25.00: 36.00; order fee: 1.20.
POLICY = PricePolicy(
    ticket_fee_minor=250, ticket_fee_rate=1_000, order_fee_minor=100, tax_rate=2_000, tax_included=False
)
SEAT, PLACE, ORDER_FEE = 6_900, 3_600, 120
TOTAL = SEAT + 2 * PLACE + ORDER_FEE


def held() -> reservations.ReservationView:
    event = make_event(general_admission=10, price_policy=POLICY)
    return hold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=2)


def test_the_quoted_total_is_stored_charged_and_invoiced() -> None:
    reservation = held()
    assert reservation.total_minor == 10_000
    assert reservation.contract()["total_minor"] == 10_000
    assert reservation.contract()["bill"]["total_minor"] == TOTAL
    order = buy(reservation)
    assert order.total_minor == TOTAL
    assert SandboxCharge.objects.get().amount_minor == TOTAL
    frozen = order.lines.values_list("kind", "price_minor", "fee_minor", "tax_minor", "total_minor")
    assert list(frozen) == [
        ("place", 5_000, 750, 1_150, SEAT),
        ("place", 2_500, 500, 600, PLACE),
        ("place", 2_500, 500, 600, PLACE),
        ("fee", 100, 0, 20, ORDER_FEE),
    ]
    assert selectors.get_order(order.pk).bill == reservation.bill
    (sent,) = mail.outbox
    for text in (sent.body, sent.alternatives[0][0]):
        for amount in ("$100.00", "$18.50", "$23.70", "$142.20"):
            assert amount in text
    assert_audit_clean()


def test_the_bill_does_not_change_with_later_fees() -> None:
    order = buy(held())
    OrderLine.objects.filter(order=order, kind="fee").update(canceled_at=order.placed_at)
    bill = selectors.get_order(order.pk).bill
    assert bill.total_minor == TOTAL
    assert [line.is_canceled for line in bill.lines] == [False, False, False, True]


def test_every_page_shows_the_full_price() -> None:
    """A seat is never shown below its full price: 69.00, not its face price of 50.00; the order's fee is mentioned."""
    event = make_event(general_admission=10, price_policy=POLICY)
    browser = joined_browser(event.slug)
    words = (
        "Prices include a fee of $2.50 and 10% of the price per ticket and 20% tax. "
        "A fee of $1.20 is added once per order."
    )
    for path in (
        f"/events/{event.slug}/",
        f"/events/{event.slug}/choose",
        f"/events/{event.slug}/choose?view=list",
        f"/events/{event.slug}/choose?view=best",
    ):
        page = unescape(browser.get(path).content.decode())
        assert words in page, path
        assert "$69.00" in page, path
        assert "$50.00" not in page, path
    assert "$36.00" in unescape(browser.get(f"/events/{event.slug}/choose?view=quantity").content.decode())
    assert 'data-price="6900"' in browser.get(f"/events/{event.slug}/choose?view=list").content.decode()
    assert "$36.00" in unescape(browser.get("/").content.decode())
    response = browser.get("/api/events/concert").json()
    assert (response["from_price_minor"], response["price_policy"]["ticket_fee_rate"]) == (PLACE, 1_000)
    plan = browser.get(f"/events/{event.slug}/plan.json").json()
    assert [(one["price_minor"], one["full_price_minor"]) for one in plan["categories"]] == [
        (5_000, SEAT),
        (2_500, PLACE),
    ]
    body = {"seats": ["hall-A-1"], "ga_section": "floor", "ga_quantity": 2}
    answer = browser.post(
        f"/api/events/{event.slug}/reservations",
        body,
        content_type="application/json",
        headers=SAME_ORIGIN | {"idempotency-key": "hold"},
    ).json()
    assert answer["total_minor"] == 10_000
    held_path = f"/reservations/{answer['reservation_id']}"
    assert browser.get(f"/api{held_path}").json()["bill"]["total_minor"] == TOTAL
    for path in (f"{held_path}/", f"{held_path}/checkout"):
        page = unescape(browser.get(path).content.decode())
        for amount in ("$100.00", "$18.50", "$23.70", "$142.20"):
            assert amount in page, path
    assert "Pay $142.20" in page


def test_a_free_ticket_has_no_fee_and_is_confirmed_at_once() -> None:
    order = buy(hold(make_event(price_policy=POLICY, price_minor=0), seats=["hall-A-1"]))
    assert (order.status, order.total_minor) == (Order.Status.CONFIRMED, 0)
    assert not Payment.objects.exists()
    assert_audit_clean()


def test_without_a_waiver_a_free_ticket_costs_its_fee() -> None:
    policy = PricePolicy(order_fee_minor=100, waives_fees_when_free=False)
    order = buy(hold(make_event(price_policy=policy, price_minor=0), seats=["hall-A-1"]))
    assert (order.status, order.total_minor) == (Order.Status.CONFIRMED, 100)
    assert SandboxCharge.objects.get().amount_minor == 100
    assert_audit_clean()


@pytest.mark.parametrize(("currency", "total"), [("JPY", "¥5,000"), ("BHD", "BHD\N{NO-BREAK SPACE}5.000")])
def test_a_currency_has_its_own_smallest_unit(currency, total) -> None:
    buy(hold(make_event(currency=currency), seats=["hall-A-1"]))
    assert f"Paid: {total}\n" in mail.outbox[0].body
    assert SandboxCharge.objects.get().currency == currency


def test_a_retry_charges_the_orders_original_total() -> None:
    event = make_event(price_policy=POLICY)
    browser = joined_browser(event.slug)
    answer = browser.post(
        f"/api/events/{event.slug}/reservations",
        {"seats": ["hall-A-1"]},
        content_type="application/json",
        headers=SAME_ORIGIN | {"idempotency-key": "hold"},
    ).json()
    order = buy(reservations.get_reservation(UUID(answer["reservation_id"])), sandbox.DECLINES)
    assert order.status == Order.Status.PLACED
    page = browser.get(f"/reservations/{answer['reservation_id']}/checkout", follow=True).content.decode()
    assert "Pay $70.20" in page


def test_a_description_with_other_fees_differs() -> None:
    make_event(price_policy=POLICY)
    with pytest.raises(EventDiffers) as refused:
        make_event(price_policy=PricePolicy())
    assert any("ticket-fee" in difference for difference in refused.value.differences)
