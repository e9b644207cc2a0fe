"""The link in an order's mail, which may be forwarded, reads and downloads. Changes need the mailbox confirmed once."""

import re
from typing import Any

import pytest
from django.core import mail
from django.test import Client

from apps.accounts.models import User
from apps.events import facade as events
from apps.kernel import rate_limits
from apps.kernel.outbox.models import OutboxMessage
from apps.kernel.rate_limits import mail_caps
from apps.orders import access, topics
from apps.orders.models import Order, ReturnPolicy, Ticket
from tests.support.api_client import Api, assert_problem
from tests.support.factories import assert_audit_clean, hold, join, make_event
from tests.support.orders.sale import SAME_ORIGIN, buy, deliver_outbox, place_order

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def concert(db: None) -> events.EventView:
    event = make_event()
    ReturnPolicy.objects.create(event_id=event.id, until_hours=1)
    return event


@pytest.fixture
def order(concert: events.EventView) -> Order:
    return buy(hold(concert, seats=["hall-A-1", "hall-A-2"]))


def with_link(order: Order) -> Client:
    """Return a browser that has opened the order by the link of its mail."""
    client = Client(headers=SAME_ORIGIN)
    assert client.get(f"/orders/{order.pk}/?key={access.link_key(order.pk)}").status_code == 302
    return client


def path_in_mail() -> str:
    found = re.search(r"https?://[^/]+(/orders/\S+\?confirmation=\S+)", str(mail.outbox[-1].body))
    assert found is not None, mail.outbox[-1].body
    return found[1]


def codes_of(order: Order) -> list[str]:
    return list(Ticket.objects.filter(order=order, voided_at=None).order_by("pk").values_list("code", flat=True))


def changes(order: Order, code: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the path and the form of every change that a buyer's page can make."""
    base = f"/orders/{order.pk}"
    return {
        "cancel": (f"{base}/cancel", {"idempotency_key": "c"}),
        "return": (f"{base}/return", {"ticket": code, "step": "return", "idempotency_key": "r"}),
        "reissue": (f"{base}/tickets/{code}/reissue", {}),
    }


def test_the_link_alone_reads_and_downloads_and_changes_nothing(order: Order) -> None:
    """A forwarded mail let its reader return the tickets; the money went to the buyer, the tickets were gone."""
    reader, codes = with_link(order), codes_of(order)
    for path in ("", "tickets.pdf", "event.ics"):
        assert reader.get(f"/orders/{order.pk}/{path}").status_code == 200
    assert reader.get(f"/orders/{order.pk}/return").status_code == 303
    for name, (path, form) in changes(order, codes[0]).items():
        response = reader.post(path, form)
        assert (response.status_code, response.url) == (303, f"/orders/{order.pk}/confirm"), name
    api, key = Api(), access.link_key(order.pk)
    assert api.get(f"/orders/{order.pk}?key={key}").status_code == 200
    assert_problem(api.post(f"/orders/{order.pk}/cancel?key={key}", key="c"), 403, "mailbox-not-confirmed")
    body = {"tickets": codes[:1]}
    assert_problem(api.post(f"/orders/{order.pk}/refunds?key={key}", body, key="r"), 403, "mailbox-not-confirmed")
    assert codes_of(order) == codes
    assert_audit_clean()


def test_the_link_of_the_confirmation_mail_allows_changes_in_the_browser_that_opens_it(order: Order) -> None:
    reader, codes = with_link(order), codes_of(order)
    page = reader.get(f"/orders/{order.pk}/confirm").content.decode()
    assert "Email me a link" in page
    mail.outbox.clear()
    assert "Check your email" in reader.post(f"/orders/{order.pk}/confirm").content.decode()
    deliver_outbox()
    (sent,) = mail.outbox
    assert sent.to == [order.email]
    assert path_in_mail().replace("&", "&amp;") in sent.alternatives[0].content
    owner = Client(headers=SAME_ORIGIN)
    opened = owner.get(path_in_mail())
    assert (opened.status_code, opened.url) == (302, f"/orders/{order.pk}/")
    assert owner.cookies[access.CONFIRMED_COOKIE]["httponly"]
    assert "In this browser you can now cancel this order" in owner.get(opened.url).content.decode()
    path, form = changes(order, codes[0])["reissue"]
    assert owner.post(path, form).url == f"/orders/{order.pk}/"
    assert codes[0] not in codes_of(order)
    path, form = changes(order, codes[1])["return"]
    assert owner.post(path, form).url == f"/orders/{order.pk}/"
    assert len(codes_of(order)) == 1
    assert owner.get(f"/orders/{order.pk}/confirm").status_code == 302, "once is enough"
    assert reader.post(*changes(order, codes_of(order)[0])["reissue"]).url.endswith("/confirm"), (
        "the browser that requested the mail is not confirmed by another one"
    )
    assert_audit_clean()


def test_a_confirmation_is_for_one_order_and_for_a_short_time(
    order: Order, concert: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = buy(hold(concert, seats=["hall-B-1"]), email="another@example.org")
    client = Client(headers=SAME_ORIGIN)
    client.get(access.confirmation_url(order.pk).split("/", 3)[3].join(["/", ""]))
    for path, form in changes(other, codes_of(other)[0]).values():
        assert client.post(path, form).status_code == 401
    token = access.confirmation_url(order.pk).rpartition("=")[2]
    assert not access.is_valid_confirmation(other.pk, token)
    assert not access.is_valid_confirmation(order.pk, token + "x")
    assert not access.is_valid_confirmation(order.pk, access.link_key(order.pk))
    monkeypatch.setattr(access, "CONFIRMATION_MINUTES", -1)
    assert not access.is_valid_confirmation(order.pk, token)
    late = with_link(order)
    page = late.get(f"/orders/{order.pk}/confirm?confirmation={token}")
    assert "This link has expired" in page.content.decode()
    assert Client().get(f"/orders/{order.pk}/confirm?confirmation={token}").status_code == 401


def test_an_api_client_sends_the_confirmation_with_its_call(order: Order) -> None:
    api, key = Api(), access.link_key(order.pk)
    assert_problem(api.post(f"/orders/{order.pk}/confirmation"), 401, "token-missing")
    assert_problem(api.post(f"/orders/{order.pk}/confirmation?key={key}", {"x": 1}), 422, "invalid")
    assert api.post(f"/orders/{order.pk}/confirmation?key={key}").status_code == 204
    deliver_outbox()
    token = path_in_mail().rpartition("=")[2]
    body = {"tickets": codes_of(order)[:1]}
    answer = api.post(f"/orders/{order.pk}/refunds?confirmation={token}", body, key="r")
    assert answer.status_code == 202, answer.content
    notice = OutboxMessage.objects.get(topic=topics.SEND_RETURN_NOTICE)
    assert notice.body["origin"] == mail_caps.origin_of("127.0.0.1"), "its mail has the turn of the client's network"
    assert_audit_clean()


def test_owners_need_no_confirmation(concert: events.EventView) -> None:
    """Neither the buying browser, nor the token of its entry, nor the account, wherever it is signed in."""
    browser = Client(headers=SAME_ORIGIN)
    browser.post("/events/concert/join", {"visitor_id": "the-buying-browser"})
    token = Api().admission("concert", visitor_id="the-buying-browser")
    held = Api().post("/events/concert/reservations", {"seats": ["hall-A-1"]}, token=token, key="h").json()
    body = {"email": "ann@example.org", "name": "Ann", "payment_method": "sandbox_decline"}
    placed = Api().post(f"/reservations/{held['reservation_id']}/checkout", body, token=token, key="p").json()
    order = Order.objects.get(pk=placed["order_id"])
    browser.get(f"/orders/{order.pk}/?key={access.link_key(order.pk)}")
    assert browser.post(f"/orders/{order.pk}/cancel", {"idempotency_key": "c"}).url == f"/orders/{order.pk}/"
    order.refresh_from_db()
    assert order.status == Order.Status.CANCELED
    user = User.objects.create_user("ann@example.org", "ann@example.org", "a good password")
    own = place_order(hold(concert, join(concert, account_id=user.pk), seats=["hall-A-2"]))
    account = Client(headers=SAME_ORIGIN)
    account.force_login(user)
    assert account.post(f"/orders/{own.pk}/cancel", {"idempotency_key": "d"}).url == f"/orders/{own.pk}/"
    own.refresh_from_db()
    assert own.status == Order.Status.CANCELED
    assert_audit_clean()


def test_an_owner_cannot_have_confirmations_mailed(concert: events.EventView) -> None:
    """The address may be a stranger's, who would get them, or wait for one in vain."""
    token = Api().admission("concert")
    held = Api().post("/events/concert/reservations", {"seats": ["hall-A-1"]}, token=token, key="h").json()
    body = {"email": "ann@example.org", "name": "Ann", "payment_method": "sandbox"}
    placed = Api().post(f"/reservations/{held['reservation_id']}/checkout", body, token=token, key="p").json()
    deliver_outbox()
    mail.outbox.clear()
    assert Api().post(f"/orders/{placed['order_id']}/confirmation", token=token).status_code == 204
    user = User.objects.create_user("bob@example.org")
    Order.objects.filter(pk=placed["order_id"]).update(account=user.pk)
    browser = Client(headers=SAME_ORIGIN)
    browser.force_login(user)
    answer = browser.post(f"/orders/{placed['order_id']}/confirm")
    assert (answer.status_code, answer.url) == (302, f"/orders/{placed['order_id']}/")
    deliver_outbox()
    assert mail.outbox == []


def test_another_account_with_the_link_must_confirm(order: Order) -> None:
    reader = with_link(order)
    reader.force_login(User.objects.create_user("eve@example.org"))
    path, form = changes(order, codes_of(order)[0])["reissue"]
    assert reader.post(path, form).url == f"/orders/{order.pk}/confirm"


def test_without_the_link_a_stranger_cannot_request_the_mail(order: Order) -> None:
    mail.outbox.clear()
    stranger = Client(headers=SAME_ORIGIN)
    assert stranger.post(f"/orders/{order.pk}/confirm").status_code == 401
    assert stranger.get(f"/orders/{order.pk}/confirm").status_code == 401
    deliver_outbox()
    assert mail.outbox == []


def test_requests_for_the_mail_are_limited(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = with_link(order)
    mail.outbox.clear()
    monkeypatch.setattr(rate_limits, "check_request", lambda kind, *_: 4.0 if kind == "code" else None)
    refused = reader.post(f"/orders/{order.pk}/confirm")
    assert (refused.status_code, refused["Retry-After"]) == (429, "4")
    refused = Api().post(f"/orders/{order.pk}/confirmation?key={access.link_key(order.pk)}")
    assert_problem(refused, 429, "rate-limited")
    deliver_outbox()
    assert mail.outbox == []
