"""Transfers of tickets: offers, acceptance, limits, refusals, and what the recipient may see."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.db import IntegrityError, transaction
from django.test import Client

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.http import problems
from apps.kernel.outbox.models import OutboxMessage
from apps.kernel.rate_limits import mail_caps
from apps.orders import access, selectors, topics
from apps.orders.cancellation import order_cancellation
from apps.orders.checkin import scan_messages
from apps.orders.checkin.check_in import Outcome, Scan, scan
from apps.orders.errors import (
    TicketNotFound,
    TicketsCheckedIn,
    TicketsNotValid,
    TransferAccepted,
    TransferEnded,
    TransferNotFound,
    TransferPending,
    TransferRefused,
)
from apps.orders.locks import lock_order
from apps.orders.models import Order, Refund, ReturnPolicy, Ticket, TicketTransfer, TransferPolicy
from apps.orders.returns import returns
from apps.orders.tickets import reissue, ticket_issuance
from apps.orders.transfers import transfers
from apps.orders.transfers.transfer_links import transfer_path
from apps.reservations import facade as reservations
from apps.reservations.errors import PurchaseCapReached
from tests.support.factories import assert_audit_clean, audit_breaches, hold, make_event
from tests.support.orders.sale import EMAIL, SAME_ORIGIN, buy, deliver_outbox, place_order
from tests.support.orders.transfers import FRIEND, accepted, allow_transfers, first_ticket, offer, sold_order
from tests.support.races import storm

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def order() -> Order:
    return sold_order()


def link_in(letter: Any) -> str:
    """Return the path of the transfer's link in a mail."""
    found = re.search(r"https?://[^/\s]+(/transfers/\S+)", letter.body)
    assert found is not None
    return found[1]


def confirmation_of(order: Order) -> str:
    """Return the token in the mail that confirms the order's mailbox."""
    return access.confirmation_url(order.pk).partition("confirmation=")[2]


def scanned(code: str, scan_id: str) -> str:
    return scan(events.get_event("concert"), Scan(scan_id, code, anyway=True), "staff:1").outcome


def test_an_accepted_transfer_gives_a_new_code_and_ends_the_old_one(order) -> None:
    old = first_ticket(order)
    mail.outbox.clear()
    transfer = offer(order)
    assert not Ticket.objects.exclude(voided_at=None).exists(), "an offer changes no ticket"
    deliver_outbox()
    to_friend, to_buyer = sorted(mail.outbox, key=lambda letter: letter.to != [FRIEND])
    assert to_buyer.to == [EMAIL]
    assert FRIEND in to_buyer.body
    friend = Client()
    path = link_in(to_friend)
    page = friend.get(path).content.decode()
    assert "Hall, row A, seat 1" in page
    old.refresh_from_db()
    assert old.voided_at is None, "opening the link accepts nothing: mail programs open links"
    for _ in range(2):  # Submitted twice.
        answer = friend.post(path, {"action": "accept", "name": "Grace Friend"}, headers=SAME_ORIGIN)
        assert answer.status_code == 303
    old.refresh_from_db()
    new = Ticket.objects.get(transfer=transfer)
    assert (old.successor, old.replaced_by, new.holder) == (new, "transfer", "Grace Friend")
    assert (new.seat_id, new.order_line_id) == (old.seat_id, old.order_line_id)
    assert scanned(old.code, "scan-0001") == Outcome.REPLACED
    assert scanned(new.code, "scan-0002") == Outcome.WELCOME
    mail.outbox.clear()
    deliver_outbox()
    (letter,) = mail.outbox
    assert letter.to == [FRIEND]
    assert new.code in letter.body
    assert letter.attachments[0].filename == "ticket-concert.pdf"
    assert_audit_clean()


def test_mails_to_recipients_have_the_turns_of_the_network_that_caused_them(order) -> None:
    """Otherwise forty orders of one person have forty turns before the offer of another one is sent."""
    transfer = offer(order)
    network = mail_caps.origin_of("203.0.113.7")
    browser = Client(REMOTE_ADDR="203.0.113.7")
    browser.post(transfer_path(transfer.pk), {"action": "accept", "name": "Grace"}, headers=SAME_ORIGIN)
    with transactions.write():
        ticket_issuance.void(lock_order(order.pk), clock.now())
    sent = OutboxMessage.objects.filter(topic=topics.SEND_TRANSFER, key=str(transfer.pk)).order_by("pk")
    found = [(message.body["kind"], message.body["origin"]) for message in sent]
    assert found[1:] == [("ticket", network), ("ended", f"organizer {order.event.organizer_id}/event {order.event_id}")]


def test_the_door_explains_a_code_that_was_passed_on(order) -> None:
    old = first_ticket(order)
    accepted(order)
    event = events.get_event("concert")
    answer = scan(event, Scan("scan-0001", old.code, anyway=True), "staff:1")
    assert "passed to another person" in scan_messages.build_scan_message(event, answer).more
    assert "passed to another person" in Client().get(f"/tickets/{old.code}/").content.decode()


def test_the_recipient_reads_one_ticket_and_nothing_of_the_order(order) -> None:
    mail.outbox.clear()
    new = accepted(order)
    deliver_outbox()
    letters = [letter for letter in mail.outbox if letter.to == [FRIEND]]
    friend = Client()
    texts = [
        *(letter.body + str(letter.alternatives[0].content) for letter in letters),
        friend.get(transfer_path(new.transfer_id)).content.decode(),
        friend.get(f"/tickets/{new.code}/").content.decode(),
    ]
    other = order.tickets.get(voided_at=None, transfer=None)
    for secret in (EMAIL, "Ada Buyer", order.number, str(order.pk), "50.00", "$", other.code):
        assert not [text for text in texts if secret in text], secret
    assert friend.get(f"/tickets/{new.code}/ticket.pdf").status_code == 200
    for path in (f"/orders/{order.pk}/", f"/orders/{order.pk}/tickets.pdf", f"/orders/{order.pk}/return"):
        assert friend.get(path).status_code in (401, 403, 404), path
    assert friend.get(f"/api/orders/{order.pk}").status_code in (401, 403, 404)


def test_the_buyer_sees_neither_code_nor_holder_of_a_transferred_ticket(order) -> None:
    new = accepted(order)
    deliver_outbox()
    path = f"/orders/{order.pk}"
    key = access.link_key(order.pk)
    texts = [
        Client().get(f"{path}/?key={key}", follow=True).content.decode(),
        Client().get(f"/api{path}?key={key}").content.decode(),
        Client().get(f"{path}/event.ics?key={key}").content.decode(),
    ]
    for secret in (new.code, "Grace Friend"):
        assert not [text for text in texts if secret in text], secret
    assert FRIEND in texts[0]
    body = json.loads(texts[1])
    assert [(one["code"] == "", one["transferred"], one["valid"]) for one in body["tickets"]] == [
        (False, False, False),
        (False, False, True),
        (True, True, True),
    ]
    assert [one["state"] for one in body["transfers"]] == ["accepted"]
    assert len(selectors.get_order(order.pk).valid_tickets) == 1
    mail.outbox.clear()
    reissue.reissue_order(order.pk, "staff:1")
    deliver_outbox()
    recipients = {letter.to[0]: letter.body for letter in mail.outbox}
    renewed = Ticket.objects.get(transfer=new.transfer, voided_at=None)
    assert renewed.code in recipients[FRIEND], "a reissue keeps the recipient's ticket the recipient's"
    assert renewed.code not in recipients[EMAIL]
    assert_audit_clean()


def test_the_buyer_can_neither_return_nor_reissue_a_transferred_ticket_and_a_refund_goes_to_the_buyer(order) -> None:
    """A buyer could otherwise sell a ticket to a friend and take it back for a refund."""
    ReturnPolicy.objects.create(event_id=order.event_id, until_hours=24)
    new = accepted(order)
    with pytest.raises(problems.Invalid, match="not tickets of this order"):
        returns.return_idempotently(order.pk, {"tickets": [new.code]}, "key")
    with pytest.raises(TicketNotFound):
        reissue.reissue_ticket(order.pk, new.code, reissue.BUYER)
    with pytest.raises(TicketNotFound):
        transfers.offer_ticket(order.pk, {"ticket": new.code, "email": "third@example.org"})
    page = Client().get(f"/orders/{order.pk}/return?confirmation={confirmation_of(order)}").content.decode()
    assert "seat 2" in page
    assert "seat 1" not in page
    deliver_outbox()
    mail.outbox.clear()
    returns.return_by_staff(order.pk, [new.code], (), who="staff:1", why="asked for it")
    deliver_outbox()
    assert Refund.objects.get().order == order
    assert scanned(new.code, "scan-0001") == Outcome.NOT_VALID
    assert any("no longer valid" in letter.body for letter in mail.outbox if letter.to == [FRIEND])
    page = Client().get(transfer_path(new.transfer_id)).content.decode()
    assert "no longer valid" in page
    assert_audit_clean()


def test_a_refunded_order_ends_the_recipients_ticket(order) -> None:
    new = accepted(order)
    deliver_outbox()
    mail.outbox.clear()
    order_cancellation.refund_order(order.pk, "staff:1")
    deliver_outbox()
    assert scanned(new.code, "scan-0001") == Outcome.NOT_VALID
    assert {letter.to[0] for letter in mail.outbox} == {FRIEND, EMAIL}
    assert_audit_clean()


def test_new_seats_after_an_oversell_keep_the_recipients_ticket_the_recipients(order) -> None:
    from apps.kernel.db import transactions

    new = accepted(order)
    with transactions.write():
        ticket_issuance.reissue_for_seats(order, reservations.get_reservation(order.reservation_id), clock.now())
    again = Ticket.objects.get(transfer=new.transfer, voided_at=None)
    assert again.code != new.code
    assert (again.seat_id, again.holder) == (new.seat_id, "Grace Friend")
    assert_audit_clean()


def test_an_offer_is_made_once_and_can_be_withdrawn(order) -> None:
    ticket = first_ticket(order)
    first = offer(order)
    assert offer(order) == first, "a repetition is the same offer"
    with pytest.raises(TransferPending) as pending:
        offer(order, email="third@example.org")
    assert pending.value.extra == {"transfer": str(first.pk)}
    for _ in range(2):
        transfers.withdraw_offer(order.pk, first.pk)
    with pytest.raises(TransferEnded):
        transfers.accept_offer(first.pk, "Grace")
    ticket.refresh_from_db()
    assert ticket.voided_at is None
    assert "withdrawn" in Client().get(transfer_path(first.pk)).content.decode()
    second = offer(order, email="third@example.org")
    transfers.accept_offer(second.pk, "Third")
    with pytest.raises(TransferAccepted):
        transfers.withdraw_offer(order.pk, second.pk)
    with pytest.raises(TransferNotFound):
        transfers.withdraw_offer(sold_order(slug="other").pk, second.pk)
    assert_audit_clean()


def test_an_expired_offer_cannot_be_accepted_and_leaves_room_for_another(order) -> None:
    transfer = offer(order)
    past = clock.now() - timedelta(minutes=1)
    TicketTransfer.objects.update(offered_at=past - timedelta(hours=1), expires_at=past)
    with pytest.raises(TransferEnded):
        transfers.accept_offer(transfer.pk, "Grace")
    assert "expired" in Client().get(transfer_path(transfer.pk)).content.decode()
    accepted(order)
    assert_audit_clean()


def test_the_database_refuses_two_open_offers_and_two_acceptances_of_one_ticket(order) -> None:
    transfer = offer(order)
    values = {"ticket": transfer.ticket, "sequence": 1, "email": "x@example.org", "offered_at": transfer.offered_at}
    with pytest.raises(IntegrityError, match="ticket_transfer_one_open"), transaction.atomic():
        TicketTransfer.objects.create(**values, expires_at=transfer.expires_at)
    transfers.accept_offer(transfer.pk, "Grace")
    with pytest.raises(IntegrityError, match="ticket_transfer_accepted_once"), transaction.atomic():
        TicketTransfer.objects.create(**values, expires_at=transfer.expires_at, accepted_at=transfer.offered_at)
    with pytest.raises(IntegrityError, match="ticket_transfer_accepted_in_time"), transaction.atomic():
        TicketTransfer.objects.update(accepted_at=transfer.expires_at)


def test_without_a_policy_and_close_to_the_start_there_are_no_transfers(order) -> None:
    transfer = offer(order)
    TransferPolicy.objects.update(until_hours=24 * 40)
    for act in (lambda: offer(order, email="x@example.org"), lambda: transfers.accept_offer(transfer.pk, "Grace")):
        with pytest.raises(TransferRefused, match="closed"):
            act()
    assert "closed" in Client().get(transfer_path(transfer.pk)).content.decode()
    TransferPolicy.objects.all().delete()
    with pytest.raises(TransferRefused, match="does not allow"):
        offer(order, email="x@example.org")
    with pytest.raises(TransferRefused, match="does not allow"):
        transfers.accept_offer(transfer.pk, "Grace")


def test_checked_in_void_and_unknown_tickets_are_not_transferred(order) -> None:
    one, two = order.tickets.order_by("id")
    assert scanned(one.code, "scan-0001") == Outcome.WELCOME
    with pytest.raises(TicketsCheckedIn):
        offer(order, one)
    for code in ("A" * 28, "\x00", "ä"):
        with pytest.raises((TicketNotFound, problems.Invalid)):
            transfers.offer_ticket(order.pk, {"ticket": code, "email": FRIEND})
    for email in ("", "not-an-address", 7, EMAIL):
        with pytest.raises(problems.Invalid):
            transfers.offer_ticket(order.pk, {"ticket": two.code, "email": email})
    order_cancellation.refund_order(order.pk, "staff:1")
    with pytest.raises(TicketsNotValid):
        offer(order, two)


def test_a_ticket_is_transferred_as_often_as_the_policy_allows(order) -> None:
    TransferPolicy.objects.update(per_ticket_max=2)
    first = accepted(order)
    path = transfer_path(first.transfer_id)
    friend = Client()
    form = {"action": "offer", "ticket": first.code, "email": "third@example.org"}
    assert "Pass this ticket to someone else" in friend.get(path).content.decode()
    friend.post(path, form, headers=SAME_ORIGIN)
    assert "Offered to" in friend.get(path).content.decode()
    friend.post(path, {"action": "withdraw"}, headers=SAME_ORIGIN)
    assert "Offered to" not in friend.get(path).content.decode()
    friend.post(path, form, headers=SAME_ORIGIN)
    second = TicketTransfer.objects.get(sequence=2, ended_at=None)
    transfers.accept_offer(second.pk, "Third")
    assert "You passed it to" in friend.get(path).content.decode()
    last = Ticket.objects.get(transfer=second)
    with pytest.raises(TransferRefused, match="as often as"):
        transfers.offer_ticket(order.pk, {"ticket": last.code, "email": "x@example.org"}, given_by=second.pk)
    assert "third@example.org" not in json.dumps(selectors.get_order(order.pk).contract())
    assert_audit_clean()


def test_a_recipient_gets_no_more_tickets_than_the_policy_and_the_event_allow() -> None:
    event = make_event(per_buyer_max=3)
    allow_transfers(event, per_recipient_max=2)
    order = buy(hold(event, seats=["hall-A-1", "hall-A-2", "hall-A-3"]))
    one, two, three = order.tickets.order_by("id")
    accepted(order, one)
    accepted(order, two)
    pending = offer(order, three)
    with pytest.raises(TransferRefused, match="as many tickets"):
        transfers.accept_offer(pending.pk, "Grace")
    TransferPolicy.objects.update(per_recipient_max=9)
    bought = buy(hold(event, seats=["hall-B-1"]), email=FRIEND)
    assert bought.status == Order.Status.CONFIRMED
    with pytest.raises(TransferRefused, match="as many tickets"):
        transfers.accept_offer(pending.pk, "Grace")
    transfers.withdraw_offer(order.pk, pending.pk)
    accepted(order, three, "third@example.org")
    assert_audit_clean()


def test_received_tickets_count_for_the_limit_when_their_recipient_buys() -> None:
    event = make_event(per_buyer_max=3)
    allow_transfers(event, per_recipient_max=9, per_ticket_max=2)
    order = buy(hold(event, seats=["hall-A-1", "hall-A-2", "hall-A-3"]))
    one, two, three = order.tickets.order_by("id")
    received = accepted(order, one)
    accepted(order, two)
    with pytest.raises(PurchaseCapReached):
        place_order(hold(event, seats=["hall-B-1", "hall-B-2"]), email=FRIEND)
    assert buy(hold(event, seats=["hall-B-3"]), email=FRIEND).status == Order.Status.CONFIRMED
    with pytest.raises(PurchaseCapReached):
        place_order(hold(event, seats=["hall-C-1"]), email=FRIEND)
    # A received ticket that is passed on counts no longer; tickets that were bought and passed on still do.
    onward = transfers.offer_ticket(
        order.pk, {"ticket": received.code, "email": "third@example.org"}, given_by=received.transfer_id
    )
    transfers.accept_offer(onward.pk, "Third")
    assert buy(hold(event, seats=["hall-C-2"]), email=FRIEND).status == Order.Status.CONFIRMED
    accepted(order, three, "fourth@example.org")
    with pytest.raises(PurchaseCapReached):
        place_order(hold(event, seats=["hall-C-3"]))
    assert_audit_clean()


def test_an_acceptance_and_a_checkout_of_one_address_at_once_keep_its_limit() -> None:
    """Both lock the address's cap row. A checkout after the acceptance is refused; one before it is not paid yet and
    does not count, so its payment is refunded."""
    event = make_event(per_buyer_max=1)
    allow_transfers(event)
    for row in "ABC":
        friend = f"friend-{row}@example.org".lower()
        order = buy(hold(event, seats=[f"hall-{row}-1"]), email=f"buyer-{row}@example.org".lower())
        transfer, held = offer(order, email=friend), hold(event, seats=[f"hall-{row}-2"])

        def act(number: int, transfer=transfer, held=held, friend=friend) -> Any:
            return place_order(held, email=friend) if number else transfers.accept_offer(transfer.pk, "Grace")

        errors = [type(outcome.error) for outcome in storm(2, act) if outcome.error]
        deliver_outbox()
        bought = Order.objects.filter(email=friend).values_list("status", "reason")
        if errors:
            assert (errors, list(bought)) == ([PurchaseCapReached], [])
        else:
            assert list(bought) == [(Order.Status.REFUNDED, Order.Reason.OVER_LIMIT)]
    assert_audit_clean()


def test_offers_are_limited_per_day(order, monkeypatch) -> None:
    monkeypatch.setattr(transfers, "OFFERS_MAX", 2)
    for _ in range(2):
        transfers.withdraw_offer(order.pk, offer(order).pk)
    with pytest.raises(TransferRefused, match="within a day"):
        offer(order)


def test_the_offers_of_a_recipient_do_not_count_for_the_buyer(order, monkeypatch) -> None:
    monkeypatch.setattr(transfers, "OFFERS_MAX", 2)
    TransferPolicy.objects.update(per_ticket_max=2)
    passed_on = offer(order)
    transfers.accept_offer(passed_on.pk, "Grace")
    code = order.tickets.get(transfer=passed_on, voided_at=None).code
    payload = {"ticket": code, "email": "third@example.org"}
    for _ in range(2):
        again = transfers.offer_ticket(order.pk, payload, given_by=passed_on.pk)
        transfers.withdraw_offer(order.pk, again.pk, given_by=passed_on.pk)
    with pytest.raises(TransferRefused, match="within a day"):
        transfers.offer_ticket(order.pk, payload, given_by=passed_on.pk)
    own = order.tickets.filter(transfer=None, voided_at=None).first()
    assert transfers.offer_ticket(order.pk, payload | {"ticket": own.code}).sequence == 1
    assert_audit_clean()


def test_the_api_offers_and_withdraws(order) -> None:
    ticket, client = first_ticket(order), Client()
    key = f"?confirmation={confirmation_of(order)}"
    path = f"/api/orders/{order.pk}/transfers"

    def send(**body: Any) -> Any:
        return client.post(f"{path}{key}", body, content_type="application/json")

    assert client.post(path, {"ticket": ticket.code, "email": FRIEND}, content_type="application/json").status_code in (
        401,
        403,
    )
    answer = send(ticket=ticket.code, email="  Friend@Example.org ")
    assert answer.status_code == 201
    body = answer.json()
    assert (body["email"], body["state"], body["ticket"]) == (FRIEND, "offered", ticket.code)
    assert send(ticket=ticket.code, email=FRIEND).json() == body
    refused = send(ticket=ticket.code, email="third@example.org")
    assert (refused.status_code, refused.json()["type"]) == (409, "transfer-pending")
    assert send(ticket=ticket.code, email="x", more=1).json()["errors"].keys() == {"email", "more"}
    gone = client.delete(f"{path}/{body['transfer_id']}{key}")
    assert (gone.status_code, gone.json()["state"]) == (200, "withdrawn")
    assert client.delete(f"{path}/{order.pk}{key}").status_code == 404


def test_the_page_of_the_order_offers_and_withdraws(order) -> None:
    client = Client()
    path = f"/orders/{order.pk}/"
    client.get(f"{path}?key={access.link_key(order.pk)}")
    client.get(f"{path}confirm?confirmation={confirmation_of(order)}")
    assert client.get(path).content.decode().count("Pass this ticket to someone else") == 2
    ticket = first_ticket(order)
    post = f"{path}tickets/{ticket.code}/transfer"
    client.post(post, {"email": "not-an-address"}, headers=SAME_ORIGIN)
    assert "is not a valid email address" in client.get(path).content.decode()
    assert client.post(post, {"email": FRIEND}, headers=SAME_ORIGIN).url == path
    page = client.get(path).content.decode()
    assert f"Offered to <strong>{FRIEND}</strong>" in page
    transfer = TicketTransfer.objects.get()
    client.post(f"{path}transfers/{transfer.pk}/withdraw", headers=SAME_ORIGIN)
    assert "Offered to" not in client.get(path).content.decode()
    assert Client().post(post, {"email": FRIEND}, headers=SAME_ORIGIN).status_code in (401, 403)


def test_a_link_needs_its_own_key_and_an_action(order) -> None:
    transfer = offer(order)
    path = transfer_path(transfer.pk)
    other = offer(order, order.tickets.order_by("id").last(), "third@example.org")
    foreign = transfer_path(other.pk).split("?")[1]
    for wrong in (path.split("?")[0], f"{path}x", f"{path.split('?')[0]}?{foreign}"):
        assert Client().get(wrong).status_code == 404
        assert Client().post(wrong, {"action": "accept", "name": "x"}, headers=SAME_ORIGIN).status_code == 404
    Client().post(path, {"action": "unknown"}, headers=SAME_ORIGIN)
    Client().post(path, {"action": "accept", "name": ""}, headers=SAME_ORIGIN)
    transfer.refresh_from_db()
    assert transfer.accepted_at is None


def test_the_audit_finds_a_ticket_passed_on_without_an_accepted_transfer(order) -> None:
    new = accepted(order)
    assert_audit_clean()
    TicketTransfer.objects.update(accepted_at=None)
    assert any(f"transfer {new.transfer_id}" in breach for breach in audit_breaches())
