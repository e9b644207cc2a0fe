"""Creation of events from a description, in one transaction; an identical description changes nothing."""

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from django.conf import settings
from django.db import connection
from django.utils.text import slugify

from apps.events.changes import CAPACITY_MAX, PRICE_MINOR_MAX
from apps.events.checklist.findings import used_categories
from apps.events.creation.differences import list_differences, list_venue_differences
from apps.events.creation.event_spec import EventSpec, GeneralAdmission, resolve_if_given, resolve_venue_time
from apps.events.currencies import CODES
from apps.events.models import Category, Event, OnSale, Organizer, SeatingPlan, Section, Venue
from apps.events.models.catalog import (
    DEADLINE_SECONDS_MIN,
    HOLD_SECONDS_MAX,
    PAYMENT_SECONDS_MAX,
    SUMMARY_CHARACTERS_MAX,
    Language,
)
from apps.events.organizers.default_organizer import get_default_organizer
from apps.events.plans import Limits, Plan, PlanError, parse_plan, to_layout
from apps.events.plans.colors import distinct_color
from apps.events.plans.plan import CATEGORY_CHARACTERS_MAX, label
from apps.events.pricing import FEE_MINOR_MAX, RATE_MAX
from apps.events.publication import (
    PUBLISH_LOCK_MS,
    PUBLISH_STATEMENT_MS,
    EventRefused,
    lock_event,
    publish_locked,
    refresh_statistics,
)
from apps.events.registries import return_policies
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.form_fields.local_time import LATEST, is_timezone

PER_BUYER_MAX = 1_000_000
ROOM_RATE_MAX = 100_000
ROOM_ACTIVE_MAX = 1_000_000
SEATS_PER_RESERVATION_MAX = 100
GENERAL_ADMISSION_SECTIONS_MAX = 200
DESCRIPTION_CHARACTERS_MAX = 10_000
PERFORMERS_MAX, PERFORMER_CHARACTERS_MAX = 100, 120
TAG_CHARACTERS_MAX, TAGS_CHARACTERS_MAX = 60, 300
_SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*", re.ASCII)


class EventDiffers(EventRefused):
    """An event with this slug exists with other values. `differences` names each, the stored value first."""

    def __init__(self, slug: str, differences: list[str]) -> None:
        super().__init__(f"{slug} exists with other values: {'; '.join(differences)}")
        self.differences = differences


class Outcome(StrEnum):
    DRAFTED = "drafted"
    PUBLISHED = "published"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Created:
    """The result of a creation, with notes on what was left out of the plan file."""

    outcome: Outcome
    event_id: int
    notes: tuple[str, ...] = ()


def create_event(spec: EventSpec) -> Created:
    """Create the event as described and publish it, unless it is to stay a draft.

    An identical description changes nothing, but publishes an existing draft unless `spec.draft` is set. Raises
    EventDiffers if the event exists with other values, EventRefused or PlanError for an invalid description; nothing is
    written then.
    """
    _check_texts(spec)
    _check_numbers(spec)
    plan = parse_plan(spec.plan, plan_limits()) if spec.plan is not None else None
    _check_offer(spec, plan)
    if plan is not None:
        # Drop the prices of categories without seats.
        used = used_categories(plan)
        spec = replace(spec, prices={name: price for name, price in spec.prices.items() if name in used})
    with transactions.write(lock_ms=PUBLISH_LOCK_MS, statement_ms=PUBLISH_STATEMENT_MS):
        lock_creation()
        existing = Event.objects.filter(slug=spec.slug).values_list("pk", flat=True).first()
        if existing is None:
            event = _write(spec, plan)
        else:
            event = lock_event(existing)
            differences = list_differences(event, spec)
            if differences:
                raise EventDiffers(spec.slug, differences)
        if spec.draft:
            outcome = Outcome.DRAFTED if existing is None else Outcome.UNCHANGED
            return Created(outcome, event.pk, plan.notes if plan is not None else ())
        published = publish_locked(event)
        if published:
            _require_access_codes(event, spec)
    if published:
        refresh_statistics()
    outcome = Outcome.PUBLISHED if published else Outcome.UNCHANGED
    return Created(outcome, event.pk, plan.notes if plan is not None else ())


def plan_limits() -> Limits:
    return Limits(file_bytes_max=settings.SEATING_PLAN_FILE_MAX_BYTES, seats_max=settings.SEATING_PLAN_SEATS_MAX)


def lock_creation() -> None:
    with connection.cursor() as cursor:
        sql.load("apps.events", "lock_creation").rows(cursor)


def store_plan(organizer: Organizer, venue: Venue, plan: Plan, data: bytes, name: str = "") -> SeatingPlan:
    """Store the organizer's plan of the venue, or return the stored one for the same bytes. `name` is for files without
    a plan name. Joins the caller's transaction."""
    transactions.require_transaction()
    lock_creation()
    stored, _ = SeatingPlan.objects.get_or_create(
        organizer=organizer,
        venue=venue,
        digest=hashlib.sha256(data).hexdigest(),
        defaults={
            "name": plan.name or name or f"Plan of {venue.name}"[:200],
            "seat_count": plan.seat_count,
            "layout": to_layout(plan),
        },
    )
    return stored


def _check_label(value: str, what: str, characters_max: int, *, empty: bool = False) -> None:
    try:
        label(value, what, characters_max, empty=empty)
    except PlanError as error:
        raise EventRefused(f"{what} {error.what}") from error
    if value != value.strip():
        raise EventRefused(f"{what} begins or ends with a space")


def _check_texts(spec: EventSpec) -> None:
    if len(spec.slug) > 80 or not _SLUG.fullmatch(spec.slug):
        raise EventRefused(
            f"the slug {spec.slug[:90]!r} must be lower-case letters, digits and single hyphens, at most 80"
        )
    _check_label(spec.name, "the name", 200)
    _check_label(spec.venue, "the venue", 200)
    _check_label(spec.city, "the city", 120, empty=True)
    _check_label(spec.address, "the address", 300, empty=True)
    if len(spec.description) > DESCRIPTION_CHARACTERS_MAX or "\x00" in spec.description:
        raise EventRefused(f"the description must be printable and at most {DESCRIPTION_CHARACTERS_MAX} characters")
    _check_label(spec.summary, "the short description", SUMMARY_CHARACTERS_MAX, empty=True)
    for performer in spec.performers:
        _check_label(performer, "a performer", PERFORMER_CHARACTERS_MAX)
    for tag in spec.tags:
        _check_label(tag, "a tag", TAG_CHARACTERS_MAX)
        if "," in tag:
            raise EventRefused(f"the tag {tag!r} contains a comma")
    if len(spec.performers) > PERFORMERS_MAX or len(", ".join(spec.tags)) > TAGS_CHARACTERS_MAX:
        raise EventRefused(f"at most {PERFORMERS_MAX} performers, and {TAGS_CHARACTERS_MAX} characters of tags")
    if spec.language not in Language.values:
        raise EventRefused(f"the language {spec.language[:20]!r} must be one of {', '.join(Language.values)}")
    if spec.currency not in CODES:
        raise EventRefused(f"the currency {spec.currency[:20]!r} must be an ISO 4217 code such as USD")
    if spec.timezone and not is_timezone(spec.timezone):
        raise EventRefused(f"the time zone {spec.timezone[:64]!r} is not an IANA name such as Europe/Berlin")


def _check_range(value: int, low: int, high: int, what: str) -> None:
    if not low <= value <= high:
        raise EventRefused(f"{what} must be between {low} and {high}, not {value}")


def _check_numbers(spec: EventSpec) -> None:
    _check_range(spec.hold_seconds, DEADLINE_SECONDS_MIN, HOLD_SECONDS_MAX, "hold seconds")
    _check_range(spec.payment_seconds, DEADLINE_SECONDS_MIN, PAYMENT_SECONDS_MAX, "payment seconds")
    _check_range(spec.seats_per_reservation_max, 1, SEATS_PER_RESERVATION_MAX, "seats per reservation")
    if spec.per_buyer_max is not None:
        _check_range(spec.per_buyer_max, 1, PER_BUYER_MAX, "seats per buyer")
    policy = spec.price_policy
    _check_range(policy.ticket_fee_minor, 0, FEE_MINOR_MAX, "the fee per ticket")
    _check_range(policy.order_fee_minor, 0, FEE_MINOR_MAX, "the fee per order")
    _check_range(policy.ticket_fee_rate, 0, RATE_MAX, "the fee per ticket in basis points")
    _check_range(policy.tax_rate, 0, RATE_MAX, "the tax in basis points")
    for category, rate in spec.tax_rates.items():
        _check_range(rate, 0, RATE_MAX, f"the tax of “{category[:80]}” in basis points")
    if spec.room is not None:
        _check_range(spec.room.rate_per_second, 1, ROOM_RATE_MAX, "the waiting room's rate")
        _check_range(spec.room.active_max, 1, ROOM_ACTIVE_MAX, "the waiting room's active maximum")
    for category, price in spec.prices.items():
        _check_range(price, 0, PRICE_MINOR_MAX, f"the price of “{category[:80]}”")
    for area in spec.general_admission:
        _check_range(area.capacity, 1, CAPACITY_MAX, f"the capacity of “{area.name[:80]}”")
        _check_range(area.price_minor, 0, PRICE_MINOR_MAX, f"the price of “{area.name[:80]}”")


def _check_offer(spec: EventSpec, plan: Plan | None) -> None:
    """Check that everything offered has one price, and that section ids are unique."""
    used = used_categories(plan) if plan is not None else []
    if not used and not spec.general_admission:
        raise EventRefused("there is nothing to sell: give a seating plan, general admission or both")
    known = {category.name for category in plan.categories} if plan is not None else set()
    unknown = [name for name in spec.prices if name not in known]
    if unknown:
        names = ", ".join(f"“{name[:80]}”" for name in unknown)
        has = f"; it has {', '.join(f'“{name}”' for name in sorted(known))}" if known else ""
        raise EventRefused(f"the plan has no category for the price of {names}{has}")
    unpriced = [name for name in used if name not in spec.prices]
    if unpriced:
        raise EventRefused(f"no price for {', '.join(f'“{name}”' for name in unpriced)}")
    offered = {*used, *(area.name for area in spec.general_admission)}
    unknown = [name for name in spec.tax_rates if name not in offered]
    if unknown:
        raise EventRefused(f"a tax rate is given for “{unknown[0][:80]}”, which is not a category with tickets")
    if len(spec.general_admission) > GENERAL_ADMISSION_SECTIONS_MAX:
        raise EventRefused(f"more than {GENERAL_ADMISSION_SECTIONS_MAX} general admission sections")
    taken = {section.slug: section.name for section in plan.sections} if plan is not None else {}
    for area in spec.general_admission:
        _check_label(area.name, "the general admission name", CATEGORY_CHARACTERS_MAX)
        slug = slugify(area.name)
        if not slug:
            raise EventRefused(f"the general admission name “{area.name}” needs a letter or a digit for its id")
        if slug in taken:
            raise EventRefused(f"general admission “{area.name}” has the same id as section “{taken[slug]}”: {slug}")
        if area.name in known:
            raise EventRefused(f"general admission “{area.name}” has the same name as a category of the plan")
        taken[slug] = area.name
    unknown = [slug for slug in spec.needs_access if slug not in taken]
    if unknown:
        raise EventRefused(f"no section {unknown[0][:80]!r} to require an access code for; known: {', '.join(taken)}")


def _require_access_codes(event: Event, spec: EventSpec) -> None:
    """Require access codes in the described sections. Sections of a plan exist only after publication."""
    open_ones = Section.objects.filter(event=event, slug__in=spec.needs_access, needs_access_since=None)
    open_ones.update(needs_access_since=clock.now())


def _venue(spec: EventSpec) -> Venue:
    venue = Venue.objects.filter(name=spec.venue).first()
    if venue is None:
        return add_venue(spec.venue, spec.city, spec.address, spec.timezone or "UTC", spec.coordinates)
    differences = list_venue_differences(venue, spec)
    if differences:
        raise EventRefused(f"the venue {venue.name} exists with other values: {'; '.join(differences)}")
    return venue


def add_venue(
    name: str, city: str, address: str, timezone: str, coordinates: tuple[float, float] | None = None
) -> Venue:
    """Add a venue. The caller has locked the creation. Raises EventRefused if there is one of this name."""
    if Venue.objects.filter(name=name).exists():
        raise EventRefused(f"there is a venue {name} already")
    slug = free_slug(Venue, slugify(name)[:74] or "venue")
    latitude, longitude = coordinates or (None, None)
    return Venue.objects.create(
        name=name, slug=slug, city=city, address=address, latitude=latitude, longitude=longitude, timezone=timezone
    )


def free_slug(model: type[Event] | type[Venue], stem: str) -> str:
    """Return the stem, with a number if a row has it already. The caller has locked the creation, so few statements
    decide, however many rows have the stem."""
    first = [stem, *(f"{stem}-{number}" for number in range(2, 10))]
    taken = set(model.objects.filter(slug__in=first).values_list("slug", flat=True))
    if free := [slug for slug in first if slug not in taken]:
        return free[0]
    numbered = f"{stem}-{model.objects.filter(slug__startswith=f'{stem}-').count() + 2}"
    is_taken = model.objects.filter(slug=numbered).exists()
    return f"{stem[:66]}-{secrets.token_hex(6)}" if is_taken else numbered


def _organizer(slug: str) -> Organizer:
    if not slug:
        return get_default_organizer()
    found = Organizer.objects.filter(slug=slug).first() if _SLUG.fullmatch(slug) else None
    if found is None:
        raise EventRefused(f"there is no organizer {slug[:80]!r}: add it in the admin first")
    return found


def _write(spec: EventSpec, plan: Plan | None) -> Event:
    organizer = _organizer(spec.organizer)
    venue = _venue(spec)
    now = clock.now()
    starts_at = resolve_venue_time(spec.starts_at, venue.timezone)
    opens_at = resolve_if_given(spec.opens_at, venue.timezone) or now
    closes_at = resolve_if_given(spec.closes_at, venue.timezone)
    if starts_at <= now:
        raise EventRefused(f"the event would start in the past ({starts_at.isoformat()})")
    if starts_at >= LATEST:
        raise EventRefused(f"the event would start after the year {LATEST.year - 1}")
    doors_at = resolve_if_given(spec.doors_at, venue.timezone)
    ends_at = resolve_if_given(spec.ends_at, venue.timezone)
    if doors_at is not None and doors_at > starts_at:
        raise EventRefused("doors would open after the event starts")
    if ends_at is not None and not starts_at < ends_at < LATEST:
        raise EventRefused(f"the event must end after it starts, and before the year {LATEST.year}")
    if opens_at >= starts_at:
        raise EventRefused("the on-sale would open after the event starts")
    if closes_at is not None and closes_at <= opens_at:
        raise EventRefused("the on-sale would end before it opens")
    lobby_opens_at = resolve_if_given(spec.room.lobby_opens_at, venue.timezone) if spec.room is not None else None
    if lobby_opens_at is not None:
        if opens_at <= now:
            raise EventRefused("a lobby needs an on-sale that opens later")
        if lobby_opens_at >= opens_at:
            raise EventRefused("the lobby would open after the on-sale does")
    presale_until = resolve_if_given(spec.presale.until, venue.timezone) if spec.presale is not None else None
    if presale_until is not None and not opens_at < presale_until <= (closes_at or starts_at):
        raise EventRefused("the presale must end after the on-sale opens and before it ends")
    sign_up_closes_at = resolve_if_given(
        spec.presale.sign_up_closes_at if spec.presale is not None else None, venue.timezone
    )
    if (sign_up_closes_at is not None) != (spec.presale is not None and spec.presale.condition == "sign_up"):
        raise EventRefused("a presale by sign-up, and no other, needs a time at which sign-up closes")
    if sign_up_closes_at is not None and (lobby_opens_at is None or not lobby_opens_at < sign_up_closes_at <= opens_at):
        raise EventRefused("sign-up needs a lobby, and must close after it opens and by the opening of the on-sale")
    if closes_at is not None and closes_at > starts_at:
        raise EventRefused("the on-sale would end after the event starts")
    stored = None
    if plan is not None and spec.plan is not None:
        stored = store_plan(organizer, venue, plan, spec.plan, spec.plan_name)
    event = Event.objects.create(
        slug=spec.slug,
        name=spec.name,
        summary=spec.summary,
        description=spec.description,
        performers="\n".join(spec.performers),
        tags=", ".join(spec.tags),
        language=spec.language,
        organizer=organizer,
        venue=venue,
        plan=stored,
        doors_at=doors_at,
        starts_at=starts_at,
        ends_at=ends_at,
        currency=spec.currency,
        poster=spec.poster,
        publishes_report=spec.publishes_report,
    )
    OnSale.objects.create(
        event=event,
        opens_at=opens_at,
        closes_at=closes_at,
        hold_seconds=spec.hold_seconds,
        payment_seconds=spec.payment_seconds,
        seats_per_reservation_max=spec.seats_per_reservation_max,
        per_buyer_max=spec.per_buyer_max,
        room_rate_per_second=None if spec.room is None else spec.room.rate_per_second,
        room_active_max=None if spec.room is None else spec.room.active_max,
        room_lobby_opens_at=lobby_opens_at,
        presale_condition="" if spec.presale is None else spec.presale.condition,
        presale_until=presale_until,
        sign_up_closes_at=sign_up_closes_at,
        **asdict(spec.price_policy),
    )
    _write_offer(event, spec, plan)
    if spec.returns is not None:
        try:
            return_policies().write(event.pk, spec.returns)
        except ValueError as error:
            raise EventRefused(str(error)) from error
    return event


def _write_offer(event: Event, spec: EventSpec, plan: Plan | None) -> None:
    priced = [category for category in (plan.categories if plan is not None else ()) if category.name in spec.prices]
    Category.objects.bulk_create(
        Category(
            event=event,
            key=category.name,
            name=category.name,
            color=category.color,
            price_minor=spec.prices[category.name],
            tax_rate=spec.tax_rates.get(category.name),
            position=position,
        )
        for position, category in enumerate(priced)
    )
    write_general_admission(
        event,
        spec.general_admission,
        tax_rates=spec.tax_rates,
        colors=[category.color for category in priced],
        first_category=len(priced),
        first_section=len(plan.sections) if plan is not None else 0,
    )
    _require_access_codes(event, spec)


def write_general_admission(
    event: Event,
    areas: Iterable[GeneralAdmission],
    *,
    tax_rates: Mapping[str, int] = MappingProxyType({}),
    colors: Iterable[str] = (),
    first_category: int = 0,
    first_section: int = 0,
) -> None:
    """Create the draft's general admission sections, each with its price, in colors that differ from `colors`. Joins
    the caller's transaction."""
    taken = list(colors)
    for index, area in enumerate(areas):
        color = area.color or distinct_color(None, taken)
        taken.append(color)
        category = Category.objects.create(
            event=event,
            key=area.name,
            name=area.name,
            color=color,
            price_minor=area.price_minor,
            tax_rate=tax_rates.get(area.name),
            position=first_category + index,
        )
        Section.objects.create(
            event=event,
            slug=slugify(area.name),
            name=area.name,
            kind=Section.Kind.GENERAL_ADMISSION,
            capacity=area.capacity,
            category=category,
            position=first_section + index,
        )
