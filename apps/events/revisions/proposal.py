"""A proposed change to a published event as frozen values, and what forbids it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from apps.events.event_views import EventView
from apps.events.models import EventChange
from apps.events.models.catalog import DEADLINE_SECONDS_MIN, HOLD_SECONDS_MAX, PAYMENT_SECONDS_MAX
from apps.events.pricing import FEE_MINOR_MAX, RATE_MAX, PricePolicy
from apps.kernel.form_fields.local_time import LATEST
from apps.kernel.http import problems

Kind = EventChange.Kind

OPENING_MARGIN_SECONDS = 60
"""An opening is not moved, and not moved to, a time nearer than this. Processes know a new opening within two seconds
of its commit; until then they would open the waiting room at the old one."""
EFFECTIVE_AFTER_SECONDS = 5
"""New limits and fees hold for reservations made at least this long after the change: all processes know them then."""
PER_BUYER_MAX = 1_000_000
RETURN_DAYS_MAX = 365

FIELDS: Mapping[str, tuple[str, ...]] = {
    Kind.SCHEDULE: ("starts_at", "doors_at", "ends_at", "closes_at"),
    Kind.ON_SALE: ("opens_at", "closes_at", "presale_until"),
    Kind.LIMITS: ("hold_seconds", "payment_seconds", "seats_per_reservation_max", "per_buyer_max"),
    Kind.FEES: tuple(field.name for field in fields(PricePolicy)),
}
"""The values that each kind of change has. All of a kind are recorded, changed or not."""
_RANGES = {
    "hold_seconds": (DEADLINE_SECONDS_MIN, HOLD_SECONDS_MAX),
    "payment_seconds": (DEADLINE_SECONDS_MIN, PAYMENT_SECONDS_MAX),
    "seats_per_reservation_max": (1, 100),
    "per_buyer_max": (1, PER_BUYER_MAX),
    "ticket_fee_minor": (0, FEE_MINOR_MAX),
    "order_fee_minor": (0, FEE_MINOR_MAX),
    "ticket_fee_rate": (0, RATE_MAX),
    "tax_rate": (0, RATE_MAX),
}


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that staff propose. `event` has the values before it."""

    event: EventView
    kind: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    now: datetime
    message: str = ""
    who: str = ""
    """Empty until the change is made."""
    why: str = ""
    return_days: int = 0
    """After a new start: how long buyers may return their tickets."""

    @property
    def changed(self) -> frozenset[str]:
        return frozenset(name for name in self.after if self.after[name] != self.before[name])

    @property
    def moves_start(self) -> bool:
        return "starts_at" in self.changed

    @property
    def return_until(self) -> datetime | None:
        """When the return window closes that a new start opens; None: none opens."""
        if not self.moves_start:
            return None
        until: datetime = min(self.now + timedelta(days=self.return_days), self.after["starts_at"])
        return until


def values_of(event: EventView, kind: str) -> dict[str, Any]:
    """Return the event's present values of this kind of change."""
    policy = event.policy
    known = {
        "starts_at": event.starts_at,
        "doors_at": event.doors_at,
        "ends_at": event.ends_at,
        "opens_at": policy.opens_at,
        "closes_at": policy.closes_at,
        "presale_until": None if policy.presale is None else policy.presale.until,
        "hold_seconds": policy.hold_seconds,
        "payment_seconds": policy.payment_seconds,
        "seats_per_reservation_max": policy.seats_per_reservation_max,
        "per_buyer_max": policy.per_buyer_max,
        **{field.name: getattr(event.price_policy, field.name) for field in fields(PricePolicy)},
    }
    return {name: known[name] for name in FIELDS[kind]}


def complete(event: EventView, kind: str, wanted: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return all values of the kind after the change. With a new start, the doors, the end, and the end of sales if
    that is still to come, move by the same time unless they are wanted too."""
    after = values_of(event, kind) | dict(wanted)
    if kind == Kind.SCHEDULE:
        moved, closes_at = after["starts_at"] - event.starts_at, event.policy.closes_at
        has_sale_ended = closes_at is not None and closes_at <= now
        for name in ("doors_at", "ends_at") if has_sale_ended else ("doors_at", "ends_at", "closes_at"):
            if name not in wanted and after[name] is not None:
                after[name] += moved
    return after


def require_allowed(proposal: Proposal) -> None:
    """Raise Invalid, with one sentence for each field, if the rules of this app forbid the change."""
    errors: dict[str, str] = {}
    for name, text in _refusals(proposal):
        errors.setdefault(name, text)
    if errors:
        raise problems.Invalid(errors)


def _refusals(proposal: Proposal) -> Iterator[tuple[str, str]]:
    for name in proposal.changed & _RANGES.keys():
        least, most = _RANGES[name]
        value = proposal.after[name]
        if value is None and name == "per_buyer_max":
            continue
        if value is None or not least <= value <= most:
            yield name, f"must be between {least} and {most:,}"
    if proposal.kind == Kind.SCHEDULE:
        yield from _schedule_refusals(proposal)
    if proposal.kind == Kind.ON_SALE:
        yield from _on_sale_refusals(proposal)


def _schedule_refusals(proposal: Proposal) -> Iterator[tuple[str, str]]:
    after, policy = proposal.after, proposal.event.policy
    starts_at, closes_at = after["starts_at"], after["closes_at"]
    if proposal.moves_start and not proposal.now < starts_at < LATEST:
        yield "starts_at", "must be in the future"
    if starts_at <= policy.opens_at:
        yield "starts_at", "must be after sales open"
    if after["doors_at"] is not None and after["doors_at"] > starts_at:
        yield "doors_at", "must not be after the start"
    if after["ends_at"] is not None and after["ends_at"] <= starts_at:
        yield "ends_at", "must be after the start"
    if closes_at is not None and not policy.opens_at < closes_at <= starts_at:
        yield "starts_at", "sales would end before they open, or after the start: change the on-sale first"
    if policy.presale is not None and policy.presale.until > (closes_at or starts_at):
        yield "starts_at", "the presale would end after all sales do: change the on-sale first"
    if proposal.moves_start and not 1 <= proposal.return_days <= RETURN_DAYS_MAX:
        yield "return_days", f"must be between 1 and {RETURN_DAYS_MAX}"


def _on_sale_refusals(proposal: Proposal) -> Iterator[tuple[str, str]]:
    event, before, after, now = proposal.event, proposal.before, proposal.after, proposal.now
    opens_at, closes_at, presale_until = after["opens_at"], after["closes_at"], after["presale_until"]
    if "opens_at" in proposal.changed:
        yield from _opening_refusals(proposal)
    if "closes_at" in proposal.changed and closes_at is not None and closes_at <= now:
        yield "closes_at", "must be in the future"
    if closes_at is not None and not opens_at < closes_at <= event.starts_at:
        yield "closes_at", "must be after sales open, and not after the event starts"
    if before["presale_until"] is None:
        if presale_until is not None:
            yield "presale_until", "the event has no presale"
    elif "presale_until" in proposal.changed and (presale_until is None or before["presale_until"] <= now):
        yield "presale_until", "the presale is over" if before["presale_until"] <= now else "enter a time"
    elif presale_until is not None and not opens_at < presale_until <= (closes_at or event.starts_at):
        yield "presale_until", "must be after sales open, and not after they end"
    elif "presale_until" in proposal.changed and presale_until is not None and presale_until <= now:
        yield "presale_until", "must be in the future"


def _opening_refusals(proposal: Proposal) -> Iterator[tuple[str, str]]:
    before, after, room = proposal.before["opens_at"], proposal.after["opens_at"], proposal.event.policy.room
    soon = proposal.now + timedelta(seconds=OPENING_MARGIN_SECONDS)
    if room is not None and room.lobby_opens_at is not None:
        # docs/fairness.md: the statement that names the opening and the beacon's round was published with the event.
        yield "opens_at", "is part of the published commitment to the draw, so it cannot be moved"
    elif before <= proposal.now:
        yield "opens_at", "sales have opened already"
    elif before <= soon:
        yield "opens_at", "sales open within a minute: it is too late to move that"
    elif after <= soon:
        yield "opens_at", "must be more than a minute away, so that every process knows it in time"
    elif after >= proposal.event.starts_at:
        yield "opens_at", "must be before the event starts"
