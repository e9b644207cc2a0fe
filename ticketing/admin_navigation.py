"""The navigation of the staff's site: six groups of pages. Each user sees the pages that its permissions open."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.urls import reverse


@dataclass(frozen=True, slots=True)
class Group:
    """Pages of the navigation, as models: those for daily work, and records and logs, which follow them."""

    slug: str
    name: str
    icon: str
    about: str
    models: tuple[str, ...]
    records: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    name: str
    url: str
    add_url: str
    is_record: bool
    is_current: bool


@dataclass(frozen=True, slots=True)
class Shown:
    """One group as a user sees it."""

    slug: str
    name: str
    icon: str
    about: str
    url: str
    items: tuple[Item, ...]
    is_current: bool

    @property
    def daily(self) -> list[Item]:
        return [item for item in self.items if not item.is_record]

    @property
    def records(self) -> list[Item]:
        return [item for item in self.items if item.is_record]

    @property
    def current(self) -> Item | None:
        return next((item for item in self.items if item.is_current), None)


GROUPS = (
    Group(
        "events", "Events", "calendar", "Events, venues, seats and prices, waiting rooms",
        ("events.event", "events.venue", "events.seatingplan", "queue.waitingroom", "events.announcementversion",
         "events.synonym",
         "reservations.seatinventory", "reservations.generaladmissioninventory", "reservations.accesscode",
         "queue.viplink", "scheduler.scheduledtask", "orders.eventcancellation"),
        ("queue.roomact", "queue.queueentry", "queue.admissionbatch", "queue.ratechange", "scheduler.taskrun",
         "reservations.inventorychange", "events.section", "events.seat", "events.announcementarchive"),
    ),
    Group(
        "orders", "Orders", "ticket", "Orders, tickets and reservations, promo codes, returns and transfers",
        ("orders.order", "orders.ticket", "reservations.reservation", "orders.promocode", "orders.tickettransfer",
         "orders.returnpolicy", "orders.transferpolicy"),
        ("orders.codeuse", "reservations.reservationtransition"),
    ),
    Group(
        "people", "People", "person", "Accounts, organizers and their members",
        ("accounts.user", "events.organizer", "events.membership", "auth.group"),
        ("accounts.securityevent", "events.legalpage", "reservations.purchasecap"),
    ),
    Group(
        "money", "Money", "money", "Payments, refunds, invoices, reconciliation",
        ("orders.payment", "orders.refund", "orders.paymentdifference", "orders.invoice", "orders.reportversion"),
        ("orders.comparedday", "orders.providermessage"),
    ),
    Group(
        "check-in", "Check-in", "scan", "Doors and scans",
        ("orders.doorlink",),
        ("orders.ticketscan",),
    ),
    Group(
        "system", "System", "gear", "Webhooks, messages, checks and schedules",
        ("kernel.auditrun", "kernel.reconcilerun", "events.viewrule",
         "outbox.outboxmessage", "orders.webhookendpoint", "orders.feedkey", "feeds.feed"),
        ("orders.webhookdelivery", "kernel.signal", "kernel.idempotentanswer", "reservations.availabilityframe",
         "reservations.cleanuplog", "django_celery_beat.periodictask", "django_celery_beat.intervalschedule",
         "django_celery_beat.crontabschedule", "django_celery_beat.clockedschedule",
         "django_celery_beat.solarschedule"),
    ),
)  # fmt: skip


def groups_for(pages: Mapping[str, Mapping[str, Any]], path: str = "") -> list[Shown]:
    """Return the groups with the pages that the user may open.

    `pages` has Django's description of each permitted model by its label; a model that no group names is in the last
    group. `path` is the current page, to mark its item.
    """
    named = {label for group in GROUPS for label in (*group.models, *group.records)}
    unnamed = tuple(label for label in pages if label not in named)
    current = _current_of(pages, path)
    shown = []
    for group in GROUPS:
        records = (*group.records, *unnamed) if group is GROUPS[-1] else group.records
        items = (
            *_items_of(pages, group.models, False, current),
            *_items_of(pages, records, True, current),
        )
        if items:
            url = reverse("admin:group", args=[group.slug])
            is_current = path == url or any(item.is_current for item in items)
            shown.append(Shown(group.slug, group.name, group.icon, group.about, url, items, is_current))
    return shown


def _items_of(
    pages: Mapping[str, Mapping[str, Any]], labels: Iterable[str], is_record: bool, current: str
) -> Iterable[Item]:
    for label in labels:
        page = pages.get(label)
        if page is None or not page["admin_url"]:
            continue
        name = str(page["name"])
        yield Item(name, page["admin_url"], page["add_url"] or "", is_record, label == current)


def _current_of(pages: Mapping[str, Mapping[str, Any]], path: str) -> str:
    """Return the model whose list, or a page below it, is at the path."""
    found = (label for label, page in pages.items() if page["admin_url"] and path.startswith(page["admin_url"]))
    return next(found, "")
