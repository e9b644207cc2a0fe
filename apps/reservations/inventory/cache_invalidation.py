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
REST_SECONDS = 5.0
"""The next turn of the same page waits so long: when the last seats come and go every second, a CDN is
not asked to purge every second."""
TOLD_MAX = 100
"""A pass; the next one is a second later."""
OF_STOCK = frozenset({"sold-out", "restocked"})
"""The reasons that come and go by themselves, and that a page says by itself once it is stale."""

_turned = sql.load("apps.reservations", "turned_pages")
_tell = sql.load("apps.reservations", "tell_page")


@dataclass(frozen=True, slots=True)
class _Said:
    """What a page says. `stock` is free, gone, or empty while nothing is on sale."""

    status: str
    version: str
    stock: str


def tell_turned() -> int:
    """Of every page that has turned the caches are being told; how many messages that made."""
    with connection.cursor() as cursor:
        rows = _turned.rows(cursor, rest_seconds=REST_SECONDS, limit=TOLD_MAX)
    told = 0
    for event_id, slug, status, version, stock, *was in rows:
        told += _tell_one(event_id, slug, _Said(status, version, stock), None if was[0] is None else _Said(*was))
    return told


def _tell_one(event_id: int, slug: str, now: _Said, was: _Said | None) -> bool:
    reason = _reason(now, was)
    with transactions.write():
        before = was or _Said("", "", "")
        with connection.cursor() as cursor:
            told = _tell.count(
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
        if reason in OF_STOCK and outbox.is_waiting(TOPIC, slug):
            return False
        outbox.publish(TOPIC, slug, {"event": slug, "paths": paths_of(slug, reason), "reason": reason})
    return True


def _reason(now: _Said, was: _Said | None) -> str:
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
    if reason in OF_STOCK:
        return pages + calls
    return [*pages, reverse("events:plan", args=[slug]), reverse("events:poster", args=[slug]), *calls]
