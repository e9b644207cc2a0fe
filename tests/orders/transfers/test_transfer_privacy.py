"""Transfers in the export and the erasure of a person, and behind a confirmed mailbox."""

import json
from datetime import timedelta

import pytest
from django.core import mail
from django.db import connection
from django.test import Client

from apps.events.models import Event
from apps.kernel import clock
from apps.kernel.rate_limits import mail_caps
from apps.orders import access
from apps.orders.errors import TransferEnded
from apps.orders.models import Order, Ticket, TicketTransfer
from apps.orders.privacy import erasure
from apps.orders.privacy.export import export_person
from apps.orders.privacy.person import person_of_email
from apps.orders.transfers import transfers
from tests.support.factories import assert_audit_clean
from tests.support.orders.sale import EMAIL, SAME_ORIGIN, deliver_outbox
from tests.support.orders.transfers import FRIEND, accepted, first_ticket, offer, sold_order

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def order() -> Order:
    return sold_order()


def end(order: Order) -> None:
    Event.objects.filter(pk=order.event_id).update(starts_at=clock.now() - timedelta(days=2))


def stored() -> str:
    """Return the rows of tickets, transfers, reservations and purchase caps as text."""
    with connection.cursor() as cursor:
        texts = []
        for table in ("orders_ticket", "orders_tickettransfer", "orders_order", "reservations_purchasecap"):
            cursor.execute(f"SELECT string_agg(row_to_json(one)::text, ' ') FROM {table} AS one")
            texts.append(cursor.fetchone()[0] or "")
    return " ".join(texts)


def erase(email: str) -> list[str]:
    """Erase the person and return which data is still needed."""
    erasure.erase_person(person_of_email(email))
    return erasure.find_needed(person_of_email(email))


def test_the_export_of_a_recipient_has_the_ticket_and_nothing_of_the_order(order) -> None:
    accepted(order)
    text = json.dumps(export_person(person_of_email("Friend@Example.org")))
    found = json.loads(text)["tickets_from_others"]
    assert [(one["event"], one["ticket"], one["name"]) for one in found] == [
        ("concert", "Hall, row A, seat 1", "Grace Friend")
    ]
    assert order.number not in text
    assert EMAIL not in text
    assert FRIEND in json.dumps(export_person(person_of_email(EMAIL))["orders"]), "the buyer entered that address"


def test_a_recipient_is_erased_once_the_event_is_over(order) -> None:
    accepted(order)
    deliver_outbox()
    (needed,) = erase(FRIEND)
    assert needed.startswith("A ticket from another person is needed for Concert until ")
    assert order.number not in needed
    assert "Grace Friend" in stored()
    end(order)
    assert erase(FRIEND) == []
    assert FRIEND not in stored()
    assert "Grace Friend" not in stored()
    order.refresh_from_db()
    assert order.email == EMAIL
    assert erase(FRIEND) == [], "it can be repeated"
    assert_audit_clean()


def test_an_offer_that_was_not_accepted_ends_and_is_erased_at_once(order) -> None:
    """Otherwise a stranger could prevent the erasure by offering tickets."""
    transfer = offer(order)
    deliver_outbox()
    assert erase(FRIEND) == []
    assert FRIEND not in stored()
    with pytest.raises(TransferEnded):
        transfers.accept_offer(transfer.pk, "Grace Friend")
    assert offer(order).email == FRIEND, "the buyer can offer it again"
    assert_audit_clean()


def test_an_erased_order_names_no_recipient_and_mails_none(order) -> None:
    accepted(order)
    deliver_outbox()
    end(order)
    erase(EMAIL)
    assert not Ticket.objects.exclude(holder=erasure.NAME).exists()
    assert not TicketTransfer.objects.filter(email=FRIEND).exists()
    assert_audit_clean()


def test_an_offer_by_the_orders_link_alone_wants_the_mailbox_confirmed(order) -> None:
    """A forwarded mail could otherwise give the tickets away."""
    ticket, client = first_ticket(order), Client()
    key = f"key={access.link_key(order.pk)}"
    client.get(f"/orders/{order.pk}/?{key}")
    page = f"/orders/{order.pk}/tickets/{ticket.code}/transfer"
    answer = client.post(page, {"email": "thief@example.org"}, headers=SAME_ORIGIN)
    assert answer.url == f"/orders/{order.pk}/confirm"
    body = {"ticket": ticket.code, "email": "thief@example.org"}
    answer = Client().post(f"/api/orders/{order.pk}/transfers?{key}", body, content_type="application/json")
    assert (answer.status_code, answer.json()["type"]) == (403, "mailbox-not-confirmed")
    assert not TicketTransfer.objects.exists()


def test_offers_leave_room_for_other_mails_of_the_address(order, settings) -> None:
    """A fourth of the cap is for offers. The third mail is delayed, and no transfer is."""
    settings.MAIL_PER_HOUR_MAX, settings.MAIL_PER_DAY_MAX = 8, 80
    one, two = order.tickets.order_by("id")
    for ticket in (one, two):
        transfers.withdraw_offer(order.pk, offer(order, ticket).pk)
    mail_caps.count_mail(FRIEND), mail_caps.count_mail(FRIEND)
    deliver_outbox()
    mail.outbox.clear()
    accepted(order, one)
    deliver_outbox()
    assert [letter.subject for letter in mail.outbox if letter.to == [FRIEND]] == ["Your ticket for Concert"]
