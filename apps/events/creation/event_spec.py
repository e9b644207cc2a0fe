"""The description of a new event."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from apps.events.event_views import Presale, WaitingRoomSettings
from apps.events.pricing import DEFAULT_PRICE_POLICY, PricePolicy
from apps.events.publication import EventRefused
from apps.events.registries import ReturnTerms
from apps.kernel.form_fields.local_time import InvalidLocalTime, resolve_local_time


@dataclass(frozen=True, slots=True)
class GeneralAdmission:
    """An area without seats: this many tickets at one price in the smallest unit of the currency."""

    name: str
    capacity: int
    price_minor: int
    color: str = ""


@dataclass(frozen=True, slots=True)
class EventSpec:
    """The description of an event. Times without an offset are venue local time; `opens_at` None means now."""

    slug: str
    name: str
    venue: str
    starts_at: datetime
    currency: str
    plan: bytes | None = None
    plan_name: str = ""
    prices: Mapping[str, int] = field(default_factory=dict)  # category to minor units
    general_admission: tuple[GeneralAdmission, ...] = ()
    opens_at: datetime | None = None
    closes_at: datetime | None = None
    hold_seconds: int = 600
    payment_seconds: int = 180
    seats_per_reservation_max: int = 8
    per_buyer_max: int | None = None
    room: WaitingRoomSettings | None = None  # None: no waiting room
    presale: Presale | None = None  # None: no presale
    price_policy: PricePolicy = DEFAULT_PRICE_POLICY
    tax_rates: Mapping[str, int] = field(default_factory=dict)  # category, or general admission, to basis points
    needs_access: tuple[str, ...] = ()  # ids of sections whose holds need an access code
    description: str = ""
    summary: str = ""  # one sentence
    performers: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    language: str = "en"  # of its texts; a value of models.catalog.Language
    city: str = ""  # empty: the venue's
    address: str = ""  # of a new venue
    coordinates: tuple[float, float] | None = None  # latitude and longitude of a new venue
    timezone: str = ""  # empty: the venue's, UTC for a new one
    poster: str = ""
    returns: ReturnTerms | None = None  # None: buyers may not return tickets, or as they are for an existing event
    publishes_report: bool = False  # a report of the sale may be published after it
    draft: bool = False
    doors_at: datetime | None = None
    ends_at: datetime | None = None
    organizer: str = ""  # slug; empty: the default organizer, or that of the existing event


def resolve_venue_time(moment: datetime, timezone: str) -> datetime:
    """Return the moment in UTC; without an offset it is venue local time. Raises EventRefused for a local time that
    does not exist or occurs twice, because clocks change."""
    try:
        return resolve_local_time(moment, timezone)
    except InvalidLocalTime as error:
        raise EventRefused(str(error)) from error
    except OverflowError as error:
        raise EventRefused(f"{moment.isoformat()} is out of range") from error


def resolve_if_given(moment: datetime | None, timezone: str) -> datetime | None:
    """Return the moment in UTC, as `resolve_venue_time` does, or None."""
    return None if moment is None else resolve_venue_time(moment, timezone)
