"""`manage.py person`: export and erasure of one person, while money and proofs stay auditable."""

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import SecurityEvent, User
from apps.events import facade as events
from apps.events.models import Event
from apps.kernel import clock
from apps.kernel.formatting import DATE, format_datetime
from apps.kernel.http import problems
from apps.orders import access, selectors
from apps.orders.cancellation import order_cancellation
from apps.orders.facade import attach_orders
from apps.orders.mail import resend_tickets
from apps.orders.models import (
    CodeUse,
    Invoice,
    Order,
    OrderAdjustment,
    OrganizerMessage,
    Payment,
    ProviderMessage,
    Refund,
    ReturnPolicy,
    Ticket,
)
from apps.orders.privacy import erasure, retention
from apps.orders.privacy.person import person_of_email
from apps.orders.returns import returns
from apps.queue import facade as queue
from apps.queue.entries import vip_links
from apps.queue.models import QueueEntry, RoomAct, VipLink
from apps.reservations import facade as reservations
from apps.reservations.models import PurchaseCap, Reservation, ReservationTransition
from tests.support.factories import assert_audit_clean, hold, join, make_event
from tests.support.orders.sale import buy, deliver_outbox, make_code, place_order
from tests.support.orders.transfers import accepted, sold_order
from tests.support.orders.webhook_endpoints import make_endpoint
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db(transaction=True)
EMAIL, NAME = "ann.lee@example.org", "Ann Lee"
PERSON = {"email": "Ann.Lee@example.org", "name": NAME}


@pytest.fixture
def concert(db: None) -> events.EventView:
    event = make_event(per_buyer_max=8)
    ReturnPolicy.objects.create(event_id=event.id, until_hours=1)
    make_code(event)
    make_endpoint()
    return event


def ends(event: events.EventView, days_ago: float = 2) -> None:
    """Move the event into the past."""
    Event.objects.filter(pk=event.id).update(starts_at=clock.now() - timedelta(days=days_ago))


def bought(event: events.EventView, seats: list[str], **changes: Any) -> Order:
    return buy(hold(event, seats=seats), **{**PERSON, **changes})


def person(*args: str) -> str:
    out = io.StringIO()
    call_command("person", *args, stdout=out)
    return out.getvalue()


def erase_person(email: str) -> erasure.Erasure:
    return erasure.erase_person(person_of_email(email))


def everything() -> str:
    """Return all rows of all tables as text, except invoices, which the law requires."""
    with connection.cursor() as cursor:
        texts = []
        for table in connection.introspection.table_names(cursor):
            if table not in ("orders_invoice", "accounts_user"):
                cursor.execute(f'SELECT string_agg(row_to_json(one)::text, chr(10)) FROM "{table}" AS one')
                texts.append(cursor.fetchone()[0] or "")
    return "\n".join(texts)


def money() -> list[Any]:
    return [
        list(Order.objects.order_by("pk").values_list("number", "status", "total_minor", "currency", "placed_at")),
        list(Payment.objects.order_by("pk").values_list("pk", "status", "captured_minor", "refunded_minor")),
        list(Refund.objects.order_by("pk").values_list("pk", "amount_minor", "status")),
        list(OrderAdjustment.objects.order_by("pk").values_list("kind", "amount_minor", "at")),
        list(Invoice.objects.order_by("pk").values("number", "total_minor", "paper")),
    ]


def test_the_export_contains_everything_about_a_person_and_nothing_about_others(concert: events.EventView) -> None:
    user = User.objects.create_user(EMAIL, EMAIL, first_name="Ann", last_name="Lee")
    guest = bought(concert, ["hall-A-1", "hall-A-2"], code="HALFPRICE")
    entry = join(concert, account_id=user.pk)
    own = buy(hold(concert, entry, seats=["hall-A-3"]), email="office@example.org", name="Ann at work")
    other = bought(concert, ["hall-B-1"], email="bob@example.org", name="Bob")
    deliver_outbox()
    found = json.loads(person(EMAIL.upper(), "export"))
    assert [account["id"] for account in found["accounts"]] == [user.pk]
    assert [order["number"] for order in found["orders"]] == [guest.number, own.number]
    (first, _) = found["orders"]
    assert (first["email"], first["name"]) == (EMAIL, NAME)
    assert first["promo_codes"] == [{"code": "HALFPRICE", "email": EMAIL}]
    assert {ticket["holder"] for ticket in first["tickets"]} == {NAME}
    assert first["payments"][0]["captured_minor"] == guest.total_minor
    assert first["messages_of_providers"]
    assert first["messages_to_organizers"][0]["body"]["order"]["email"] == EMAIL
    assert first["documents"][0]["buyer"] == {"name": NAME, "email": EMAIL}
    assert {entry["id"] for entry in found["queue_entries"]} == {str(guest.entry_id), str(own.entry_id)}
    assert {one["id"] for one in found["reservations"]} == {str(guest.reservation_id), str(own.reservation_id)}
    assert found["reservations"][0]["history"]
    assert "bob" not in json.dumps(found).lower()
    assert other.number not in json.dumps(found)
    assert json.loads(person("unknown@example.org", "export"))["orders"] == []


def test_more_orders_take_no_more_statements(concert: events.EventView) -> None:
    first = bought(concert, ["hall-A-1"])
    deliver_outbox()
    with CaptureQueriesContext(connection) as one_order:
        person(EMAIL, "export")
    others = [bought(concert, [f"hall-A-{number}"]) for number in (2, 3, 4)]
    deliver_outbox()
    with CaptureQueriesContext(connection) as four_orders:
        found = json.loads(person(EMAIL, "export"))
    assert [order["number"] for order in found["orders"]] == [order.number for order in (first, *others)]
    assert len(four_orders) == len(one_order)


def test_erasing_replaces_personal_data_everywhere_and_keeps_the_money(concert: events.EventView) -> None:
    user = User.objects.create_user("lee-account", EMAIL)
    guest = bought(concert, ["hall-A-1", "hall-A-2"], code="HALFPRICE")
    code = Ticket.objects.filter(order=guest).earliest("pk").code
    returns.return_idempotently(guest.pk, {"tickets": [code]}, "a-key")
    failed = place_order(hold(concert, seats=["hall-A-4"]), **PERSON)
    order_cancellation.cancel_order_idempotently(failed.pk, {}, "b-key")
    entry = join(concert, account_id=user.pk)
    own = buy(hold(concert, entry, seats=["hall-A-3"]), **PERSON)
    hold_only = join(concert, visitor_id="a-visitor-of-a-hold")
    reservations.prepare_payment(concert.id, EMAIL)
    other = bought(concert, ["hall-B-1"], email="bob@example.org", name="Bob")
    deliver_outbox()
    ends(concert)
    before, buyers = money(), [guest.buyer, own.buyer, failed.buyer]
    assert all(text in everything() for text in (EMAIL, NAME, *buyers))
    done = erase_person(f" {EMAIL.title()} ")
    assert sorted(done.orders) == sorted([guest.number, own.number, failed.number])
    left = everything()
    for text in (EMAIL, NAME, *buyers):
        assert text not in left, text
    assert money() == before, "invoices included"
    assert Order.objects.get(pk=guest.pk).email == f"{guest.number.lower()}@erased.invalid"
    assert set(Ticket.objects.filter(order=guest).values_list("holder", flat=True)) == {"erased"}
    assert CodeUse.objects.get().email.endswith("@erased.invalid")
    assert OrderAdjustment.objects.exclude(who__startswith="visitor:erased-").count() == 0
    erased = Reservation.objects.filter(pk__in=[guest.reservation_id, own.reservation_id, failed.reservation_id])
    assert all(row.buyer.startswith("visitor:erased-") and not row.email and not row.account_id for row in erased)
    assert ReservationTransition.objects.filter(reservation__in=erased, who__in=buyers).count() == 0
    assert not PurchaseCap.objects.filter(buyer__in=[f"email:{EMAIL}", *buyers]).exists()
    entries = QueueEntry.objects.filter(pk__in=[guest.entry_id, own.entry_id, failed.entry_id])
    assert all(row.visitor_id.startswith("erased-") and row.account_id is None for row in entries)
    assert OrganizerMessage.objects.filter(order=guest).exclude(body__order__name="erased").count() == 0
    assert {bytes(one.raw) for one in ProviderMessage.objects.filter(payment__order=guest)} == {b""}
    other.refresh_from_db()
    assert (other.email, other.name) == ("bob@example.org", "Bob")
    assert QueueEntry.objects.get(pk=hold_only.id).visitor_id == "a-visitor-of-a-hold"
    assert_audit_clean()
    assert erase_person(EMAIL).orders == (), "it can be repeated"
    assert json.loads(person(EMAIL, "export"))["orders"] == []


def test_an_erased_order_is_sent_no_mail_and_its_credit_note_names_its_buyer(concert: events.EventView) -> None:
    order = bought(concert, ["hall-A-1"])
    deliver_outbox()
    ends(concert)
    erase_person(EMAIL)
    mail.outbox.clear()
    resend_tickets(order.pk)
    order_cancellation.refund_order(order.pk, "staff:1")
    deliver_outbox()
    assert mail.outbox == []
    buyers = {invoice.kind: invoice.paper["buyer"] for invoice in Invoice.objects.filter(order=order)}
    assert buyers == {"invoice": {"name": NAME, "email": EMAIL}, "credit_note": {"name": NAME, "email": EMAIL}}
    assert_audit_clean()


def test_what_is_still_needed_is_read_with_as_many_statements_for_many_orders_as_for_one(
    concert: events.EventView,
) -> None:
    def count_statements() -> int:
        someone = person_of_email(EMAIL)
        with CaptureQueriesContext(connection) as statements:
            assert erasure.find_needed(someone)
        return len(statements)

    bought(concert, ["hall-A-1"])
    before = count_statements()
    bought(concert, ["hall-A-2"]), bought(concert, ["hall-A-3"])
    assert count_statements() == before


@pytest.mark.slow
def test_what_is_still_needed_stays_and_is_named(concert: events.EventView) -> None:
    """Tickets for an event to come, an order that is being paid, a refund under way, a visitor in line."""
    upcoming = bought(concert, ["hall-A-1"])
    canceled = place_order(hold(concert, seats=["hall-A-3"]), **PERSON)
    order_cancellation.cancel_order(canceled.pk)
    refunded = bought(concert, ["hall-A-4"])
    order_cancellation.refund_order(refunded.pk, "staff:1")
    pending = place_order(hold(concert, seats=["hall-A-2"]), **PERSON)
    assert Refund.objects.get().status == Refund.Status.REQUESTED
    account = User.objects.create_user("lee-account", EMAIL)
    waiting = join(concert, account_id=account.pk)
    day = format_datetime(concert.starts_at + timedelta(days=1), concert.timezone, DATE)
    assert erasure.find_needed(person_of_email(EMAIL)) == [
        f"Order {upcoming.number} is needed for Concert until {day}.",
        f"A payment or refund of order {refunded.number} is still under way.",
        f"Order {pending.number} is still being paid.",
        "The place in line for Concert is still in use.",
    ]
    with pytest.raises(CommandError) as left:
        person(EMAIL, "erase", "--yes")
    for order in (upcoming, pending, refunded):
        assert order.number in str(left.value)
        order.refresh_from_db()
        assert order.email == EMAIL
    assert "The place in line for Concert is still in use." in str(left.value)
    canceled.refresh_from_db()
    assert canceled.is_erased
    assert QueueEntry.objects.get(pk=waiting.id).account_id == account.pk
    assert_audit_clean()
    deliver_outbox()
    refunded.refresh_from_db()
    assert refunded.email == EMAIL
    ends(concert)
    with pytest.raises(CommandError):
        person("not an address", "erase", "--yes")
    assert erasure.find_needed(person_of_email(EMAIL)) == []
    assert "erased: 3 orders" in person(EMAIL, "erase", "--yes")
    account.refresh_from_db()
    assert (account.is_active, account.email) == (False, "")
    assert Order.objects.filter(email=EMAIL).count() == 0
    assert_audit_clean()


def test_an_export_and_an_erasure_are_recorded_without_the_address(concert: events.EventView) -> None:
    account = User.objects.create_user("ann", email=EMAIL)
    call_command("person", EMAIL, "export", stdout=io.StringIO())
    call_command("person", EMAIL, "erase", "--yes", stdout=io.StringIO())
    call_command("person", "guest@example.org", "export", stdout=io.StringIO())
    recorded = SecurityEvent.objects.filter(detail__startswith="manage.py person").order_by("pk")
    assert list(recorded.values_list("kind", "detail")) == [
        ("personal_data_read", f"manage.py person export, accounts: [{account.pk}]"),
        ("staff_action", f"manage.py person erase, accounts: [{account.pk}]"),
        ("personal_data_read", "manage.py person export, accounts: none"),
    ]


def test_without_a_confirmation_nothing_is_erased(concert: events.EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    order = bought(concert, ["hall-A-1"])
    ends(concert)
    monkeypatch.setattr("builtins.input", lambda prompt: "no")
    with pytest.raises(CommandError, match="nothing was erased"):
        person(EMAIL, "erase")
    order.refresh_from_db()
    assert order.email == EMAIL


def test_a_shared_browser_keeps_the_other_persons_order(concert: events.EventView) -> None:
    """Two persons bought in one browser, one after the other: only one of them is erased."""
    visitor = "a-shared-browser"
    first = buy(hold(concert, join(concert, visitor_id=visitor), seats=["hall-A-1"]), **PERSON)
    second = buy(hold(concert, join(concert, visitor_id=visitor), seats=["hall-A-2"]), email="bob@example.org")
    ends(concert)
    erase_person(EMAIL)
    first.refresh_from_db()
    second.refresh_from_db()
    assert first.is_erased
    assert (second.email, second.buyer) == ("bob@example.org", f"visitor:{visitor}")
    assert Reservation.objects.get(pk=second.reservation_id).buyer == second.buyer
    assert_audit_clean()


def test_concurrent_erasures_and_refunds_leave_a_consistent_order(concert: events.EventView) -> None:
    placed = [bought(concert, [f"hall-{row}-{n}"]) for row in "AB" for n in (1, 2)]
    ends(concert)

    def act(number: int) -> object:
        if number % 2:
            return erase_person(EMAIL)
        return order_cancellation.refund_order(placed[number % 4].pk, "staff:1")

    values(storm(8, act))
    deliver_outbox()
    erase_person(EMAIL)
    assert all(order.is_erased for order in Order.objects.all())
    assert_audit_clean()


def test_erasing_locks_in_the_order_of_all_locks(concert: events.EventView) -> None:
    bought(concert, ["hall-A-1"])
    ends(concert)
    with CaptureQueriesContext(connection) as captured:
        erase_person(EMAIL)
    locked = [query["sql"] for query in captured if "FOR NO KEY UPDATE" in query["sql"]]
    tables = [sql.split('FROM "')[1].split('"')[0] for sql in locked]
    assert tables == [
        "queue_queueentry",
        "orders_order",
        "queue_viplink",
        "reservations_reservation",
        "reservations_purchasecap",
        "orders_providermessage",
        "reservations_purchasecap",  # Those of the address, in a transaction of its own.
    ]
    assert all("ORDER BY" in sql for sql in locked)


@pytest.mark.parametrize(
    ("model", "change"),
    [
        (ReservationTransition, {"who": "visitor:erased-0", "why": "rewritten"}),
        (ReservationTransition, {"who": "staff:1"}),
        (ReservationTransition, {"to_status": "expired"}),
        (OrderAdjustment, {"who": "visitor:erased-0", "amount_minor": 1}),
        (OrderAdjustment, {"who": "another"}),
        (Invoice, {"paper": {}}),
        (Invoice, {"total_minor": 1}),
    ],
)
def test_the_database_refuses_any_other_change_of_a_ledger(
    concert: events.EventView, model: Any, change: dict[str, Any]
) -> None:
    order = bought(concert, ["hall-A-1", "hall-A-2"])
    code = Ticket.objects.filter(order=order).earliest("pk").code
    returns.return_idempotently(order.pk, {"tickets": [code]}, "a-key")
    returns.give_goodwill(order.pk, 100, who=order.buyer, why="a test")
    deliver_outbox()
    assert model.objects.exists()
    with pytest.raises(DatabaseError), transaction.atomic():
        model.objects.update(**change)
    with pytest.raises(DatabaseError), transaction.atomic():
        model.objects.all()._raw_delete("default")


def test_the_figures_of_the_sale_stay_the_same(concert: events.EventView) -> None:
    """A buyer with several orders stays one buyer, and a buyer with an account stays one, so that a report of the sale
    can be verified after the erasure."""
    user = User.objects.create_user("lee-account", EMAIL)
    for number in (1, 2):
        buy(hold(concert, join(concert, account_id=user.pk), seats=[f"hall-A-{number}"]), **PERSON)
        buy(hold(concert, join(concert, visitor_id="a-browser-of-ann"), seats=[f"hall-B-{number}"]), **PERSON)
    ends(concert)
    erase_person(EMAIL)
    buyers = sorted(Reservation.objects.values_list("buyer", flat=True))
    assert len(set(buyers)) == 2
    assert sorted(buyer.startswith("visitor:erased-account-") for buyer in buyers) == [False, False, True, True]
    assert buyers == sorted(Order.objects.values_list("buyer", flat=True))
    entries = QueueEntry.objects.values_list("visitor_id", flat=True)
    assert sum(visitor_id.startswith("erased-account-") for visitor_id in entries) == len(entries) // 2
    assert_audit_clean()


def test_notes_about_a_vip_are_exported_and_erased_with_the_entry(concert: events.EventView) -> None:
    """What staff wrote on the link, and as the reason for letting the visitor through; others' notes stay."""
    user, other = User.objects.create_user("vip-account", EMAIL), User.objects.create_user("bob-account")
    for account, note in ((user, "for Ann Lee"), (other, "for Bob")):
        link = vip_links.make_link(concert.id, note=note, who="boss")
        token = vip_links.address_of(link, concert.slug).rstrip("/").rpartition("/")[2]
        vip_links.redeem_link(concert, token, queue.Caller(account_id=account.pk))
    assert [entry["note_of_vip_link"] for entry in json.loads(person(EMAIL, "export"))["queue_entries"]] == [
        "for Ann Lee"
    ]
    ends(concert)
    erase_person(EMAIL)
    assert set(VipLink.objects.values_list("note", flat=True)) == {"", "for Bob"}
    reasons = RoomAct.objects.filter(what=RoomAct.What.LET_THROUGH).values_list("why", flat=True)
    assert sorted(reasons) == ["", "for Bob"]


def test_a_buyers_sales_of_one_event_are_erased_together(concert: events.EventView) -> None:
    """Of two orders one is refunded, and could be erased at once; then the figures would count two buyers."""
    refunded, kept = (
        buy(hold(concert, join(concert, visitor_id="a-browser-of-ann"), seats=[seat]), **PERSON)
        for seat in ("hall-A-1", "hall-A-2")
    )
    order_cancellation.refund_order(refunded.pk, "staff:1")
    deliver_outbox()
    assert erase_person(EMAIL).orders == ()
    ends(concert)
    assert len(erase_person(EMAIL).orders) == 2
    assert len(set(Reservation.objects.values_list("buyer", flat=True))) == 1
    kept.refresh_from_db()
    assert kept.is_erased
    assert_audit_clean()


def test_the_address_of_a_refused_checkout_is_erased(concert: events.EventView) -> None:
    """The checkout created the row that its purchase cap locks, and no order."""
    reservations.prepare_payment(concert.id, EMAIL)
    reservations.prepare_payment(concert.id, "bob@example.org")
    erase_person(EMAIL)
    assert [cap.buyer for cap in PurchaseCap.objects.all()] == ["email:bob@example.org"]


def test_the_batch_size_does_not_matter(concert: events.EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasure, "BATCH_MAX", 1)
    placed = [bought(concert, [f"hall-A-{n}"]) for n in (1, 2, 3)]
    ends(concert)
    assert sorted(erase_person(EMAIL).orders) == sorted(order.number for order in placed)
    assert_audit_clean()


def test_the_export_has_no_code_of_a_ticket_that_was_passed_on() -> None:
    """A message to the organizer names all tickets of the order. The recipient's code admits."""
    order = sold_order()
    make_endpoint()
    passed_on = accepted(order)
    (one,) = json.loads(person(order.email, "export"))["orders"]
    text = json.dumps(one)
    assert OrganizerMessage.objects.filter(body__icontains=passed_on.code).exists()
    assert passed_on.code not in text
    assert "Grace Friend" not in text
    own = Ticket.objects.get(order=order, voided_at=None, transfer=None)
    assert own.code in json.dumps(one["messages_to_organizers"])


def test_of_an_order_with_only_the_address_nothing_else_of_its_entry_is_exported(concert: events.EventView) -> None:
    """Another person may have typed the address."""
    entry = join(concert, visitor_id="a-browser-of-bob")
    link = vip_links.make_link(concert.id, note="for Bob", who="boss")
    VipLink.objects.filter(pk=link.pk).update(entry=entry.id, used_at=clock.now())
    reservations.release(hold(concert, entry, seats=["hall-B-1"]).id, "visitor")
    buy(hold(concert, entry, seats=["hall-A-1"]), **PERSON)
    exported = json.loads(person(EMAIL, "export"))
    assert [one["status"] for one in exported["reservations"]] == ["confirmed"]
    (number,) = exported["queue_entries"]
    assert number.keys() == {"id", "event", "number", "status", "joined_at", "ready_at", "ended_at"}


def test_one_browser_with_orders_of_two_people_stays_one_buyer(concert: events.EventView) -> None:
    """Also after each of them is erased, and after both are erased because of their age."""
    for number, email in enumerate((EMAIL, "friend@example.org")):
        buy(hold(concert, join(concert, visitor_id="a-browser-of-ann"), seats=[f"hall-A-{number + 1}"]), email=email)
    ends(concert)

    def buyers() -> list[str]:
        found = sorted(Reservation.objects.values_list("buyer", flat=True))
        assert found == sorted(Order.objects.values_list("buyer", flat=True))
        return found

    before = buyers()
    assert len(set(before)) == 1
    for email, erased_count in ((EMAIL, 1), ("friend@example.org", 2)):
        assert len(erase_person(email).orders) == 1
        assert buyers() == before
        assert Order.objects.filter(name="erased", email__endswith="@erased.invalid").count() == erased_count
        assert_audit_clean()
    retention.erase_orders(clock.now())
    after = buyers()
    assert len(set(after)) == 1
    assert queue.is_erased_buyer(after[0])
    assert_audit_clean()


def test_an_erased_order_is_not_given_to_the_account_that_its_browser_logs_in_to(concert: events.EventView) -> None:
    """Two people bought in one browser, so the erased order keeps the browser's key, and maybe its queue entry."""
    entry = join(concert, visitor_id="a-shared-browser")
    erased = buy(hold(concert, entry, seats=["hall-A-1"]), **PERSON)
    link = access.order_link(erased.pk)
    again = join(concert, visitor_id="a-shared-browser")
    kept = buy(hold(concert, again, seats=["hall-A-2"]), email="friend@example.org")
    deliver_outbox()
    ends(concert)
    erase_person(EMAIL)
    erased.refresh_from_db()
    assert (erased.is_erased, erased.buyer) == (True, kept.buyer)
    caller = queue.Caller(visitor_id="a-shared-browser")
    assert [order.id for order in selectors.list_orders(caller)] == [kept.pk]
    for one in (entry, again):
        with pytest.raises(problems.NotOwner):
            access.require_order_access(queue.Caller(entry_id=one.id), RequestFactory().get("/"), erased.pk)
    assert Client().get(link).status_code == 401, "nor is the mailed link valid any more"
    user = User.objects.create_user("friend", "friend@example.org")
    assert attach_orders("a-shared-browser", user.pk) == 1
    erased.refresh_from_db()
    assert erased.account_id is None
    assert_audit_clean()


def test_a_refund_under_way_keeps_all_sales_of_its_buyer(concert: events.EventView) -> None:
    """Otherwise the figures of the sale would count two buyers until it has ended."""
    orders = [
        buy(hold(concert, join(concert, visitor_id="a-browser-of-ann"), seats=[f"hall-A-{number}"]), **PERSON)
        for number in (1, 2)
    ]
    for order in orders:
        order_cancellation.refund_order(order.pk, "staff:1")
    deliver_outbox()
    refunds = Refund.objects.filter(order=orders[1])
    refunds.update(status=Refund.Status.FAILED)
    assert erase_person(EMAIL).orders == ()
    assert len(set(Reservation.objects.values_list("buyer", flat=True))) == 1
    refunds.update(status=Refund.Status.SUCCEEDED)
    assert len(erase_person(EMAIL).orders) == 2
    assert len(set(Reservation.objects.values_list("buyer", flat=True))) == 1


@pytest.mark.parametrize("first", [0, 1])
def test_a_buyers_sales_have_one_key_whenever_each_is_erased(
    concert: events.EventView, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """Also if one of them was bought with an account. Another event's sales of the same buyer have another key."""
    user = User.objects.create_user("ann", EMAIL)
    other = make_event("other")
    reservation_ids = []
    for event, seat in ((concert, "hall-A-1"), (concert, "hall-A-2"), (other, "hall-A-1")):
        order = buy(hold(event, join(event, visitor_id="a-browser-of-ann"), seats=[seat]), **PERSON)
        ends(event)
        reservation_ids.append(order.reservation_id)
    Reservation.objects.filter(pk=reservation_ids[first]).update(account=user.pk)
    monkeypatch.setattr(retention, "PASS_MAX", 1)
    for erased in (1, 2, 3):
        assert retention.erase_orders(clock.now()) == 1
        assert sum(order.is_erased for order in Order.objects.all()) == erased
    keys = [Reservation.objects.get(pk=pk).buyer for pk in reservation_ids]
    assert (keys[0] == keys[1], keys[0] == keys[2]) == (True, False)
    assert keys[0].startswith("visitor:erased-account-")
    assert_audit_clean()
