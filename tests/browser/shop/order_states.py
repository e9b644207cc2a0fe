"""States of checkout, orders, tickets, returns and transfers, and of the check-in page."""

from datetime import timedelta
from typing import Any

from django.db import transaction

from apps.events import facade as events
from apps.events.models import Event, Organizer
from apps.events.organizers import legal_pages
from apps.events.pricing import PricePolicy
from apps.events.registries import ReturnTerms
from apps.events.revisions.service import change_event
from apps.kernel import clock
from apps.orders import access
from apps.orders.cancellation.order_cancellation import refund_order
from apps.orders.checkin import door_links
from apps.orders.checkin.check_in import Scan, scan
from apps.orders.models import Order, Payment, TicketTransfer, TransferPolicy
from apps.orders.tickets.reissue import reissue_ticket
from apps.orders.transfers import transfers
from apps.orders.transfers.transfer_links import transfer_path
from tests.browser.shop.shop import Shop, States, deliver_everything
from tests.support import factories
from tests.support.factories import make_event, make_organizer
from tests.support.orders.sale import backdate_pay_deadline, buy, make_code, place_order
from tests.support.races import in_another_connection

STATES = States()
FLOOR = {"ga_section": "floor", "ga_quantity": 2}
SEATS = {"seats": ["hall-A-1", "hall-A-2"]}


def sale(slug: str = "sale") -> events.EventView:
    """Return an event with fees, tax, promo codes, returns and transfers; made at the first call."""
    if not Event.objects.filter(slug=slug).exists():
        organizer = make_organizer(f"seller-of-{slug}")
        event = make_event(
            slug,
            organizer=organizer.slug,
            general_admission=300,
            returns=ReturnTerms(until_hours=24),
            price_policy=PricePolicy(ticket_fee_minor=150, order_fee_minor=100, tax_rate=1000),
        )
        make_code(event)
        TransferPolicy.objects.create(event_id=event.id)
    return events.get_event(slug)


def open_order(shop: Shop, order: Order) -> None:
    shop.open(f"/orders/{order.pk}/")


def checkout(shop: Shop, **payload: Any) -> None:
    """Open the checkout of an event whose organizer has terms."""
    event = sale("with-terms")
    with transaction.atomic():
        organizer = Organizer.objects.get(slug="seller-of-with-terms")
        legal_pages.publish_page(organizer, "terms", text="Be kind.", url="", who="test")
    held = shop.hold(event, **(payload or FLOOR))
    shop.open(f"/reservations/{held.id}/checkout")


@STATES.add(tablet=True)
def checkout_empty(shop: Shop) -> None:
    checkout(shop, seats=["hall-B-1", "hall-B-2"])
    for summary in shop.page.locator("main summary").all():
        summary.click()


@STATES.add()
def checkout_with_errors(shop: Shop) -> None:
    checkout(shop)
    shop.page.locator("#id_email").fill("ada")
    shop.press(".checkout__pay button")
    shop.page.locator(".field--wrong").first.wait_for()


@STATES.add()
def checkout_with_invalid_promo_code(shop: Shop) -> None:
    checkout(shop)
    apply_code(shop, "wrong")
    shop.page.locator(".field--code.field--wrong").wait_for()


@STATES.add()
def checkout_with_promo_code(shop: Shop) -> None:
    checkout(shop)
    apply_code(shop, "halfprice")


def apply_code(shop: Shop, code: str) -> None:
    shop.page.locator(".checkout__promo summary").click()
    shop.page.locator("#id_code").fill(code)
    shop.press("[name=apply]")


@STATES.add()
def checkout_of_a_free_order(shop: Shop) -> None:
    held = shop.hold(make_event("gratis", general_admission=9, place_price_minor=0), **FLOOR)
    shop.open(f"/reservations/{held.id}/checkout")


@STATES.add(tablet=True)
def declined(shop: Shop) -> None:
    open_order(shop, shop.order(sale(), method="sandbox_decline", **FLOOR))
    shop.page.locator(".checkout__pay").wait_for()


@STATES.add()
def declined_with_invalid_promo_code(shop: Shop) -> None:
    open_order(shop, shop.order(sale(), method="sandbox_decline", **FLOOR))
    apply_code(shop, "wrong")
    shop.page.locator(".field--code.field--wrong").wait_for()


@STATES.add()
def waiting_for_the_payment(shop: Shop) -> None:
    open_order(shop, shop.order(sale(), pays=False))


@STATES.add()
def waiting_for_a_repeated_inquiry(shop: Shop) -> None:
    open_order(shop, shop.order(sale(), method="sandbox_timeout_charged"))
    shop.page.locator(".progress .notice").wait_for()


@STATES.add()
def confirmation_by_the_bank(shop: Shop) -> None:
    open_order(shop, shop.order(sale(), method="sandbox_challenge"))
    shop.page.locator(".clock").wait_for()


@STATES.add()
def bank(shop: Shop) -> None:
    confirmation_by_the_bank(shop)
    shop.press(".actions a.button")
    shop.page.locator(".bank form").wait_for()


@STATES.add()
def bank_answered(shop: Shop) -> None:
    bank(shop)
    address = shop.page.url
    shop.press("[value=approve]")
    shop.open(address.removeprefix(shop.site))


@STATES.add()
def payment_form_of_stripe(shop: Shop) -> None:
    order = shop.order(sale(), pays=False)
    action = {"type": "stripe", "client_secret": "secret", "publishable_key": "key"}
    Payment.objects.filter(order=order).update(provider="stripe", next_action=action)
    shop.page.route("https://js.stripe.com/**", lambda route: route.fulfill(status=200, body=""))
    open_order(shop, order)
    shop.page.locator("[data-stripe-pay]").wait_for()


@STATES.add(tablet=True)
def paid(shop: Shop) -> None:
    open_order(shop, shop.order(sale(), **SEATS))
    shop.page.locator("img.qr").first.wait_for()
    for summary in shop.page.locator("main summary").all():
        summary.click()


@STATES.add(tablet=True)
def paid_and_date_changed(shop: Shop) -> None:
    moved_order(shop, "moved")


def moved_order(shop: Shop, slug: str) -> Order:
    """Open an order of seats whose event was moved after the purchase."""
    event = make_event(slug, general_admission=9)
    order = shop.order(event, **FLOOR)
    later = {"starts_at": event.starts_at + timedelta(days=7)}
    in_another_connection(lambda: change_event(event.id, "schedule", later, who="test", why="ill", return_days=14))
    deliver_everything()
    open_order(shop, order)
    shop.page.locator("main s").wait_for()
    return order


@STATES.add()
def my_tickets_with_a_changed_date(shop: Shop) -> None:
    moved_order(shop, "moved-list")
    shop.open("/tickets/")


@STATES.add()
def ticket_with_a_changed_date(shop: Shop) -> None:
    order = moved_order(shop, "moved-ticket")
    shop.open(f"/tickets/{first_code(order)}/")


@STATES.add()
def paid_and_ticket_offered(shop: Shop) -> None:
    order = shop.order(sale(), **FLOOR)
    offer(order)
    open_order(shop, order)


@STATES.add()
def paid_and_ticket_passed_on(shop: Shop) -> None:
    order = shop.order(sale(), **FLOOR)
    accept(offer(order))
    open_order(shop, order)
    shop.page.locator("#passed-on-heading").wait_for()


@STATES.add()
def paid_and_checked_in(shop: Shop) -> None:
    order = shop.order(sale())
    check_in(order)
    open_order(shop, order)


def first_code(order: Order) -> str:
    return order.tickets.order_by("id").values_list("code", flat=True)[0]


def check_in(order: Order) -> None:
    code, event = first_code(order), events.get_event_by_id(order.event_id)
    in_another_connection(lambda: scan(event, Scan(f"scan-{order.pk}", code, door="North"), "staff:1"))


def offer(order: Order) -> TicketTransfer:
    form = {"ticket": first_code(order), "email": "friend@example.org"}
    offered = in_another_connection(lambda: transfers.offer_ticket(order.pk, form))
    assert isinstance(offered, TicketTransfer)
    return offered


def accept(transfer: TicketTransfer) -> None:
    in_another_connection(lambda: transfers.accept_offer(transfer.pk, "Grace Friend"))


@STATES.add()
def partly_refunded(shop: Shop) -> None:
    return_one(shop)
    shop.press("main form .button--big")
    deliver_everything()
    shop.page.reload()


@STATES.add()
def refunded(shop: Shop) -> None:
    order = shop.order(sale())
    in_another_connection(lambda: refund_order(order.pk, "staff:1"))
    deliver_everything()
    open_order(shop, order)


@STATES.add()
def order_canceled(shop: Shop) -> None:
    order = shop.order(sale(), pays=False)
    shop.post(f"/orders/{order.pk}/cancel", idempotency_key="cancel-this-order")
    open_order(shop, order)


@STATES.add()
def order_failed(shop: Shop) -> None:
    order = shop.order(sale(), method="sandbox_decline")
    backdate_pay_deadline(order, 120)
    in_another_connection(fail_expired_orders)
    open_order(shop, order)


def fail_expired_orders() -> None:
    from apps.orders.cancellation.order_cancellation import fail_expired_orders as fail
    from apps.reservations import facade as reservations

    reservations.sweep(event_id=sale().id, by="test")
    fail()


@STATES.add(tablet=True)
def return_of_tickets(shop: Shop) -> None:
    open_return(shop)


def open_return(shop: Shop) -> Order:
    order = shop.order(sale(), **FLOOR)
    shop.open(f"/orders/{order.pk}/return")
    return order


@STATES.add()
def return_without_selection(shop: Shop) -> None:
    open_return(shop)
    shop.press("main form .button--big")
    shop.page.locator(".notice--wrong").wait_for()


@STATES.add()
def return_to_be_confirmed(shop: Shop) -> None:
    return_one(shop)


def return_one(shop: Shop) -> None:
    open_return(shop)
    shop.page.locator("[name=ticket]").first.check()
    shop.press("main form .button--big")


@STATES.add()
def return_closed(shop: Shop) -> None:
    order = shop.order(sale("soon"))
    Event.objects.filter(slug="soon").update(starts_at=clock.now() + timedelta(hours=2))
    shop.open(f"/orders/{order.pk}/return")


def sold() -> Order:
    """Return an order of another browser."""
    order = in_another_connection(lambda: buy(factories.hold(sale(), **FLOOR)))
    assert isinstance(order, Order)
    return order


@STATES.add()
def order_of_another_browser(shop: Shop) -> None:
    shop.open(f"/orders/{sold().pk}/", 401)


@STATES.add()
def confirmation_of_the_mailbox(shop: Shop) -> None:
    open_confirmation(shop)


def open_confirmation(shop: Shop) -> Order:
    order = sold()
    shop.open(f"/orders/{order.pk}/?key={access.link_key(order.pk)}")
    shop.open(f"/orders/{order.pk}/confirm")
    return order


@STATES.add()
def confirmation_of_the_mailbox_sent(shop: Shop) -> None:
    open_confirmation(shop)
    shop.press("main form button")


@STATES.add()
def confirmation_of_the_mailbox_expired(shop: Shop) -> None:
    order = open_confirmation(shop)
    shop.open(f"/orders/{order.pk}/confirm?confirmation=old")


@STATES.add()
def mailbox_confirmed(shop: Shop) -> None:
    order = open_confirmation(shop)
    shop.open(access.confirmation_url(order.pk).removeprefix(shop.settings.SITE_URL))


@STATES.add()
def offer_of_a_ticket(shop: Shop) -> None:
    open_transfer(shop, offer(sold()))


def open_transfer(shop: Shop, transfer: TicketTransfer) -> None:
    shop.open(transfer_path(transfer.pk))


@STATES.add()
def ticket_accepted(shop: Shop) -> None:
    transfer = offer(sold())
    accept(transfer)
    open_transfer(shop, transfer)


@STATES.add()
def offer_withdrawn(shop: Shop) -> None:
    order = sold()
    transfer = offer(order)
    in_another_connection(lambda: transfers.withdraw_offer(order.pk, transfer.pk))
    open_transfer(shop, transfer)


@STATES.add(tablet=True)
def ticket(shop: Shop) -> None:
    shop.open(f"/tickets/{first_code(sold())}/")


@STATES.add()
def ticket_of_a_seat(shop: Shop) -> None:
    order = in_another_connection(lambda: buy(factories.hold(sale(), seats=["hall-C-1"])))
    assert isinstance(order, Order)
    shop.open(f"/tickets/{first_code(order)}/")


@STATES.add()
def ticket_used(shop: Shop) -> None:
    order = sold()
    check_in(order)
    shop.open(f"/tickets/{first_code(order)}/")


@STATES.add()
def ticket_replaced(shop: Shop) -> None:
    order = sold()
    code = first_code(order)
    in_another_connection(lambda: reissue_ticket(order.pk, code, "buyer"))
    shop.open(f"/tickets/{code}/")


@STATES.add()
def ticket_refunded(shop: Shop) -> None:
    order = sold()
    code = first_code(order)
    in_another_connection(lambda: refund_order(order.pk, "staff:1"))
    shop.open(f"/tickets/{code}/")


@STATES.add()
def no_tickets(shop: Shop) -> None:
    shop.open("/tickets/")


@STATES.add(tablet=True)
def my_tickets(shop: Shop) -> None:
    order = shop.order(sale())
    held = in_another_connection(lambda: factories.hold(sale(), **FLOOR))
    declined_order = in_another_connection(lambda: place_order(held, "sandbox_decline"))
    deliver_everything()
    for each in (order, declined_order):
        shop.open(f"/orders/{each.pk}/?key={access.link_key(each.pk)}")
    shop.open("/tickets/")


def open_door(shop: Shop) -> None:
    event, now = sale(), clock.now()
    hours = timedelta(hours=4)
    made = door_links.make_link(
        event.id, name="Vera", door="North", good_from=now - hours, good_until=now + hours, who="staff:1"
    )
    shop.open(door_links.link_url(made, event.slug).removeprefix(shop.settings.SITE_URL))
    shop.page.locator("[data-check-in][data-ready=yes]").wait_for()


def type_code(shop: Shop, code: str) -> None:
    shop.page.locator("#code").fill(code)
    shop.page.locator("[data-form] button").click()


@STATES.add(tablet=True)
def check_in_ready(shop: Shop) -> None:
    sold()
    open_door(shop)


@STATES.add()
def check_in_welcome(shop: Shop) -> None:
    order = sold()
    Event.objects.filter(slug="sale").update(starts_at=clock.now() + timedelta(hours=25))
    open_door(shop)
    type_code(shop, first_code(order))
    shop.page.locator(".door__place").wait_for()


@STATES.add()
def check_in_of_an_unknown_code(shop: Shop) -> None:
    open_door(shop)
    type_code(shop, "ABCD" * 7)
    shop.page.locator(".door__answer--wrong").wait_for()
