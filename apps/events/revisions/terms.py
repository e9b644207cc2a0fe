"""The limits and fees under which a reservation was made: later changes hold for new reservations only.

The present terms are in the on-sale's row. Earlier ones are in the record of changes, and are read only for events that
had a change, and only for reservations from before it.
"""

from dataclasses import dataclass, fields
from datetime import datetime

from apps.events.event_views import EventView
from apps.events.models import EventChange
from apps.events.pricing import PricePolicy

_KINDS = (EventChange.Kind.LIMITS, EventChange.Kind.FEES)


@dataclass(frozen=True, slots=True)
class BuyerTerms:
    price_policy: PricePolicy
    per_buyer_max: int | None


def terms_at(event: EventView, reserved_at: datetime) -> BuyerTerms:
    """Return the terms of a reservation that was made at this time."""
    present = BuyerTerms(event.price_policy, event.policy.per_buyer_max)
    if event.terms_since is None or reserved_at >= event.terms_since:
        return present
    values = {field.name: getattr(present.price_policy, field.name) for field in fields(PricePolicy)}
    values["per_buyer_max"] = present.per_buyer_max
    later = EventChange.objects.filter(event_id=event.id, kind__in=_KINDS, effective_at__gt=reserved_at)
    for before in later.order_by("-id").values_list("before", flat=True):
        values |= {name: value for name, value in before.items() if name in values}
    per_buyer_max = values.pop("per_buyer_max")
    return BuyerTerms(PricePolicy(**values), per_buyer_max)


def cap_since(event: EventView) -> datetime | None:
    """Return since when the event's present limit per buyer holds for new reservations; None: since the publication."""
    if event.terms_since is None:
        return None
    changes = EventChange.objects.filter(event_id=event.id, kind=EventChange.Kind.LIMITS).order_by("-id")
    for effective_at, before, after in changes.values_list("effective_at", "before", "after"):
        if before["per_buyer_max"] != after["per_buyer_max"]:
            return effective_at
    return None
