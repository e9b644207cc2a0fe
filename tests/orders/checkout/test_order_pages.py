"""The pages of a sale in a browser without a script."""

import io
import re
from datetime import timedelta
from uuid import uuid4
from xml.etree import ElementTree

import pytest
from django.contrib.auth import get_user_model
from django.core import mail
from django.http import HttpResponse
from django.test import Client
from pypdf import PdfReader

from apps.kernel import clock
from apps.orders import access, selectors
from apps.orders.cancellation import order_cancellation
from apps.orders.checkin.check_in import Scan, scan
from apps.orders.models import Order, ReturnPolicy, Ticket
from apps.orders.tickets import ticket_pdf
from tests.support.factories import backdate_deadline, hold, join, make_event
from tests.support.orders.sale import (
    EMAIL,
    SAME_ORIGIN,
    backdate_pay_deadline,
    buy,
    deliver_outbox,
    joined_browser,
    place_order,
)

pytestmark = pytest.mark.django_db(transaction=True)
FORM = {"email": "guest@example.org", "name": "Guest Buyer", "payment_method": "sandbox"}


@pytest.fixture
def concert():
    return make_event("concert", general_admission=20, name="Späte Förderung & Łódź 東京")


@pytest.fixture
def browser(concert) -> Client:
    """A browser with a queue entry for the event."""
    return joined_browser("concert")


def chosen(browser: Client, **payload) -> str:
    """Hold seats with this browser and return the checkout's path."""
    answer = browser.post(
        "/api/events/concert/reservations",
        payload or {"seats": ["hall-A-1", "hall-A-2"]},
        content_type="application/json",
        headers=SAME_ORIGIN | {"idempotency-key": "hold"},
    )
    assert answer.status_code == 201, answer.content
    return f"/reservations/{answer.json()['reservation_id']}/checkout"


def key_in(page: str) -> str:
    return re.search(r'name="idempotency_key" value="([^"]+)"', page)[1]


def pay(browser: Client, path: str, **form: str):
    page = browser.get(path)
    assert page.status_code == 200
    sent = FORM | {"idempotency_key": key_in(page.content.decode())} | form
    return browser.post(path, sent, headers=SAME_ORIGIN)


def test_checkout_to_tickets_without_a_script(browser) -> None:
    path = chosen(browser)
    form = browser.get(path).content.decode()
    for field in ("email", "name", "payment_method"):
        assert f'name="{field}"' in form
    placed = pay(browser, path)
    assert placed.status_code == 303
    waiting = browser.get(placed.url).content.decode()
    assert "Payment in progress" in waiting
    assert 'http-equiv="refresh"' in waiting
    deliver_outbox()
    done = browser.get(placed.url)
    page = done.content.decode()
    assert done.headers["Cache-Control"].count("no-store")
    assert "Hall, row A, seat 1" in page
    assert 'http-equiv="refresh"' not in page
    for ticket in Ticket.objects.all():
        assert f"/tickets/{ticket.code}/" in page
        shown = browser.get(f"/tickets/{ticket.code}/").content.decode()
        assert "Guest Buyer" in shown
        assert f"/tickets/{ticket.code}/qr.svg" in shown
        assert placed.url in shown
        assert placed.url not in Client().get(f"/tickets/{ticket.code}/").content.decode()
    mine = browser.get("/tickets/").content.decode()
    assert placed.url in mine
    assert "2 tickets" in mine
    again = browser.get(path)
    assert (again.status_code, again.url) == (302, placed.url)


def test_errors_are_shown_at_their_fields_and_the_rest_stays_filled(browser) -> None:
    answer = pay(browser, chosen(browser), email="invalid", name="")
    page = answer.content.decode()
    assert answer.status_code == 422
    assert "Enter a valid email address." in page
    assert "Enter your name." in page
    assert page.count(" autofocus") == 1
    assert re.search(r'<input[^>]+name="email"[^>]+autofocus', page)
    assert 'value="invalid"' in page
    assert not Order.objects.exists()


def test_a_form_submitted_twice_creates_one_order(browser) -> None:
    path = chosen(browser)
    sent = FORM | {"idempotency_key": key_in(browser.get(path).content.decode())}
    first, second = (browser.post(path, sent, headers=SAME_ORIGIN) for _ in range(2))
    assert first.url == second.url
    assert Order.objects.count() == 1


def test_a_form_without_its_key_is_refused(browser) -> None:
    path = chosen(browser)
    refused = browser.post(path, FORM, headers=SAME_ORIGIN)
    assert refused.status_code == 400
    assert "This page is out of date." in refused.content.decode()
    assert "Idempotency" not in refused.content.decode()
    assert not Order.objects.exists()


def test_a_form_changed_after_the_order_was_placed_leads_to_the_order(browser) -> None:
    """The buyer goes back in the browser and sends the old page again with another name."""
    path = chosen(browser)
    sent = FORM | {"idempotency_key": key_in(browser.get(path).content.decode())}
    first = browser.post(path, sent, headers=SAME_ORIGIN)
    second = browser.post(path, sent | {"name": "Another Name"}, headers=SAME_ORIGIN)
    assert (second.status_code, second.url) == (303, first.url)
    assert "You already placed this order" in browser.get(second.url).content.decode()
    assert Order.objects.get().name == sent["name"]


def test_a_decline_leads_back_to_checkout_and_then_through(browser) -> None:
    path = chosen(browser)
    order = pay(browser, path, payment_method="sandbox_decline").url
    deliver_outbox()
    page = browser.get(order).content.decode()
    assert "Your order for $100.00 was not paid" in page
    assert "you can try twice more" in page
    for shown in (f'action="{path}"', "guest@example.org", 'name="code"', "data-countdown=", "Pay $100.00"):
        assert shown in page
    again = browser.get(path)
    assert (again.status_code, again.url) == (302, order)
    sent = {"payment_method": "sandbox", "code": "", "code_shown": "", "idempotency_key": key_in(page)}
    assert browser.post(path, sent, headers=SAME_ORIGIN).url == order
    deliver_outbox()
    assert "Hall, row A, seat 2" in browser.get(order).content.decode()


def test_a_declined_order_without_time_for_another_attempt_says_so(browser) -> None:
    path = chosen(browser, seats=["hall-A-1"])
    order = pay(browser, path, payment_method="sandbox_decline").url
    deliver_outbox()
    form = {"payment_method": "sandbox", "idempotency_key": key_in(browser.get(order).content.decode())}
    backdate_pay_deadline(Order.objects.get(), seconds=-20)
    page = browser.get(order).content.decode()
    assert "There is not enough time left for another attempt" in page
    assert "Pay $" not in page
    assert browser.post(path, form, headers=SAME_ORIGIN).url == order
    assert Order.objects.get().payments.count() == 1


@pytest.mark.parametrize(("policy", "sentence"), [
    (None, "Tickets cannot be returned."),
    ({"until_hours": 24}, "get back the ticket price, without fees."),
    ({"until_hours": 24, "keeps_fees": False}, "get back the full price."),
    ({"until_hours": 8_000}, "Tickets cannot be returned."),
])  # fmt: skip
def test_the_checkout_names_the_refund_policy_before_payment(browser, concert, policy, sentence) -> None:
    if policy is not None:
        ReturnPolicy.objects.create(event_id=concert.id, **policy)
    assert sentence in browser.get(chosen(browser, seats=["hall-A-1"])).content.decode()


def test_a_declined_order_is_canceled_once_however_often_the_button_is_pressed(browser) -> None:
    order = pay(browser, chosen(browser, seats=["hall-A-1"]), payment_method="sandbox_decline").url
    deliver_outbox()
    form = {"idempotency_key": key_in(browser.get(order).content.decode())}
    for _ in range(2):
        assert browser.post(f"{order}cancel", form, headers=SAME_ORIGIN).url == order
    page = browser.get(order).content.decode()
    assert "This order was canceled" in page
    assert "Cancel order" not in page


def test_an_expired_hold_redirects_to_its_page(browser) -> None:
    path = chosen(browser)
    sent = FORM | {"idempotency_key": key_in(browser.get(path).content.decode())}
    backdate_deadline(path.split("/")[2])
    for answer in (browser.get(path), browser.post(path, sent, headers=SAME_ORIGIN)):
        assert answer.status_code == 302
        assert answer.url == path.removesuffix("checkout")


def test_a_refunded_order_shows_the_reason(browser) -> None:
    order = pay(browser, chosen(browser)).url
    deliver_outbox()
    placed = Order.objects.get()
    order_cancellation.refund_order(placed.pk, "staff:1")
    page = browser.get(order).content.decode()
    assert "was refunded. The organizer canceled the order.</p>" in page
    assert "$100.00 for" in page
    mail.outbox.clear()
    deliver_outbox()
    (note,) = mail.outbox
    assert f"Order {placed.number} was refunded: $100.00.\nThe organizer canceled the order.\n" in note.body
    assert "refunded: $100.00. The organizer canceled the order. Depending" in note.alternatives[0].content
    code = Ticket.objects.first().code
    assert "no longer valid" in browser.get(f"/tickets/{code}/").content.decode()
    assert browser.get(f"{order}tickets.pdf").status_code == 404


@pytest.mark.parametrize(
    "reason",
    ["late", "wrong_amount", "over_limit", "canceled_by_buyer", "canceled_by_staff", "returned", "event_canceled"],
)
def test_every_refund_reason_has_its_own_message(concert, reason) -> None:
    order = buy(hold(concert, seats=["hall-A-1"]))
    order_cancellation.refund_order(order.pk, "staff:1")
    Order.objects.update(reason=reason)
    message = selectors.get_order(order.pk).contract()["message"]
    assert re.fullmatch(r"[A-Z][^.]+\.", message)


def test_a_refunded_free_order_mentions_no_money() -> None:
    order = buy(hold(make_event(price_minor=0), seats=["hall-A-1"]))
    mail.outbox.clear()
    order_cancellation.refund_order(order.pk, "staff:1")
    deliver_outbox()
    (note,) = mail.outbox
    assert "money" not in note.body + note.alternatives[0].content
    assert "The organizer canceled the order." in note.body
    client = Client()
    client.get(f"/orders/{order.pk}/?key={access.link_key(order.pk)}")
    page = client.get(f"/orders/{order.pk}/").content.decode()
    assert "This order was returned" in page
    assert "money" not in page


def test_an_order_that_timed_out_shows_a_message(browser) -> None:
    order = pay(browser, chosen(browser), payment_method="sandbox_late").url
    deliver_outbox()
    backdate_pay_deadline(Order.objects.get())
    order_cancellation.fail_expired_orders()
    assert "you will be refunded automatically" in browser.get(order).content.decode()


def test_other_visitors_have_no_access(browser, concert) -> None:
    path = chosen(browser)
    order = pay(browser, path).url
    deliver_outbox()
    assert Client().get(order).status_code == 401
    stranger = joined_browser("concert")
    for address in (order, path, f"{order}tickets.pdf"):
        assert stranger.get(address).status_code == 403
    assert "No tickets yet" in stranger.get("/tickets/").content.decode()


def test_the_mails_link_opens_the_order_in_another_browser_and_drops_its_key(browser) -> None:
    order = pay(browser, chosen(browser)).url
    deliver_outbox()
    link = re.search(r"https?://\S+\?key=\S+", mail.outbox[0].body)[0]
    other = Client()
    opened = other.get(link.split("/", 3)[3].join(["/", ""]))
    assert (opened.status_code, opened.url) == (302, order)
    assert "Hall, row A, seat 1" in other.get(order).content.decode()
    assert other.get(f"{order}tickets.pdf").status_code == 200
    assert order in other.get("/tickets/").content.decode()
    assert Client().get(f"{order}?key=wrong").status_code == 401


def test_a_browser_remembers_a_bounded_number_of_opened_orders(rf) -> None:
    request, ids = rf.get("/"), [uuid4() for _ in range(access.COOKIE_ORDERS_MAX + 5)]
    for order_id in ids:
        response = HttpResponse()
        access.set_order_cookie(request, response, order_id)
        request.COOKIES[access.COOKIE] = response.cookies[access.COOKIE].value
    assert access.orders_opened_by_link(request) == ids[-access.COOKIE_ORDERS_MAX :]
    request.COOKIES[access.COOKIE] += "x"
    assert access.orders_opened_by_link(request) == []


def test_a_browser_forgets_an_order_although_it_opens_others(rf, monkeypatch) -> None:
    request, opened = rf.get("/"), clock.process_now()
    first, second = uuid4(), uuid4()
    for order_id, days in ((first, 0), (second, 89)):
        monkeypatch.setattr(clock, "process_now", lambda days=days: opened + timedelta(days=days))
        response = HttpResponse()
        access.set_order_cookie(request, response, order_id)
        request.COOKIES[access.COOKIE] = response.cookies[access.COOKIE].value
    assert access.orders_opened_by_link(request) == [first, second]
    monkeypatch.setattr(clock, "process_now", lambda: opened + timedelta(days=91))
    assert access.orders_opened_by_link(request) == [second]


def test_an_account_finds_its_orders_in_any_browser(concert) -> None:
    user = get_user_model().objects.create_user("ada@example.org", "ada@example.org", "a good password")
    order = buy(hold(concert, join(concert, account_id=user.pk), seats=["hall-A-1"]))
    client = Client()
    client.force_login(user)
    assert str(order.pk) in client.get("/tickets/").content.decode()
    assert client.get(f"/orders/{order.pk}/").status_code == 200


def test_the_qr_code_contains_only_the_code() -> None:
    drawing = ElementTree.fromstring(ticket_pdf.qr_svg("A" * 32))
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    assert drawing.get("viewBox")


def test_an_unknown_ticket_is_not_found() -> None:
    assert Client().get(f"/tickets/{'A' * 32}/").status_code == 404
    assert Client().get(f"/tickets/{'A' * 32}/qr.svg").status_code == 404


def test_the_pdf_has_a_page_per_ticket_with_seat_holder_and_code(concert) -> None:
    order = buy(hold(concert, seats=["hall-A-1"], ga_section="floor", ga_quantity=1), name="Zoë Ångström-Łukasz 山田")
    view = selectors.get_order(order.pk)
    reader = PdfReader(io.BytesIO(ticket_pdf.tickets_pdf(view)))
    pages = [" ".join(page.extract_text().split()) for page in reader.pages]
    assert len(pages) == 2
    for page, ticket in zip(pages, view.tickets, strict=True):
        assert ticket.code in page.replace(" ", "")
        assert view.number in page
        assert "Späte Förderung" in page
        assert "The Venue" in page
        assert "(UTC)" in page
        assert "Zoë Ångström" in page
    assert "Section Hall Row A Seat 1" in pages[0]
    assert "Floor" in pages[1]
    assert reader.metadata.subject == f"Order {view.number}"


def test_staff_finds_orders_and_acts_on_them(concert, admin_client) -> None:
    order = buy(hold(concert, seats=["hall-A-1"]))
    for model in ("order", "payment", "refund", "providermessage", "ticket"):
        assert admin_client.get(f"/admin/orders/{model}/?q=a").status_code == 200
        assert admin_client.get(f"/admin/orders/{model}/add/").status_code == 403
    assert order.number in admin_client.get(f"/admin/orders/order/?q={EMAIL}").content.decode()
    for model, pk in (("order", order.pk), ("payment", order.payments.get().pk), ("ticket", order.tickets.get().pk)):
        assert admin_client.get(f"/admin/orders/{model}/{pk}/change/").status_code == 200
        assert admin_client.post(f"/admin/orders/{model}/{pk}/delete/").status_code == 403
    sent = len(mail.outbox)
    for action in ("resend_tickets", "refund"):
        form = {"action": action, "_selected_action": [str(order.pk)], "confirmed": "yes"}
        assert admin_client.post("/admin/orders/order/", form, headers=SAME_ORIGIN).status_code == 302
        deliver_outbox()
    order.refresh_from_db()
    assert order.status == Order.Status.REFUNDED
    assert len(mail.outbox) == sent + 2


def test_staff_is_warned_of_checked_in_tickets_before_a_refund(concert, admin_client) -> None:
    order = buy(hold(concert, seats=["hall-A-1", "hall-A-2"]))
    form = {"action": "refund", "_selected_action": [str(order.pk)]}
    assert "inside" not in admin_client.post("/admin/orders/order/", form, headers=SAME_ORIGIN).content.decode()
    scan(concert, Scan("scan-0001", order.tickets.first().code, anyway=True), "staff:1")
    confirmation = admin_client.post("/admin/orders/order/", form, headers=SAME_ORIGIN).content.decode()
    assert "Warning: 1 of its tickets are checked in." in confirmation


def test_staff_sees_the_refund_before_confirming_it(concert, admin_client) -> None:
    paid = buy(hold(concert, seats=["hall-A-1", "hall-A-2"]))
    unpaid = place_order(hold(concert, seats=["hall-A-3"]))
    form = {"action": "refund", "_selected_action": [str(paid.pk), str(unpaid.pk)]}
    confirmation = admin_client.post("/admin/orders/order/", form, headers=SAME_ORIGIN)
    page = confirmation.content.decode()
    assert confirmation.status_code == 200
    assert "$100.00 will be refunded, 2 tickets will no longer be valid" in page
    assert "not paid yet. It will be canceled" in page
    assert not Order.objects.exclude(ended_at=None).exists()
    done = admin_client.post("/admin/orders/order/", form | {"confirmed": "yes"}, headers=SAME_ORIGIN, follow=True)
    assert "Canceled or refunded 2 orders." in done.content.decode()
    assert not Order.objects.filter(ended_at=None).exists()
    again = admin_client.post("/admin/orders/order/", form, headers=SAME_ORIGIN).content.decode()
    assert "already refunded. Nothing changes." in again
    again = admin_client.post("/admin/orders/order/", form | {"confirmed": "yes"}, headers=SAME_ORIGIN, follow=True)
    assert "None of the selected orders could be canceled or refunded." in again.content.decode()
    assert "Canceled or refunded" not in again.content.decode()
