"""The demo's season: 300 small events in a dozen cities and two languages, so that there is something to search.

They go on sale later than they are announced, so they cost the running system nothing but their rows.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from django.db import connection
from django.utils.text import slugify

from apps.events.creation import lock_creation
from apps.events.demo.acts import ENGLISH_ACTS, ENGLISH_STAGES, GERMAN_ACTS, GERMAN_STAGES, Act, Stage
from apps.events.models import Category, Event, OnSale, Organizer, Section, Venue
from apps.events.models.catalog import Language
from apps.events.publication import PUBLISH_LOCK_MS, PUBLISH_STATEMENT_MS
from apps.events.registries import publish_listeners
from apps.kernel import clock
from apps.kernel.db import sql, transactions

ORGANIZER = "season"
EVENINGS = 5
"""Of each act."""
OPENS_DAYS_MIN, STARTS_DAYS_AFTER = 3, 60
_CATEGORY, _SECTION = "Admission", "admission"


class _Evening(NamedTuple):
    act: Act
    stage: Stage
    language: Language
    starts_at: datetime
    opens_at: datetime


def load_season() -> int:
    """Create and publish the season's events in one transaction; return how many. Does nothing if there are any."""
    with transactions.write(lock_ms=PUBLISH_LOCK_MS, statement_ms=PUBLISH_STATEMENT_MS):
        lock_creation()
        organizer, is_new = Organizer.objects.get_or_create(slug=ORGANIZER, defaults={"name": "Season of Cities"})
        if not is_new:
            return 0
        now = clock.now()
        evenings = [
            *_evenings(now, ENGLISH_ACTS, ENGLISH_STAGES, Language.ENGLISH),
            *_evenings(now, GERMAN_ACTS, GERMAN_STAGES, Language.GERMAN),
        ]
        events = _write(evenings, organizer, now)
    return len(events)


def _evenings(now: datetime, acts: Sequence[Act], stages: Sequence[Stage], language: Language) -> Iterator[_Evening]:
    for number, act in enumerate(acts):
        for evening in range(EVENINGS):
            # The first act plays on the first stage; the steps differ, so that every pair of act and stage differs.
            stage = stages[(number + evening) % len(stages)]
            opens_days = OPENS_DAYS_MIN + (number * 7 + evening * 5) % 40
            starts_days = opens_days + STARTS_DAYS_AFTER + (number * 11 + evening * 17) % 150
            zone = ZoneInfo(stage.timezone)
            opens = (now.astimezone(zone) + timedelta(days=opens_days)).replace(hour=10, minute=0)
            starts = (now.astimezone(zone) + timedelta(days=starts_days)).replace(
                hour=18 + number % 3, minute=30 * (evening % 2)
            )
            opens, starts = (moment.replace(second=0, microsecond=0) for moment in (opens, starts))
            yield _Evening(act, stage, language, starts, opens)


def _write(evenings: Sequence[_Evening], organizer: Organizer, now: datetime) -> list[Event]:
    stages = {evening.stage.venue: evening.stage for evening in evenings}
    venues = {name: _venue(stage) for name, stage in stages.items()}
    events = Event.objects.bulk_create(
        Event(
            slug=f"{slugify(act.name)[:50]}-{slugify(stage.city)}-{number}",
            name=act.name,
            summary=act.summary,
            description=act.description,
            performers=act.performers.replace(";", "\n"),
            tags=act.tags.replace(";", ", "),
            language=language,
            organizer=organizer,
            venue=venues[stage.venue],
            doors_at=starts_at - timedelta(hours=1),
            starts_at=starts_at,
            currency=stage.currency,
            status=Event.Status.PUBLISHED,
            published_at=now,
        )
        for number, (act, stage, language, starts_at, _) in enumerate(evenings, 1)
    )
    OnSale.objects.bulk_create(
        OnSale(event=event, opens_at=evening.opens_at, seats_per_reservation_max=6)
        for event, evening in zip(events, evenings, strict=True)
    )
    categories = Category.objects.bulk_create(
        Category(event=event, key=_CATEGORY, name=_CATEGORY, color="#4263eb", price_minor=evening.act.price_minor)
        for event, evening in zip(events, evenings, strict=True)
    )
    Section.objects.bulk_create(
        Section(
            event=event, slug=_SECTION, name=_CATEGORY, kind=Section.Kind.GENERAL_ADMISSION,
            capacity=evening.stage.capacity, category=category,
        )
        for event, evening, category in zip(events, evenings, categories, strict=True)
    )  # fmt: skip
    with connection.cursor() as cursor:
        for event in events:
            sql.load("apps.events", "link_categories").count(cursor, event_id=event.pk)
    for event in events:
        for listener in publish_listeners():
            listener(event.pk)
    return events


def _venue(stage: Stage) -> Venue:
    """Return the venue. One that the demo's user has added under this name stays as it is."""
    found, _ = Venue.objects.get_or_create(
        name=stage.venue,
        defaults={
            "slug": slugify(stage.venue), "city": stage.city, "address": stage.address, "timezone": stage.timezone,
        },
    )  # fmt: skip
    return found
