"""The demo's three events, created once: loading them again changes nothing, whatever has happened to them since."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from apps.events.creation import EventDiffers, EventSpec, GeneralAdmission, Outcome, create_event
from apps.events.demo.arena import FLOOR, arena_plan
from apps.events.demo.posters import afterglow_poster, orchard_poster, solstice_poster
from apps.events.demo.theatre import theatre_plan
from apps.events.event_views import WaitingRoomSettings
from apps.events.models import Event, Organizer
from apps.kernel import clock

ORCHARD, AFTERGLOW, SOLSTICE = "glass-orchard", "voltaic-afterglow", "solstice-fields"
ORGANIZER = "northlight"


@dataclass(frozen=True, slots=True)
class LoadedEvent:
    slug: str
    name: str
    is_new: bool
    has_started: bool


def load_demo() -> list[LoadedEvent]:
    """Create and publish the demo events that are missing and return all three."""
    now = clock.now()
    Organizer.objects.get_or_create(
        slug=ORGANIZER, defaults={"name": "Northlight Presents", "contact_email": "hello@northlight.example"}
    )
    demo = ((ORCHARD, _orchard), (AFTERGLOW, _afterglow), (SOLSTICE, _solstice))
    return [_load(slug, describe, now) for slug, describe in demo]


def _load(slug: str, describe: Callable[[datetime], EventSpec], now: datetime) -> LoadedEvent:
    known = Event.objects.filter(slug=slug).values_list("name", "starts_at").first()
    if known is not None:
        name, starts_at = known
        return LoadedEvent(slug, name, is_new=False, has_started=starts_at <= now)
    spec = describe(now)
    try:
        created = create_event(spec)
    except EventDiffers:
        # Another loader came first and read the clock a moment earlier: its event stays.
        return LoadedEvent(slug, spec.name, is_new=False, has_started=False)
    return LoadedEvent(slug, spec.name, is_new=created.outcome is not Outcome.UNCHANGED, has_started=False)


def _evening(now: datetime, days: int, weekday: int, hour: int, minute: int, timezone: str) -> datetime:
    """Return this venue local time on the first such weekday (0 is Monday) at least `days` days ahead."""
    there = now.astimezone(ZoneInfo(timezone)) + timedelta(days=days)
    day = there + timedelta(days=(weekday - there.weekday()) % 7)
    return day.replace(hour=hour, minute=minute, second=0, microsecond=0).astimezone(UTC)


def _midsummer(now: datetime, timezone: str) -> datetime:
    """Return 16:00 venue local time on the last Thursday before 21 June that is at least 45 days ahead."""
    first = now.astimezone(ZoneInfo(timezone)) + timedelta(days=45)
    for year in (first.year, first.year + 1):
        solstice = datetime(year, 6, 21, 16, 0, tzinfo=ZoneInfo(timezone))
        day = solstice - timedelta(days=(solstice.weekday() - 3) % 7)
        if day > first:
            break
    return day.astimezone(UTC)


def _orchard(now: datetime) -> EventSpec:
    starts_at = _evening(now, 24, 5, 19, 30, "Europe/London")
    return EventSpec(
        slug=ORCHARD,
        name="The Glass Orchard",
        venue="Meridian Theatre",
        city="London",
        address="14 Cutler Row",
        coordinates=(51.5079, -0.0987),
        timezone="Europe/London",
        starts_at=starts_at,
        doors_at=starts_at - timedelta(hours=1),
        ends_at=starts_at + timedelta(hours=2, minutes=20),
        organizer=ORGANIZER,
        currency="GBP",
        plan=json.dumps(theatre_plan()).encode(),
        prices={"Premium": 9500, "Prime": 7200, "Standard": 4800, "Value": 2200},
        seats_per_reservation_max=8,
        description=(
            "A glassmaker leaves her three children an orchard that bears no fruit, only light. On the longest night of"
            " the year they meet to cut it down.\n\nA new play in two acts, with live music. Two hours and twenty"
            " minutes, one interval. The foyer opens an hour before the curtain."
        ),
        poster=orchard_poster(),
    )


def _afterglow(now: datetime) -> EventSpec:
    starts_at = _evening(now, 45, 4, 20, 0, "America/Chicago")
    return EventSpec(
        slug=AFTERGLOW,
        name="Voltaic: Afterglow Tour",
        venue="Lakefront Arena",
        city="Chicago",
        address="1 Breakwater Drive",
        coordinates=(41.8919, -87.6051),
        timezone="America/Chicago",
        starts_at=starts_at,
        doors_at=starts_at - timedelta(minutes=90),
        ends_at=starts_at + timedelta(hours=2, minutes=30),
        organizer=ORGANIZER,
        currency="USD",
        plan=json.dumps(arena_plan()).encode(),
        prices={"Lower bowl front": 18900, "Lower bowl": 13900, "Upper bowl": 8900, "Upper bowl rear": 4900},
        general_admission=(GeneralAdmission(FLOOR, 2500, 12900, "#7048e8"),),
        seats_per_reservation_max=6,
        description=(
            "Four people, forty synthesizers and a wall of light eighteen meters high. The Afterglow Tour brings the"
            " whole of the new record and the songs that everyone knows by heart.\n\nDoors open ninety minutes before"
            " the show. The floor is standing room."
        ),
        poster=afterglow_poster(),
    )


def _solstice(now: datetime) -> EventSpec:
    starts_at = _midsummer(now, "Europe/Stockholm")
    return EventSpec(
        slug=SOLSTICE,
        name="Solstice Fields: First Release",
        venue="Fields of Aurin",
        city="Malmö",
        address="Strandvägen 200",
        coordinates=(55.6033, 12.9790),
        timezone="Europe/Stockholm",
        starts_at=starts_at,
        doors_at=starts_at - timedelta(hours=4),
        ends_at=starts_at + timedelta(days=3, hours=4),
        organizer=ORGANIZER,
        currency="EUR",
        general_admission=(GeneralAdmission("Festival pass", 10_000, 8900, "#e76f51"),),
        seats_per_reservation_max=2,
        per_buyer_max=2,
        room=WaitingRoomSettings(rate_per_second=50, active_max=500),
        description=(
            "Three days of music around the shortest night, on a meadow by the sea. The first release is ten thousand"
            " passes at the lowest price of the year, two for each buyer.\n\nA pass is good for all three days and for"
            " a tent on the meadow."
        ),
        poster=solstice_poster(),
    )
