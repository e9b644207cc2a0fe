"""The only way tests create rows: through the services of the product, so that every starting state is a possible
one."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import product
from types import MappingProxyType
from typing import Any

from django.contrib.auth import get_user_model

from apps.events import facade as events
from apps.events.creation import EventSpec, GeneralAdmission, create_event
from apps.events.models import Membership, OnSale, Organizer, Role
from apps.kernel import clock
from apps.kernel.checks import auditor
from apps.kernel.http import problems
from apps.queue import facade as queue
from apps.reservations import facade as reservations
from apps.reservations.models import AccessCode, Reservation

SEAT_PRICE_MINOR = 5_000
PLACE_PRICE_MINOR = 2_500


def make_event(
    slug: str = "concert",
    *,
    rows: int = 5,
    seats_per_row: int = 10,
    general_admission: int = 0,
    accessible: frozenset[str] = frozenset(),
    halls: tuple[str, ...] = ("Hall",),
    further: tuple[tuple[str, int, int], ...] = (),
    tiers: Mapping[str, int] = MappingProxyType({}),
    tier_of: Mapping[str, str] = MappingProxyType({}),
    **spec: Any,
) -> events.EventView:
    """Create a published event on sale: a section `hall` (or several) of rows A, B, … with seats `hall-A-1` …, and a
    section `floor` of `general_admission` tickets. Seats named in `accessible` are accessible. `further` general
    admission: name, capacity, price. `tiers`: further prices; `tier_of`: the tier of a section (`hall`) or row
    (`hall-A`), by default Standard."""
    lines = ["section,row,seat,x,y,category,accessible"]
    for (at, hall), row, seat in product(enumerate(halls), range(rows), range(1, seats_per_row + 1)):
        name = chr(ord("A") + row)
        slug_of_hall = hall.lower()
        tier = tier_of.get(f"{slug_of_hall}-{name}") or tier_of.get(slug_of_hall, "Standard")
        is_accessible = "yes" if f"{hall.lower()}-{name}-{seat}" in accessible else "no"
        lines.append(f"{hall},{name},{seat},{seat * 20},{(at * (rows + 1) + row) * 25},{tier},{is_accessible}")
    create_event(
        EventSpec(
            slug=slug,
            name=spec.pop("name", slug.title()),
            venue=spec.pop("venue", "The Venue"),
            starts_at=spec.pop("starts_at", clock.now() + timedelta(days=30)),
            currency=spec.pop("currency", "USD"),
            plan="\n".join(lines).encode() if rows else None,
            prices=_prices(lines[1:], {"Standard": spec.pop("price_minor", SEAT_PRICE_MINOR), **tiers}),
            general_admission=(
                (GeneralAdmission("Floor", general_admission, spec.pop("place_price_minor", PLACE_PRICE_MINOR)),)
                if general_admission
                else ()
            )
            + tuple(GeneralAdmission(*section) for section in further),
            opens_at=spec.pop("opens_at", clock.now() - timedelta(minutes=1)),
            **spec,
        )
    )
    return events.get_event(slug)


def close_sales(slug: str) -> events.EventView:
    """End an event's sales a second ago and return the event. A draft whose sales have ended cannot be published."""
    OnSale.objects.filter(event__slug=slug).update(closes_at=clock.now() - timedelta(seconds=1))
    return events.get_event(slug)


def _prices(lines: Sequence[str], prices: Mapping[str, int]) -> dict[str, int]:
    """Return the prices of the tiers that seats have."""
    used = {line.split(",")[5] for line in lines}
    return {tier: price for tier, price in prices.items() if tier in used}


def make_organizer(slug: str = "opera", name: str = "") -> Organizer:
    """Create an organizer; `make_event(organizer=slug)` gives it an event."""
    return Organizer.objects.create(slug=slug, name=name or slug.title())


def make_member(organizer: Organizer, role: Role = Role.ORGANIZER, username: str = "") -> Any:
    """Give an account, by default a new one, this role at the organizer. Return the account."""
    users = get_user_model()
    name = username or f"{role}@{organizer.slug}.example"
    user = users.objects.filter(username=name).first() or users.objects.create_user(name)
    Membership.objects.create(organizer=organizer, user=user, role=role)
    user.refresh_from_db()
    return user


def make_access_code(event: events.EventView, *opens: str, **values: Any) -> AccessCode:
    """Create an access code of the event, by default FANCLUB, that opens the named sections, or all if none is
    named."""
    code = AccessCode.objects.create(event_id=event.id, **{"code": "FANCLUB", "created_at": clock.now()} | values)
    code.sections.set([section.id for section in events.list_sections(event.id) if section.slug in opens])
    return code


def join(event: events.EventView, *, visitor_id: str = "", account_id: int | None = None) -> queue.EntryView:
    """Join the event's queue, by default as a new visitor."""
    visitor = visitor_id or ("" if account_id is not None else queue.new_visitor_secret())
    return join_directly(event, queue.Caller(account_id=account_id, visitor_id=visitor))


def join_directly(event: events.EventView, caller: queue.Caller) -> queue.EntryView:
    """Join in this thread, without group commit: for tests that watch the statements or are inside a transaction.
    Raises the problem that refuses the join."""
    (outcome,) = queue.join_many([queue.JoinRequest(event, caller)])
    if isinstance(outcome, problems.Problem):
        raise outcome
    return outcome


def make_hold_request(
    event: events.EventView, entry: queue.EntryView | None = None, *, key: str = "", **payload: Any
) -> reservations.HoldRequest:
    """Build a hold request from a payload of the public API, by this entry or a new one."""
    return reservations.resolve(event, entry or join(event), payload, key or uuid.uuid4().hex)


def hold(event: events.EventView, entry: queue.EntryView | None = None, **payload: Any) -> reservations.ReservationView:
    """Create a live reservation with this payload, by this entry or a new one."""
    (outcome,) = reservations.hold([make_hold_request(event, entry, **payload)])
    assert isinstance(outcome, reservations.Held), outcome
    return reservations.get_reservation(outcome.reservation_id)


def backdate_deadline(reservation_id: uuid.UUID, seconds: float = 1) -> None:
    """Move the reservation's deadline into the past; it is not swept yet."""
    past = clock.now() - timedelta(seconds=seconds)
    row = Reservation.objects.get(pk=reservation_id)
    row.expires_at = past
    row.pay_deadline = past if row.pay_deadline is not None else None
    row.save(update_fields=["expires_at", "pay_deadline"])


def audit_breaches() -> list[str]:
    """Return every breach the auditor finds, as `I2: concert: seat …`. Asserts that every invariant could be
    checked."""
    findings = auditor.run()
    assert not any(finding.unchecked for finding in findings), findings
    return [f"{finding.invariant}: {breach}" for finding in findings for breach in finding.breaches]


def assert_audit_clean(*, without_money: bool = False) -> None:
    """Assert that no invariant is broken. `without_money` leaves out those of orders (I4), for tests that confirm
    without an order. The rule that lapsed holds are freed within seconds is left out: no sweep runs in a test unless
    the test runs it."""
    left_out = ("I4", "I10: overdue") if without_money else ("I10: overdue",)
    breaches = [breach for breach in audit_breaches() if not breach.startswith(left_out)]
    assert not breaches, "\n".join(breaches)
