"""A finished sale whose report can be published: with buyers, lost holds, returned tickets and acts of staff."""

import json
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import F

from apps.events import facade as events
from apps.events.models import OnSale
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.orders.models import ReportVersion
from apps.orders.reports import publication
from apps.queue.models import RoomAct, WaitingRoom
from apps.queue.room import operations
from apps.reservations import facade as reservations
from apps.reservations.models import ReservationLine
from apps.reservations.staff import stock
from tests.support.factories import backdate_deadline, hold, join
from tests.support.queue.rooms import claim_or_get_entry, make_room
from tests.support.reservations.buyers import begin_payment, cancel, confirm

BOUGHT = (1, 2, 3, 1, 2, 3, 1, 2, 3, 1)
"""Tickets of the ten buyers, the first five of them with accounts."""


def make_finished_sale(slug: str = "concert", **spec: Any) -> events.EventView:
    """Create an event and its whole sale: thirteen visitors join and hold tickets; ten buy, one releases, one hold
    expires, one visitor leaves without holding. Then one ticket of three is returned, and a whole reservation."""
    event = make_room(slug, rows=0, general_admission=40, rate=1_000, active=50, publishes_report=True, **spec)
    users = get_user_model()
    accounts = [users.objects.create_user(f"{slug}-ada-{number}").pk for number in range(5)]
    entries = [join(event, account_id=account_id) for account_id in accounts] + [join(event) for _ in range(8)]
    claimed = [claim_or_get_entry(entry) for entry in entries]
    held = [
        hold(event, entry, ga_section="floor", ga_quantity=count)
        for entry, count in zip(claimed, (*BOUGHT, 4, 2), strict=False)
    ]
    for reservation in held[:10]:
        begin_payment(reservation.id)
        confirm(reservation.id, clock.now())
    cancel(held[10].id)
    backdate_deadline(held[11].id)
    reservations.sweep(event_id=event.id, by="test")
    return_tickets(held[2].id, 1)
    return_tickets(held[9].id, 1)
    operations.set_message(event.id, "Nearly there.", who="grace.hopper")
    operations.record_refusal(event.id, RoomAct.What.ADMIT, "admit 0", "admit between 1 and 10000", who="grace.hopper")
    stock.block_general_admission(event, "floor", 3, "house", who="grace.hopper", why="for Alan Turing")
    return close_sale(event)


def return_tickets(reservation_id: Any, count: int) -> None:
    (line,) = ReservationLine.objects.filter(reservation_id=reservation_id, live=True)
    with transactions.write():
        reservations.return_tickets(reservation_id, {line.pk: count}, who="test", why="test")


def close_sale(event: events.EventView) -> events.EventView:
    """End the sale now, and drain its room."""
    OnSale.objects.filter(event_id=event.id).update(
        opens_at=F("opens_at") - timedelta(hours=1), closes_at=clock.now() - timedelta(seconds=1)
    )
    operations.drain_ended_rooms()
    assert WaitingRoom.objects.get(event_id=event.id).state not in ("open", "paused")
    return events.get_event(event.slug)


def publish(event: events.EventView) -> dict[str, Any]:
    """Publish a report of everything up to now, and return its document."""
    stored = publication.publish_report(event, who="grace.hopper")
    assert ReportVersion.objects.filter(pk=stored.pk).exists()
    document: dict[str, Any] = json.loads(stored.document)
    return document
