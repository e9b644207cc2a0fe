"""Organizers with rows in every list of the admin, and what a request may show or change of them."""

import gzip
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.urls import reverse

from apps.events import facade as events
from apps.events.announcements import service
from apps.events.models import AnnouncementArchive, Organizer, Role
from apps.events.organizers import legal_pages
from apps.events.organizers.admin_scope import OrganizerScopedAdmin
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.feeds import facade as feeds
from apps.kernel.scheduler import facade as scheduler
from apps.kernel.scheduler import picker, schedule_times
from apps.kernel.scheduler.models import TaskFile, TaskRun
from apps.orders.checkin import door_links
from apps.orders.checkin.check_in import Scan, scan
from apps.orders.models import (
    EventCancellation,
    Order,
    PaymentDifference,
    ReportVersion,
    ReturnPolicy,
    Ticket,
    TransferPolicy,
    WebhookEndpoint,
)
from apps.orders.provider_sync import discrepancies
from apps.orders.returns import returns
from apps.orders.transfers import transfers
from apps.queue.entries import vip_links
from apps.queue.models import AdmissionBatch, RateChange
from apps.queue.room import operations
from apps.reservations.models import AvailabilityFrame, CleanupLog
from apps.reservations.staff import stock
from apps.reservations.staff.selection import Selection
from tests.support import factories
from tests.support.kernel.feeds import make_feed
from tests.support.orders.sale import buy, make_code
from tests.support.orders.webhook_endpoints import make_endpoint, make_feed_key
from tests.support.queue.rooms import make_room


@dataclass(frozen=True)
class Rows:
    """An organizer with events. `marker` is part of the name of the organizer, of each event and of each subscriber."""

    organizer: Organizer
    marker: str
    sale: events.EventView
    room: events.EventView
    order: Order
    ticket: Ticket
    endpoint: WebhookEndpoint
    other: Order
    """Its ticket is offered to another person."""

    def of(self, model_admin: OrganizerScopedAdmin) -> list[Model]:
        """Return the rows of the list that belong to the organizer."""
        condition = model_admin.scope(frozenset({self.organizer.pk}))
        return list(model_admin.model._default_manager.filter(condition).order_by("pk"))


def scoped_admins() -> list[OrganizerScopedAdmin]:
    return [one for one in admin.site._registry.values() if isinstance(one, OrganizerScopedAdmin)]


def make_rows(slug: str, marker: str) -> Rows:
    """Create an organizer, and at least one row of it in every list of the admin."""
    organizer = factories.make_organizer(slug, f"{marker} Organizer")
    sale = factories.make_event(
        f"{slug}-sale",
        name=f"{marker} Sale",
        organizer=slug,
        general_admission=20,
        per_buyer_max=50,
        venue=f"{slug} venue",
    )
    room = make_room(f"{slug}-room", name=f"{marker} Room", organizer=slug, venue=f"{slug} venue")
    factories.make_member(organizer, Role.READ_ONLY, f"reader@{slug}.example")
    now = clock.now()
    endpoint = make_endpoint(event=sale, name=f"{marker} endpoint")
    make_endpoint(organizer=organizer, name=f"{marker} endpoint of all events")
    make_feed_key(sale, name=f"{marker} feed")
    make_feed_key(name=f"{marker} program", organizer=organizer, scopes=["feeds:send"])
    make_feed(f"{slug}-jobs", organizer.pk)
    feeds.send(organizer.pk, f"{slug}-jobs", [feeds.NewMessage(f"{marker}-message", None, "1")])
    code = make_code(sale, code=f"{marker.upper()}PROMO")
    factories.make_access_code(sale, "hall", code=f"{marker.upper()}ACCESS")
    order = buy(factories.hold(sale, seats=["hall-A-1", "hall-A-2"]), code=code.code)
    factories.hold(sale, seats=["hall-A-4"], ga_section="floor", ga_quantity=1)
    first, second = order.tickets.order_by("pk")
    scan(sale, Scan(f"{slug}-scan", first.code, anyway=True), "command:test")
    returns.return_by_staff(
        order.pk, [second.code], {second.code}, who="test", why="", keep_off_sale=False, also_checked_in=False,
        seen_minor=returns.quote_for_staff(order.pk, [second.code], {second.code}, also_checked_in=False).back_minor,
    )  # fmt: skip
    stock.block_seats(sale, Selection(("hall-B-1",)), "house", only_free=False, who="test", why="")
    door_links.make_link(
        sale.id, name=f"{marker} door", door="", good_from=now, good_until=now + timedelta(hours=1), who="test"
    )
    vip_links.make_link(room.id, note=f"{marker} link", who="test")
    factories.join(room)
    service.post(sale.id, f"{marker} announcement", author="test")
    operations.set_limits(room.id, rate_per_second=7, who="test")
    ReturnPolicy.objects.create(event_id=sale.id, until_hours=24)
    TransferPolicy.objects.create(event_id=sale.id)
    other = buy(factories.hold(sale, seats=["hall-C-1"]))
    transfers.offer_ticket(other.pk, {"ticket": other.tickets.get().code, "email": f"friend@{slug}.example"})
    with transactions.write():
        legal_pages.publish_page(organizer, "privacy", text=f"{marker} privacy", url="", who="test")
        discrepancies.record_difference(
            PaymentDifference.Kind.DISPUTE, "sandbox", f"{marker}-reference", currency="USD", occurred_at=now,
            order_id=order.pk, theirs_minor=100,
        )  # fmt: skip
    scheduler.schedule_task(
        "events.announce",
        {"text": f"{marker} task"},
        scheduler.Schedule(once_at=schedule_times.whole_minute(now)),
        scope=scheduler.Scope(sale.id, organizer.pk),
        who="test",
    )
    picker.pick()
    # A file of its run, whose kind is one that makes none.
    run = TaskRun.objects.get(task__event_id=sale.id)
    TaskFile.objects.create(run=run, name=f"{marker}.csv", content_type="text/csv", content=marker.encode())
    _insert_rows_of_processes(sale, room, now)
    first.refresh_from_db()
    return Rows(organizer, marker, sale, room, order, first, endpoint, other)


def _insert_rows_of_processes(sale: events.EventView, room: events.EventView, now: datetime) -> None:
    """Insert rows that only background processes write, or that end a sale."""
    AnnouncementArchive.objects.create(
        event_id=sale.id,
        day=now.date(),
        first=1,
        last=1,
        version_count=1,
        standing_count=1,
        archived_at=now,
        body=gzip.compress(b"[]"),
    )
    RateChange.objects.create(event_id=room.id, at=now, from_rate=1, to_rate=2, reason="test")
    AdmissionBatch.objects.create(
        event_id=room.id, at=now, reason=AdmissionBatch.Reason.values[0], from_number=1, to_number=1, count=1,
        active_count=1, active_max=1, epoch=1,
    )  # fmt: skip
    CleanupLog.objects.create(
        section_id=events.list_sections(sale.id)[0].id, general_admission_released=0, seats_released=1,
        reservations_affected=1, duration_ms=1, swept_by="test", swept_at=now,
    )  # fmt: skip
    AvailabilityFrame.objects.create(
        event_id=sale.id, epoch="1", sequence=1, frame='{"sections": []}', published_at=now
    )
    ReportVersion.objects.create(
        event_id=sale.id, version=1, as_of=now, published_at=now, published_by="test", document="{}", pdf=b"",
        key_id="test", public_key=bytes(32),
    )  # fmt: skip
    EventCancellation.objects.create(
        event_id=room.id, words="canceled", started_by="test", started_at=now, counted_at=now, finished_at=now
    )


def admin_url(model_admin: OrganizerScopedAdmin, page: str = "changelist", *args: Any) -> str:
    return reverse(f"admin:{model_admin.opts.app_label}_{model_admin.opts.model_name}_{page}", args=args)


def snapshot(rows: Rows) -> dict[str, list[dict[str, Any]]]:
    """Return all values of the organizer's rows, by model."""
    return {
        one.opts.label: [
            {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields} for row in rows.of(one)
        ]
        for one in scoped_admins()
    }
