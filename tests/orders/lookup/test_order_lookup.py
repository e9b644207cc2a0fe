"""Find my order: a mail lists the orders of an email address, and no response reveals whether there are any."""

import re
import time
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.test import Client

from apps.events import facade as events
from apps.kernel import clock, rate_limits
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import access, topics
from apps.orders.checkout.buyer_details import EMAIL_LENGTH_MAX
from apps.orders.lookup import order_lookup
from apps.orders.models import Order, OrderHistoryEntry, ReturnPolicy, TicketTransfer, TransferPolicy
from apps.orders.payments.providers import sandbox
from apps.orders.staff.buyer_correction import correct_buyer
from apps.orders.transfers import transfers
from tests.support.api_client import Api, assert_problem
from tests.support.factories import hold
from tests.support.orders.sale import EMAIL, buy, deliver_outbox, make_code, place_order

pytestmark = pytest.mark.django_db(transaction=True)
FIND = "/orders/find"


def ask(email: str, browser: Client | None = None, **more: Any) -> Any:
    return (browser or Client(headers={"sec-fetch-site": "same-origin"})).post(FIND, {"email": email}, **more)


def delivered() -> list[Any]:
    """Deliver the scheduled mails; return them."""
    mail.outbox.clear()
    deliver_outbox()
    return list(mail.outbox)


def links_in(message: Any) -> list[str]:
    return re.findall(r"https?://[^/\s]+(/orders/[0-9a-f-]{36}/\S+)", str(message.body))


@pytest.mark.slow
def test_a_guest_gets_the_orders_of_an_address_and_opens_one(browser: Client, concert: events.EventView) -> None:
    order = buy(hold(concert, seats=["hall-A-1"]))
    other = buy(hold(concert, seats=["hall-A-2"]), email="bob@example.org")
    deliver_outbox()
    page = ask(f"  {EMAIL.upper()} ")
    assert page.status_code == 200
    assert "no-store" in page.headers["Cache-Control"]
    assert EMAIL in page.content.decode()
    (message,) = delivered()
    assert (message.to, message.subject) == ([EMAIL], "Your orders")
    html = message.alternatives[0][0]
    for text in (message.body, html):
        assert concert.name in text
        assert order.number in text
        assert other.number not in text
        assert "paid, 1 ticket" in text
    (link,) = links_in(message)
    assert link.replace("&", "&amp;") in html
    assert browser.get(f"/orders/{order.pk}/").status_code == 401
    assert browser.get(link).url == f"/orders/{order.pk}/"
    assert order.number in browser.get(f"/orders/{order.pk}/").content.decode()
    assert OrderHistoryEntry.objects.filter(order=order, text="Your orders").exists()


def test_the_longest_address_gets_its_list(concert: events.EventView) -> None:
    email = f"{'a' * 64}@{'b' * 63}.{'c' * 63}.{'d' * 57}.org"
    assert len(email) == EMAIL_LENGTH_MAX
    buy(hold(concert, seats=["hall-A-1"]), email=email)
    deliver_outbox()
    assert ask(email).status_code == 200
    assert [message.to for message in delivered()] == [[email]]


def test_the_response_is_the_same_with_and_without_orders(concert: events.EventView) -> None:
    """Nothing about the orders is read before the mail is sent, so that the duration is the same, too."""
    buy(hold(concert, seats=["hall-A-1"]))
    known, unknown = ask(EMAIL), ask("bob@example.org")
    pages = [page.content.decode().replace(who, "") for page, who in ((known, EMAIL), (unknown, "bob@example.org"))]
    assert pages[0] == pages[1]
    assert known.headers.keys() == unknown.headers.keys()
    assert OutboxMessage.objects.filter(topic=topics.SEND_ORDER_LIST).count() == 2
    body = OutboxMessage.objects.get(topic=topics.SEND_ORDER_LIST, key=EMAIL).body
    assert body.keys() == {"email", "origin"}, "the message has no key of an order"


def test_an_address_without_orders_gets_a_mail_that_says_so() -> None:
    ask("bob@example.org")
    (message,) = delivered()
    assert (message.to, message.subject) == (["bob@example.org"], "No orders with this email address")
    assert FIND in message.body
    assert links_in(message) == []


@pytest.mark.slow
def test_the_link_allows_changes_for_half_an_hour_and_reads_afterwards(
    concert: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    ReturnPolicy.objects.create(event_id=concert.id, until_hours=1)
    order = buy(hold(concert, seats=["hall-A-1"]))
    deliver_outbox()
    ask(EMAIL)
    (link,) = links_in(delivered()[0])
    early, late = (Client(headers={"sec-fetch-site": "same-origin"}) for _ in range(2))
    assert early.get(link).status_code == 302
    assert early.get(f"/orders/{order.pk}/return").status_code == 200
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 31 * 60)
    assert late.get(link).status_code == 302
    assert late.get(f"/orders/{order.pk}/").status_code == 200
    assert late.get(f"/orders/{order.pk}/return").url == f"/orders/{order.pk}/confirm"


@pytest.mark.slow
def test_a_list_in_progress_grants_a_former_address_nothing(
    concert: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = buy(hold(concert, seats=["hall-A-1"]))
    mail.outbox.clear()
    send = order_lookup.send_within_cap

    def correct_first(*args: Any, **options: Any) -> None:
        correct_buyer(order.pk, email="ada.buyer@example.org", name=order.name, why="a typo", who="staff:1")
        send(*args, **options)

    monkeypatch.setattr(order_lookup, "send_within_cap", correct_first)
    ask(EMAIL)
    deliver_outbox()
    (sent,) = [sent for sent in mail.outbox if sent.subject == "Your orders"]
    assert (sent.to, access.link_key(order.pk) in sent.body) == ([EMAIL], False)


def test_valid_orders_of_events_to_come_are_first(concert: events.EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another person can place orders with the address, which fail; they come last."""
    monkeypatch.setattr(order_lookup, "ORDERS_MAX", 1)
    valid = buy(hold(concert, seats=["hall-A-1"]))
    place_order(hold(concert, seats=["hall-A-2"]), method=sandbox.DECLINES)
    deliver_outbox()
    ask(EMAIL)
    (message,) = delivered()
    assert [link.split("/")[2] for link in links_in(message)] == [str(valid.pk)]
    assert "older orders" in message.body


def test_orders_that_were_paid_for_are_before_free_ones(concert: events.EventView, monkeypatch: Any) -> None:
    """A stranger can place any number of free orders with the address."""
    monkeypatch.setattr(order_lookup, "ORDERS_MAX", 1)
    paid = buy(hold(concert, seats=["hall-A-1"]))
    make_code(concert, code="FREE", rate=10_000)
    free = buy(hold(concert, seats=["hall-A-2"]), code="FREE")
    assert (free.total_minor, free.status) == (0, Order.Status.CONFIRMED)
    deliver_outbox()
    ask(EMAIL)
    (message,) = delivered()
    assert [link.split("/")[2] for link in links_in(message)] == [str(paid.pk)]


@pytest.mark.slow
def test_a_ticket_that_was_passed_on_is_listed_for_its_recipient(concert: events.EventView) -> None:
    TransferPolicy.objects.create(event_id=concert.id, until_hours=1)
    order = buy(hold(concert, seats=["hall-A-1"]))
    deliver_outbox()
    code = order.tickets.get().code
    offer = transfers.offer_ticket(order.pk, {"ticket": code, "email": "carl@example.org"})
    transfers.accept_offer(offer.pk, "Carl")
    deliver_outbox()
    ask("carl@example.org")
    (message,) = delivered()
    assert f"/transfers/{TicketTransfer.objects.get().pk}/" in message.body
    assert order.number not in message.body, "the order is the buyer's"


@pytest.mark.parametrize(
    ("email", "sentence"),
    [
        ("", "Enter your email address."),
        ("ann", "Enter a valid email address."),
        ("a" * 250 + "@example.org", "Enter a valid email address."),
        ("ann@example.org\r\nBcc: x@example.org", "Enter a valid email address."),
        ("\x00@example.org", "Enter a valid email address."),
    ],
)
def test_an_invalid_address_is_refused_at_its_field(email: str, sentence: str) -> None:
    page = ask(email)
    assert page.status_code == 422
    assert sentence in page.content.decode()
    assert not OutboxMessage.objects.filter(topic=topics.SEND_ORDER_LIST).exists()


@pytest.mark.slow
def test_requests_for_one_address_are_collected_and_its_cap_delays_the_mail(settings: Any) -> None:
    settings.MAIL_PER_HOUR_MAX, settings.MAIL_PER_DAY_MAX = 8, 100
    assert {ask(EMAIL).status_code for _ in range(3)} == {200}
    assert len(delivered()) == 1, "one mail for requests before it is sent"
    for _ in range(3):
        assert ask(EMAIL).status_code == 200
        delivered()
    waiting = OutboxMessage.objects.get(topic=topics.SEND_ORDER_LIST, done_at=None)
    assert waiting.attempts == 0
    assert waiting.available_at > clock.now() + timedelta(minutes=30)


def test_one_client_gets_few_mails_sent(settings: Any) -> None:
    rate_limits.forget_everything()
    for _ in range(settings.RATE_LIMITS["mail"][0][1] - 1):
        assert rate_limits.check_request("mail", "203.0.113.7") is None
    answers = [ask(f"a{n}@example.org", REMOTE_ADDR="203.0.113.7").status_code for n in range(2)]
    assert answers == [200, 429]
    assert ask("b@example.org", REMOTE_ADDR="203.0.113.8").status_code == 200


@pytest.mark.parametrize(("spread", "accepted"), [("203.0.113.7", 1), ("2001:db8:0:1::{}", 1), ("2001:db8:0:{}::1", 8)])
def test_one_network_gets_few_mails_sent_in_a_day_by_all_processes(
    spread: str, accepted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rate limit alone, which each process counts, let one address request 17,000 mails a day. The answer depends
    on the network only, not on the addresses that it asks for; a /48 has eight times the cap of its /64s."""
    monkeypatch.setattr(order_lookup, "NETWORK_PER_DAY_MAX", 1)
    answers = []
    for number in range(accepted + 2):
        rate_limits.forget_everything()
        answers.append(ask(f"a{number % 2}@example.org", REMOTE_ADDR=spread.format(number + 1)))
    assert [answer.status_code for answer in answers] == [200] * accepted + [429, 429]
    assert int(answers[-1].headers["Retry-After"]) > 3_600
    assert ask("b@example.org", REMOTE_ADDR="198.51.100.1").status_code == 200


def test_the_site_sends_few_mails_in_an_hour_and_a_flood_for_invented_addresses_delays_no_buyer(
    concert: events.EventView, settings: Any
) -> None:
    settings.ORDER_LISTS_PER_HOUR_MAX = 4
    buy(hold(concert, seats=["hall-A-1"]))
    deliver_outbox()
    for number in range(5):
        assert ask(f"invented-{number}@example.org").status_code == 200, "the answer is the same"
    assert len(delivered()) == 2, "half of the cap; the others are dropped"
    for number in range(3):
        assert ask(EMAIL).status_code == 200
        assert len(delivered()) == (1 if number < 2 else 0)
    waiting = OutboxMessage.objects.get(topic=topics.SEND_ORDER_LIST, done_at=None)
    assert (waiting.body["email"], waiting.attempts) == (EMAIL, 0)
    assert waiting.available_at > clock.now() + timedelta(minutes=30)


def test_requests_for_unpaid_orders_delay_no_mail_to_a_person_who_has_paid(
    concert: events.EventView, settings: Any
) -> None:
    settings.ORDER_LISTS_PER_HOUR_MAX = 4
    buy(hold(concert, seats=["hall-A-1"]))
    buy(hold(concert, seats=["hall-A-2"]), sandbox.DECLINES, email="unpaid@example.org")
    deliver_outbox()
    for number in range(4):
        assert ask("unpaid@example.org").status_code == 200
        assert len(delivered()) == (1 if number < 3 else 0), "three quarters of the cap"
    assert ask(EMAIL).status_code == 200
    assert [message.to for message in delivered()] == [[EMAIL]]


def test_a_mail_that_its_recipients_cap_delays_uses_nothing_of_the_sites_cap(settings: Any) -> None:
    settings.ORDER_LISTS_PER_HOUR_MAX, settings.MAIL_PER_HOUR_MAX = 4, 4
    for _ in range(3):
        ask("bob@example.org")
        delivered()
    ask("carl@example.org")
    assert [message.to for message in delivered()] == [["carl@example.org"]]


def test_a_request_of_another_site_is_refused() -> None:
    assert Client(headers={"sec-fetch-site": "cross-site"}).post(FIND, {"email": EMAIL}).status_code == 403


@pytest.mark.slow
def test_the_api_mails_the_same_list(api: Api, concert: events.EventView) -> None:
    buy(hold(concert, seats=["hall-A-1"]))
    deliver_outbox()
    assert api.post("/orders/find", {"email": EMAIL}).status_code == 204
    assert len(links_in(delivered()[0])) == 1
    assert_problem(api.post("/orders/find", {"email": "ann"}), 422, "invalid")
    assert_problem(api.post("/orders/find", {"email": EMAIL, "more": 1}), 422, "invalid")


@pytest.mark.parametrize("path", ["/accounts/log-in", "/tickets/", "/no-such-page", "/"])
def test_pages_link_to_it(browser: Client, db: None, path: str) -> None:
    assert f'href="{FIND}"' in browser.get(path).content.decode()
