"""Cache invalidation when an event's page changes: sold out, back on sale, edited or canceled.

Once a second, one statement compares the state of every public event's page with the last published state, one row per
event. So holds, releases and sales do no work for it, a restart neither loses nor repeats a change, and of several
concurrent loops one publishes. Messages go through the outbox, delivered at least once.

Counts are not published: they are cached for a second or two at most. The start and the end
of sales are not published either: no page is cached beyond them.
"""

from typing import NamedTuple

from django.db import connection
from django.urls import reverse

from apps.events import facade as events
from apps.kernel.db import sql, transactions
from apps.kernel.outbox import facade as outbox

TOPIC = "reservations.page_turned"
INTERVAL_SECONDS_MIN = 5.0
"""The shortest time between two published changes of a page, so that a CDN need not purge every second while the last
seats come and go."""
PAGES_MAX = 100
"""The most pages per pass; the next pass is a second later."""
STOCK_REASONS = frozenset({"sold-out", "restocked"})
"""Changes of the stock, which a page also shows without a purge once its cached copy is stale."""

_changed_pages = sql.load("apps.reservations", "changed_pages")
_record_page = sql.load("apps.reservations", "record_page")


class _PageState(NamedTuple):
    """The state that a page shows. `stock` is free, gone, or empty while nothing is on sale."""

    status: str
    version: str
    stock: str


def publish_page_changes() -> int:
    """Publish a message for every changed page; return how many."""
    with connection.cursor() as cursor:
        rows = _changed_pages.rows(cursor, rest_seconds=INTERVAL_SECONDS_MIN, limit=PAGES_MAX)
    published = 0
    for event_id, slug, status, version, stock, *was in rows:
        published += _publish_page_change(
            event_id, slug, _PageState(status, version, stock), None if was[0] is None else _PageState(*was)
        )
    return published


def purge_page(event_id: int) -> None:
    """Purge the event's page after a change that the comparison does not read, because an app above keeps it. Joins the
    caller's transaction. A draft has no page."""
    try:
        event = events.get_event_by_id(event_id)
    except events.EventNotFound:
        return  # A draft without an on-sale.
    if event.status != "draft":
        body = {"event": event.slug, "paths": paths_of(event.slug, "changed"), "reason": "changed"}
        outbox.publish(TOPIC, event.slug, body)


def _publish_page_change(event_id: int, slug: str, now: _PageState, was: _PageState | None) -> bool:
    reason = _reason(now, was)
    with transactions.write():
        before = was or _PageState("", "", "")
        with connection.cursor() as cursor:
            states = now._asdict() | {f"was_{name}": value for name, value in before._asdict().items()}
            recorded = _record_page.count(cursor, event_id=event_id, **states)
        if not recorded or not reason:
            return False
        # The pending message will be delivered after this change, and purges the same pages.
        if reason in STOCK_REASONS and outbox.is_waiting(TOPIC, slug):
            return False
        outbox.publish(TOPIC, slug, {"event": slug, "paths": paths_of(slug, reason), "reason": reason})
    return True


def _reason(now: _PageState, was: _PageState | None) -> str:
    """Return the reason of the message; empty if only the passing of time changed the page."""
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
    """Return the paths to purge."""
    pages = [reverse("events:catalog"), reverse("events:event", args=[slug])]
    calls = [reverse("events_api_events"), reverse("events_api_event", args=[slug])]
    if reason in STOCK_REASONS:
        return pages + calls
    return [*pages, reverse("events:plan", args=[slug]), reverse("events:poster", args=[slug]), *calls]
