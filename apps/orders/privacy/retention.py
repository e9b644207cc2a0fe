"""Retention: each kind of personal data is erased or trimmed once its period has passed.

The periods are settings, in days; 0 keeps the data. One pass does everything that is due, in short transactions, and
can be interrupted and repeated at any time.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from django.conf import settings
from django.db.models import Q

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.mail import accepted_domains
from apps.kernel.rate_limits import mail_caps
from apps.orders.models import ERASED_DOMAIN, Invoice, Order, ProviderMessage
from apps.orders.privacy import erasure
from apps.queue import facade as queue
from apps.reservations import facade as reservations

logger = logging.getLogger(__name__)

BATCH_MAX = 500
PASS_MAX = 20_000
"""Rows of one kind that one pass handles; the next pass continues."""
_UNPAID = (Order.Status.FAILED, Order.Status.CANCELED)


class Kind(NamedTuple):
    """A kind of data: its name in logs and documents, its period in days, and what erases what is older than a time;
    it returns how many rows it changed."""

    name: str
    days: int
    erase_before: Callable[[datetime], int]


def kinds() -> list[Kind]:
    return [
        Kind("queue entries", settings.RETENTION_QUEUE_DAYS, erase_entries),
        Kind("unpaid orders", settings.RETENTION_UNPAID_ORDERS_DAYS, erase_unpaid_orders),
        Kind("orders", settings.RETENTION_ORDERS_DAYS, erase_orders),
        Kind("provider payloads", settings.RETENTION_PROVIDER_PAYLOADS_DAYS, trim_payloads),
        Kind("invoices", settings.RETENTION_INVOICES_YEARS * 366, erase_invoice_buyers),
        Kind("networks of entries", queue.NETWORKS_KEPT_DAYS, queue.erase_networks),
        Kind("archived searches", events.SEARCHES_ARCHIVED_DAYS, events.delete_archived_searches),
        Kind("unused histories of searches", events.SEARCHES_COOKIE_DAYS, events.delete_unused_histories),
        Kind("mail counts", mail_caps.KEPT_DAYS, mail_caps.delete_counts),
        Kind("domains that accept mails", accepted_domains.KEPT_DAYS, accepted_domains.delete_old),
    ]


def run() -> dict[str, int]:
    """Erase what is due now. Return how many rows of each kind changed."""
    now = clock.now()
    counts = {kind.name: kind.erase_before(now - timedelta(days=kind.days)) for kind in kinds() if kind.days}
    if any(counts.values()):
        logger.info("retention: %s", ", ".join(f"{count} {name}" for name, count in counts.items() if count))
    return counts


def erase_entries(before: datetime) -> int:
    """Erase the queue entries of events that began before this time, with their reservations. Entries with an order
    stay until their order is erased."""
    count = 0
    for event_id in queue.events_to_erase(before):
        after: int | None = 0
        while after is not None:
            if count >= PASS_MAX:
                return count
            batch, after = queue.entries_of_event(event_id, after, BATCH_MAX)
            count += erasure.erase(batch, None).entry_count
        while reservations.delete_caps_of_event(event_id, BATCH_MAX) == BATCH_MAX:
            pass
        queue.finish_event_erasure(event_id)
    return count


def erase_unpaid_orders(before: datetime) -> int:
    """Erase orders that ended before this time without a sale."""
    due = Q(status__in=_UNPAID, ended_at__lt=before)

    def may_erase(order: Order, now: datetime) -> bool:
        return order.status in _UNPAID and order.ended_at is not None and order.ended_at < before

    return _erase_orders(due, may_erase)


def erase_orders(before: datetime) -> int:
    """Erase the orders of events that began before this time."""
    return _erase_orders(Q(event__starts_at__lt=before), erasure.is_settled)


def _erase_orders(due: Q, may_erase: erasure.MayErase) -> int:
    is_erased = Q(email__endswith=ERASED_DOMAIN, buyer__startswith=queue.ERASED_BUYER)
    orders = Order.objects.filter(due).exclude(is_erased).order_by("placed_at")
    entry_ids = list(dict.fromkeys(orders.values_list("entry_id", flat=True)[:PASS_MAX]))
    return len(erasure.erase(entry_ids, may_erase).orders)


def trim_payloads(before: datetime) -> int:
    """Blank the payloads of processed provider messages that were received before this time. What was read from them
    stays."""
    due = ProviderMessage.objects.filter(received_at__lt=before, processed_at__isnull=False).exclude(raw=b"")
    ids = list(due.order_by("pk").values_list("pk", flat=True)[:PASS_MAX])
    for start in range(0, len(ids), BATCH_MAX):
        with transactions.write():
            erasure.blank_payloads(ProviderMessage.objects.filter(pk__in=ids[start : start + BATCH_MAX]))
    return len(ids)


def erase_invoice_buyers(before: datetime) -> int:
    """Replace the buyer in invoices and credit notes of the years before this time's."""
    buyer = {"name": erasure.NAME, "email": ""}
    due = Invoice.objects.filter(year__lt=before.year).exclude(paper__buyer=buyer).order_by("pk")
    count = 0
    while count < PASS_MAX and (ids := list(due.values_list("pk", flat=True)[:BATCH_MAX])):
        with transactions.write():
            invoices = list(Invoice.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk"))
            for invoice in invoices:
                invoice.paper["buyer"] = buyer
            Invoice.objects.bulk_update(invoices, ["paper"])
        count += len(ids)
    return count
