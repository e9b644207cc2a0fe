"""A draft of an event as frozen values, for its checklist and its preview."""

from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse

from apps.events.models import Category, Event, OnSale, Section
from apps.events.organizers import legal_pages
from apps.events.plans import Plan, from_layout


@dataclass(frozen=True, slots=True)
class DraftPrice:
    key: str
    name: str
    color: str
    price_minor: int


@dataclass(frozen=True, slots=True)
class DraftOnSale:
    """The on-sale as entered. Unlike a published one, it may contradict itself."""

    opens_at: datetime
    opens_at_once: bool
    """Whether no time was entered: sales open as soon as the event is published."""
    closes_at: datetime | None
    hold_seconds: int
    seats_per_reservation_max: int
    per_buyer_max: int | None
    room_rate_per_second: int | None
    room_active_max: int | None
    lobby_opens_at: datetime | None
    presale_condition: str
    presale_until: datetime | None

    @property
    def has_room(self) -> bool:
        return self.room_rate_per_second is not None and self.room_active_max is not None


@dataclass(frozen=True, slots=True)
class Draft:
    event_id: int
    slug: str
    name: str
    organizer_id: int
    organizer_name: str
    venue_id: int
    venue_name: str
    venue_address: str
    timezone: str
    currency: str
    starts_at: datetime
    on_sale: DraftOnSale | None
    plan: Plan | None
    prices: tuple[DraftPrice, ...]
    general_admission: tuple[tuple[str, str], ...]
    """Slug and name of each section without seats."""
    legal_kinds: frozenset[str]
    """Kinds of the organizer's current legal pages."""

    @property
    def prices_link(self) -> str:
        """The path of the page with the event's prices."""
        return reverse("admin:events_prices", args=[self.event_id])

    def form_link(self, part: str = "") -> str:
        """Return the path of the event's form, at this element of the page."""
        return reverse("admin:events_event_change", args=[self.event_id]) + (f"#{part}" if part else "")


def read_draft(event: Event) -> Draft:
    """Return the event's values with its plan, read now."""
    on_sale = OnSale.objects.filter(event=event).first()
    general = Section.objects.filter(event=event, kind=Section.Kind.GENERAL_ADMISSION)
    return Draft(
        event_id=event.pk,
        slug=event.slug,
        name=event.name,
        organizer_id=event.organizer_id,
        organizer_name=event.organizer.name,
        venue_id=event.venue_id,
        venue_name=event.venue.name,
        venue_address=event.venue.address,
        timezone=event.venue.timezone,
        currency=event.currency,
        starts_at=event.starts_at,
        on_sale=None if on_sale is None else _on_sale(event, on_sale),
        plan=None if event.plan is None else from_layout(event.plan.layout),
        prices=tuple(
            DraftPrice(one.key, one.name, one.color, one.price_minor) for one in Category.objects.filter(event=event)
        ),
        general_admission=tuple(general.values_list("slug", "name")),
        legal_kinds=legal_pages.current_kinds(event.organizer_id),
    )


def _on_sale(event: Event, row: OnSale) -> DraftOnSale:
    return DraftOnSale(
        opens_at=row.opens_at,
        opens_at_once=event.opens_at_once(row.opens_at),
        closes_at=row.closes_at,
        hold_seconds=row.hold_seconds,
        seats_per_reservation_max=row.seats_per_reservation_max,
        per_buyer_max=row.per_buyer_max,
        room_rate_per_second=row.room_rate_per_second,
        room_active_max=row.room_active_max,
        lobby_opens_at=row.room_lobby_opens_at,
        presale_condition=row.presale_condition,
        presale_until=row.presale_until,
    )
