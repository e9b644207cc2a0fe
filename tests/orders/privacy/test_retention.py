"""Retention: each kind of personal data is erased when its period is over, not before, and only once."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from apps.events import facade as events
from apps.events.models import Event
from apps.kernel import clock
from apps.kernel.rate_limits import mail_caps
from apps.orders.cancellation import order_cancellation
from apps.orders.models import Invoice, InvoiceCounter, Order, ProviderMessage
from apps.orders.privacy import retention
from apps.orders.tasks import apply_retention
from apps.queue.entries import vip_links
from apps.queue.models import QueueEntry, RoomAct, VipLink, WaitingRoom
from apps.queue.room import operations
from apps.reservations import facade as reservations
from apps.reservations.models import PurchaseCap, Reservation
from tests.support.factories import assert_audit_clean, hold, join, make_event
from tests.support.orders.sale import EMAIL, buy, deliver_outbox, place_order

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _periods(settings: Any) -> None:
    settings.RETENTION_ORDERS_DAYS = 1_000
    settings.RETENTION_QUEUE_DAYS = 90
    settings.RETENTION_UNPAID_ORDERS_DAYS = 30
    settings.RETENTION_PROVIDER_PAYLOADS_DAYS = 500
    settings.RETENTION_INVOICES_YEARS = 10


@pytest.fixture
def concert(db: None) -> events.EventView:
    return make_event(per_buyer_max=8)


def starts(event: events.EventView, days_ago: float) -> None:
    Event.objects.filter(pk=event.id).update(starts_at=clock.now() - timedelta(days=days_ago))


def test_nothing_recent_is_erased(concert: events.EventView) -> None:
    order = buy(hold(concert, seats=["hall-A-1"]))
    failed = place_order(hold(concert, seats=["hall-A-2"]))
    order_cancellation.cancel_order(failed.pk)
    join(concert)
    mail_caps.count_mail("ann@example.org")
    assert apply_retention() == 0
    starts(concert, 80)
    assert apply_retention() == 0
    order.refresh_from_db()
    assert order.email == EMAIL
    assert WaitingRoom.objects.get().erased_at is None


def test_queue_entries_of_past_events_are_erased_once(
    concert: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Visitors without an order, those who still wait included; a buyer's entry stays as long as the order."""
    monkeypatch.setattr(retention, "BATCH_MAX", 3)
    later = make_event("later", per_buyer_max=8)
    waiting = join(later)
    for event in (concert, later):
        reservations.prepare_payment(event.id, EMAIL)
    order = buy(hold(concert, seats=["hall-A-1"]))
    left = [join(concert) for _ in range(7)]
    held = hold(concert, left[0], seats=["hall-A-2"])
    link = vip_links.make_link(concert.id, note="for Ada Lovelace", who="ann")
    operations.record_refusal(concert.id, RoomAct.What.REMOVE, "remove Ada", "no entry is Ada's", who="ann", why="Ada")
    RoomAct.objects.create(
        event_id=concert.id, at=clock.now(), who="ann", what="let in", detail="number 2", why="for Ada Lovelace"
    )
    Reservation.objects.filter(pk=held.id).update(status="expired", ended_at=clock.now())
    starts(concert, 91)
    counts = retention.run()
    assert counts["queue entries"] == 7
    entries = QueueEntry.objects.filter(event=concert.id)
    assert set(entries.exclude(visitor_id__startswith="erased-").values_list("pk", flat=True)) == {order.entry_id}
    assert Reservation.objects.get(pk=held.id).buyer.startswith("visitor:erased-")
    assert Reservation.objects.get(pk=order.reservation_id).buyer == order.buyer
    assert VipLink.objects.get(pk=link.pk).note == ""
    refused = RoomAct.objects.exclude(refusal="").get()
    assert (refused.who, refused.detail, refused.why, refused.refusal) == ("ann", "", "", "refused")
    assert RoomAct.objects.get(what="let in").why == ""
    assert set(PurchaseCap.objects.values_list("event", flat=True)) == {later.id}
    assert QueueEntry.objects.get(pk=waiting.id).visitor_id == waiting.visitor_id
    assert retention.run()["queue entries"] == 0
    numbers = list(entries.order_by("number").values_list("number", flat=True))
    assert numbers == list(range(1, 9)), "numbers stay"


def test_an_interrupted_pass_is_continued(concert: events.EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH_MAX", 2)
    monkeypatch.setattr(retention, "PASS_MAX", 4)
    for _ in range(9):
        join(concert)
    starts(concert, 91)
    assert [retention.run()["queue entries"] for _ in range(4)] == [4, 4, 1, 0]
    assert WaitingRoom.objects.get().erased_at is not None


def test_orders_are_erased_after_their_event(concert: events.EventView) -> None:
    order = buy(hold(concert, seats=["hall-A-1"]))
    open_order = place_order(hold(concert, seats=["hall-A-2"]))
    deliver_outbox()
    starts(concert, 1_001)
    open_order.refresh_from_db()
    assert retention.run()["orders"] == 2
    for one in (order, open_order):
        one.refresh_from_db()
        assert one.is_erased
    assert retention.run()["orders"] == 0
    assert_audit_clean()


def test_unpaid_orders_are_erased_soon_and_paid_ones_stay(concert: events.EventView) -> None:
    paid = buy(hold(concert, seats=["hall-A-1"]))
    canceled = place_order(hold(concert, seats=["hall-A-2"]))
    order_cancellation.cancel_order(canceled.pk)
    declined = buy(hold(concert, seats=["hall-A-3"]), "sandbox_decline")
    order_cancellation.cancel_order(declined.pk)
    recent = place_order(hold(concert, seats=["hall-A-4"]))
    Order.objects.filter(pk__in=[canceled.pk, declined.pk]).update(ended_at=clock.now() - timedelta(days=31))
    order_cancellation.cancel_order(recent.pk)
    assert retention.run()["unpaid orders"] == 2
    erased = {order.pk: order.is_erased for order in Order.objects.all()}
    assert erased == {paid.pk: False, canceled.pk: True, declined.pk: True, recent.pk: False}


def test_payloads_are_blanked_and_what_was_read_from_them_stays(concert: events.EventView) -> None:
    buy(hold(concert, seats=["hall-A-1"]))
    known = list(ProviderMessage.objects.order_by("pk").values_list("kind", "reference", "amount_minor", "outcome"))
    ProviderMessage.objects.update(received_at=clock.now() - timedelta(days=499))
    assert retention.run()["provider payloads"] == 0
    ProviderMessage.objects.update(received_at=clock.now() - timedelta(days=501))
    assert retention.run()["provider payloads"] == len(known)
    assert {bytes(message.raw) for message in ProviderMessage.objects.all()} == {b""}
    rows = ProviderMessage.objects.order_by("pk").values_list("kind", "reference", "amount_minor", "outcome")
    assert list(rows) == known
    assert retention.run()["provider payloads"] == 0
    assert_audit_clean()


def test_invoices_keep_their_buyer_for_ten_years(concert: events.EventView) -> None:
    buy(hold(concert, seats=["hall-A-1"]))
    deliver_outbox()
    year = clock.now().year
    before = Invoice.objects.get().paper
    for years, erased in ((9, False), (10, False), (12, True)):
        with connection.cursor() as cursor:
            cursor.execute("SET session_replication_role = replica")
            Invoice.objects.update(year=year - years)
            InvoiceCounter.objects.update(year=year - years)
            cursor.execute("SET session_replication_role = DEFAULT")
        assert retention.run()["invoices"] == erased
        paper = Invoice.objects.get().paper
        assert paper["buyer"] == ({"name": "erased", "email": ""} if erased else before["buyer"])
        assert {**paper, "buyer": 0} == {**before, "buyer": 0}
    assert retention.run()["invoices"] == 0
    assert_audit_clean()


def test_a_period_of_zero_keeps_the_data(concert: events.EventView, settings: Any) -> None:
    for name in ("ORDERS_DAYS", "QUEUE_DAYS", "UNPAID_ORDERS_DAYS", "PROVIDER_PAYLOADS_DAYS", "INVOICES_YEARS"):
        setattr(settings, f"RETENTION_{name}", 0)
    buy(hold(concert, seats=["hall-A-1"]))
    join(concert)
    starts(concert, 10_000)
    kept_by_a_constant = ("networks of entries", "archived searches", "unused histories of searches")
    assert retention.run() == dict.fromkeys((*kept_by_a_constant, "mail counts", "domains that accept mails"), 0)


def test_the_pass_is_scheduled(settings: Any) -> None:
    assert "orders.apply_retention" in {each["task"] for each in settings.CELERY_BEAT_SCHEDULE.values()}
