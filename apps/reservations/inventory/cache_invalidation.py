"""Caches in front of the house are told when an event's page has turned: sold out, back on sale, changed, canceled.

Once a second one statement compares what every public event's page says now with what the caches were last told, which
is a row for each event: nothing in the paths that hold, release or sell knows of it, a restart neither forgets nor
repeats, and of several loops at once one tells. What is told leaves through the outbox, at least once.

Counts are not told: nobody caches them for longer than a second or two. Nor is what the clock brings (the opening, the
closing): no page is kept past it.
"""

from dataclasses import dataclass

from django.db import connection
from django.urls import reverse

from apps.kernel.db import sql, transactions
from apps.kernel.outbox import facade as outbox

TOPIC = "reservations.page_turned"
INTERVAL_SECONDS_MIN = 5.0
"""The next turn of the same page waits so long: when the last seats come and go every second, a CDN is
not asked to purge every second."""
PAGES_MAX = 100
"""A pass; the next one is a second later."""
STOCK_REASONS = frozenset({"sold-out", "restocked"})
"""The reasons that come and go by themselves, and that a page says by itself once it is stale."""

_changed_pages = sql.load("apps.reservations", "turned_pages")
_record_page = sql.load("apps.reservations", "tell_page")


@dataclass(frozen=True, slots=True)
class _PageState:
    """What a page says. `stock` is free, gone, or empty while nothing is on sale."""

    status: str
    version: str
    stock: str


def publish_page_changes() -> int:
    """Of every page that has turned the caches are being told; how many messages that made."""
    with connection.cursor() as cursor:
        rows = _changed_pages.rows(cursor, rest_seconds=INTERVAL_SECONDS_MIN, limit=PAGES_MAX)
    told = 0
    for event_id, slug, status, version, stock, *was in rows:
        told += _publish_page_change(
            event_id, slug, _PageState(status, version, stock), None if was[0] is None else _PageState(*was)
        )
    return told


def _publish_page_change(event_id: int, slug: str, now: _PageState, was: _PageState | None) -> bool:
    reason = _reason(now, was)
    with transactions.write():
        before = was or _PageState("", "", "")
        with connection.cursor() as cursor:
            told = _record_page.count(
                cursor,
                event_id=event_id,
                status=now.status,
                version=now.version,
                stock=now.stock,
                was_status=before.status,
                was_version=before.version,
                was_stock=before.stock,
            )
        if not told or not reason:
            return False
        # What waits to be delivered is delivered after this, and purges the same pages.
        if reason in STOCK_REASONS and outbox.is_waiting(TOPIC, slug):
            return False
        outbox.publish(TOPIC, slug, {"event": slug, "paths": paths_of(slug, reason), "reason": reason})
    return True


def _reason(now: _PageState, was: _PageState | None) -> str:
    """Why caches are told; empty where the clock alone has turned the page."""
    if was is None:
        return "published"
    if now.status != was.status:
        return "canceled" if now.status == "canceled" else "changed"
    if now.version != was.version:
        return "changed"
    if now.stock == "gone":
        return "sold-out"
    return "restocked" if was.stock == "gone" and now.stock == "free" else ""


def paths_of(slug: str, reason: str) -> list[str]:
    """The addresses whose copies are no longer true."""
    pages = [reverse("events:catalogue"), reverse("events:event", args=[slug])]
    calls = [reverse("events_api_events"), reverse("events_api_event", args=[slug])]
    if reason in STOCK_REASONS:
        return pages + calls
    return [*pages, reverse("events:plan", args=[slug]), reverse("events:poster", args=[slug]), *calls]
