"""Publication: one transaction creates the draft's sections and seats in one bulk load, and the apps above add their
inventory."""

import logging
from collections.abc import Iterator, Mapping

from django.db import connection

from apps.events import event_views, registries
from apps.events.checklist.draft import Draft, read_draft
from apps.events.checklist.findings import list_findings
from apps.events.checklist.registry import Level
from apps.events.models import Category, Event, Section
from apps.events.plans import Plan
from apps.kernel import clock
from apps.kernel.db import sql, transactions

log = logging.getLogger(__name__)

# An event of 200,000 seats with its inventory stays well below this; a shopper's transactions have shorter timeouts.
PUBLISH_STATEMENT_MS = 180_000
PUBLISH_LOCK_MS = 30_000


class EventRefused(ValueError):
    """An event that cannot be created or published as described. The message gives all reasons in one line."""


def publish_event(event_id: int) -> bool:
    """Publish the event with its sections and seats, and run every publish listener; return whether this call published
    it. Publishing again changes nothing. Raises EventNotFound, or EventRefused if the draft cannot be sold."""
    with transactions.write(lock_ms=PUBLISH_LOCK_MS, statement_ms=PUBLISH_STATEMENT_MS):
        event = lock_event(event_id)
        done = publish_locked(event)
    if done:
        refresh_statistics()
    return done


def lock_event(event_id: int) -> Event:
    """Lock the event's row until the end of the caller's transaction and return it. Raises EventNotFound."""
    transactions.require_transaction()
    # Concurrent publishers wait here and then read the status that the first one wrote.
    event = (
        Event.objects.select_for_update(no_key=True, of=("self",)).select_related("plan").filter(pk=event_id).first()
    )
    if event is None:
        raise event_views.EventNotFound(str(event_id))
    return event


def publish_locked(event: Event) -> bool:
    """Like `publish_event`, inside the caller's transaction and for an event that it has locked."""
    transactions.require_transaction()
    if event.status != Event.Status.DRAFT:
        return False
    draft = read_draft(event)
    _require_complete(draft)
    plan = draft.plan
    if plan is not None:
        categories = {category.key: category for category in Category.objects.filter(event=event)}
        _write_seats(event, plan, categories)
    with connection.cursor() as cursor:
        sql.load("apps.events", "link_categories").count(cursor, event_id=event.pk)
    event.status = Event.Status.PUBLISHED
    event.published_at = clock.now()
    event.save(update_fields=["status", "published_at"])
    for listener in registries.publish_listeners():
        listener(event.pk)
    log.info("published event %s with %d seats", event.slug, plan.seat_count if plan else 0)
    return True


def refresh_statistics() -> None:
    """Update the planner's statistics. Otherwise it would plan without the new seats until autovacuum runs."""
    with connection.cursor() as cursor:
        sql.load("apps.events", "refresh_statistics").count(cursor)


def _require_complete(draft: Draft) -> None:
    """Raise EventRefused with everything that is missing in the draft, unless it is complete."""
    found = list_findings(draft, clock.now())
    missing = [finding.text for finding in found if finding.level == Level.MISSING]
    if missing:
        raise EventRefused(" ".join(missing))


def _write_seats(event: Event, plan: Plan, categories: Mapping[str, Category]) -> None:
    # Created in the plan's order, so that section ids rise in that order, as seat ids do.
    sections = Section.objects.bulk_create(
        Section(
            event=event,
            slug=section.slug,
            name=section.name,
            kind=Section.Kind.RESERVED,
            capacity=len(section.seats),
            position=position,
        )
        for position, section in enumerate(plan.sections)
    )
    category_ids = [
        categories[category.name].pk if category.name in categories else None for category in plan.categories
    ]
    statement = sql.load("apps.events", "load_seats")
    with connection.cursor() as cursor, connection.wrap_database_errors, cursor.copy(statement.text) as copy:
        for row in _rows(event.pk, plan, [section.pk for section in sections], category_ids):
            copy.write_row(row)


def _rows(
    event_id: int, plan: Plan, section_ids: list[int], category_ids: list[int | None]
) -> Iterator[tuple[object, ...]]:
    for section_id, section in zip(section_ids, plan.sections, strict=True):
        for seat in section.seats:
            yield (
                event_id,
                section_id,
                category_ids[seat.category],
                seat.guid,
                seat.row,
                seat.number,
                seat.x,
                seat.y,
                seat.row_index,
                seat.place_index,
                seat.rank,
                seat.accessible,
                seat.companion,
            )
