"""Differences between the description of an event and the stored event of the same slug."""

import hashlib
from collections.abc import Iterable
from datetime import datetime

from apps.events.creation.event_spec import EventSpec, GeneralAdmission, resolve_if_given
from apps.events.event_views import Presale, WaitingRoomSettings
from apps.events.models import Category, Event, Section, Venue
from apps.events.registries import ReturnTerms, return_policies
from apps.kernel import clock


def list_differences(event: Event, spec: EventSpec) -> list[str]:
    """Return one phrase for each value in which the description differs from the stored event."""
    venue = event.venue
    digest = None if spec.plan is None else hashlib.sha256(spec.plan).hexdigest()
    stored, given = _stored_values(event), _values(spec, venue.timezone, digest)
    if event.status == Event.Status.DRAFT:
        # The sections of a plan do not exist before publication, so they cannot have the setting yet.
        existing = set(Section.objects.filter(event=event).values_list("slug", flat=True))
        given["needs-access"] = _join_slugs(existing.intersection(spec.needs_access))
    if given["on-sale"] == "now":
        # "now" was the moment of creation, so any past opening matches.
        opens_at = event.on_sale.opens_at
        given["on-sale"] = stored["on-sale"] if opens_at <= clock.now() else "now"
    labels = [*given, *(what for what in stored if what not in given)]
    found = [
        f"{what} is {stored.get(what, 'none')}, not {given.get(what, 'none')}"
        for what in labels
        if stored.get(what, "none") != given.get(what, "none")
    ]
    if venue.name == spec.venue:
        found += list_venue_differences(venue, spec)
    if spec.returns is not None and (kept := return_policies().read(event.pk)) != spec.returns:
        found.append(f"returns is {_format_returns(kept)}, not {_format_returns(spec.returns)}")
    if spec.publishes_report and not event.publishes_report:
        found.append("report is off, not on (manage.py sale_report turns it on)")
    if spec.organizer and spec.organizer != event.organizer.slug:
        found.append(f"organizer is {event.organizer.slug}, not {spec.organizer}")
    if spec.draft and event.status != Event.Status.DRAFT:
        found.append(f"status is {event.status}, not draft")
    if event.status == Event.Status.CANCELED and not spec.draft:
        found.append("status is canceled, not published")
    return found


def _join_slugs(slugs: Iterable[str]) -> str:
    return ", ".join(sorted(slugs)) or "none"


def _format_moment(moment: datetime | None, timezone: str) -> str:
    resolved = resolve_if_given(moment, timezone)
    return "none" if resolved is None else resolved.isoformat().replace("+00:00", "Z")


def _format_returns(terms: ReturnTerms | None) -> str:
    if terms is None:
        return "none"
    return f"until={terms.until_hours},fees={'kept' if terms.keeps_fees else 'refunded'}"


def _format_presale(presale: Presale | None, timezone: str) -> str:
    if presale is None:
        return "none"
    closes_at = presale.sign_up_closes_at
    closing = "" if closes_at is None else f",closes={_format_moment(closes_at, timezone)}"
    return f"{presale.condition}={_format_moment(presale.until, timezone)}{closing}"


def _values(spec: EventSpec, timezone: str, plan_digest: str | None) -> dict[str, str]:
    """Return the values of the description as texts, by the names that an error shows."""
    room, policy = "off", spec.price_policy
    if spec.room is not None:
        lobby = _format_moment(spec.room.lobby_opens_at, timezone)
        room = f"rate={spec.room.rate_per_second},active={spec.room.active_max}"
        room += "" if lobby == "none" else f",lobby={lobby}"
    return {
        "name": f"“{spec.name}”",
        "description": f"“{spec.description}”",
        "summary": f"“{spec.summary}”",
        "performers": "; ".join(spec.performers) or "none",
        "tags": ", ".join(spec.tags) or "none",
        "language": spec.language,
        "venue": f"“{spec.venue}”",
        "doors": _format_moment(spec.doors_at, timezone),
        "starts": _format_moment(spec.starts_at, timezone),
        "ends": _format_moment(spec.ends_at, timezone),
        "currency": spec.currency,
        "plan": "none" if plan_digest is None else f"{plan_digest[:12]}…",
        "on-sale": "now" if spec.opens_at is None else _format_moment(spec.opens_at, timezone),
        "on-sale-ends": _format_moment(spec.closes_at, timezone),
        "hold-seconds": str(spec.hold_seconds),
        "payment-seconds": str(spec.payment_seconds),
        "seats-per-reservation": str(spec.seats_per_reservation_max),
        "per-buyer": "none" if spec.per_buyer_max is None else str(spec.per_buyer_max),
        "waiting-room": room,
        "presale": _format_presale(spec.presale, timezone),
        "needs-access": _join_slugs(set(spec.needs_access)),
        "ticket-fee": str(policy.ticket_fee_minor),
        "ticket-fee-rate": str(policy.ticket_fee_rate),
        "order-fee": str(policy.order_fee_minor),
        "fees-on-free-tickets": "no" if policy.waives_fees_when_free else "yes",
        "tax-rate": str(policy.tax_rate),
        "tax": "included" if policy.tax_included else "added",
        **{f"price of “{name}”": str(price) for name, price in spec.prices.items()},
        **{f"tax of “{name}”": str(rate) for name, rate in spec.tax_rates.items()},
        **{
            f"general admission “{area.name}”": f"{area.capacity} at {area.price_minor}"
            for area in spec.general_admission
        },
    }


def _stored_values(event: Event) -> dict[str, str]:
    on_sale = event.on_sale
    general = Section.objects.filter(event=event, kind=Section.Kind.GENERAL_ADMISSION).select_related("category")
    areas = [(section, section.category) for section in general if section.category is not None]
    area_categories = {category.pk for _, category in areas}
    categories = list(Category.objects.filter(event=event))
    rate, active_max = on_sale.room_rate_per_second, on_sale.room_active_max
    stored = EventSpec(
        slug=event.slug,
        name=event.name,
        venue=event.venue.name,
        doors_at=event.doors_at,
        starts_at=event.starts_at,
        ends_at=event.ends_at,
        currency=event.currency,
        prices={one.key: one.price_minor for one in categories if one.pk not in area_categories},
        general_admission=tuple(
            GeneralAdmission(section.name, section.capacity, category.price_minor) for section, category in areas
        ),
        opens_at=on_sale.opens_at,
        closes_at=on_sale.closes_at,
        hold_seconds=on_sale.hold_seconds,
        payment_seconds=on_sale.payment_seconds,
        seats_per_reservation_max=on_sale.seats_per_reservation_max,
        per_buyer_max=on_sale.per_buyer_max,
        room=None
        if rate is None or active_max is None
        else WaitingRoomSettings(rate, active_max, on_sale.room_lobby_opens_at),
        presale=None
        if on_sale.presale_until is None
        else Presale(on_sale.presale_condition, on_sale.presale_until, on_sale.sign_up_closes_at),
        price_policy=on_sale.price_policy,
        tax_rates={one.key: one.tax_rate for one in categories if one.tax_rate is not None},
        needs_access=tuple(
            Section.objects.filter(event=event, needs_access_since__isnull=False).values_list("slug", flat=True)
        ),
        description=event.description,
        summary=event.summary,
        performers=event.performer_names,
        tags=event.tag_names,
        language=event.language,
    )
    return _values(stored, event.venue.timezone, None if event.plan is None else event.plan.digest)


def list_venue_differences(venue: Venue, spec: EventSpec) -> list[str]:
    """Return one phrase for each value of the venue that differs from the description."""
    pairs = (
        ("city", venue.city, spec.city),
        ("address", venue.address, spec.address),
        ("time zone", venue.timezone, spec.timezone),
    )
    return [f"{what} is “{stored}”, not “{given}”" for what, stored, given in pairs if given and given != stored]
