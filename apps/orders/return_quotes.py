"""What returning tickets brings back, and whether a buyer may return them. Reads only; nothing is decided here.

One function, `quote`, computes it for every page that shows it and for the return itself.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Sum

from apps.events import facade as events
from apps.kernel import clock
from apps.orders.models import Order, OrderLine, ReturnPolicy

TICKETS_MAX = 200


@dataclass(frozen=True, slots=True)
class QuotedLine:
    line_id: int
    description: str
    back_minor: int
    kept_minor: int
    """Its fee, where that stays with the organizer."""


@dataclass(frozen=True, slots=True)
class ReturnQuote:
    """What giving these places back comes to."""

    lines: tuple[QuotedLine, ...]
    order_fees: tuple[int, ...]
    """Lines of fees of the order as a whole that go back with its last place."""
    order_fees_minor: int
    settled_minor: int
    """What was given back beside the tickets before, and so does not go back again."""
    back_minor: int
    is_whole: bool
    """No place is left after it."""

    @property
    def kept_minor(self) -> int:
        return sum(line.kept_minor for line in self.lines)


@dataclass(frozen=True, slots=True)
class ReturnOffer:
    """Whether the buyer may return tickets, and until when."""

    is_open: bool
    until: datetime
    keeps_fees: bool

    def contract(self) -> dict[str, Any]:
        return {"open": self.is_open, "until": clock.iso(self.until), "keeps_fees": self.keeps_fees}


def quote(
    order_lines: Sequence[OrderLine], adjusted_minor: int, chosen: Collection[int], fees_back: Collection[int]
) -> ReturnQuote:
    """What comes back for the chosen standing places of these lines, all of an order's; of those in `fees_back` the fee
    too. Fees of the whole order go back with its last place, if that one's fee does.

    `adjusted_minor`: the sum of the order's adjustments. What goes back never exceeds what the order keeps: where money
    was given back beside the tickets, that much less goes back at last.
    """
    standing = [line for line in order_lines if line.canceled_at is None]
    places = {line.pk for line in standing if line.kind == OrderLine.Kind.PLACE}
    assert places.issuperset(chosen)
    quoted = []
    for line in standing:
        if line.pk in chosen:
            kept_minor = 0 if line.pk in fees_back else fee_minor(line)
            quoted.append(QuotedLine(line.pk, line.description, line.total_minor - kept_minor, kept_minor))
    is_whole = bool(chosen) and places == set(chosen)
    fees = [line for line in standing if line.kind == OrderLine.Kind.FEE]
    if not is_whole or not set(chosen) <= set(fees_back):
        fees = []
    value_minor = sum(line.back_minor for line in quoted) + sum(line.total_minor for line in fees)
    owed_minor = sum(line.total_minor for line in standing) + adjusted_minor
    back_minor = min(value_minor, owed_minor)
    return ReturnQuote(
        lines=tuple(quoted),
        order_fees=tuple(line.pk for line in fees),
        order_fees_minor=sum(line.total_minor for line in fees),
        settled_minor=value_minor - back_minor,
        back_minor=back_minor,
        is_whole=is_whole,
    )


def fee_minor(line: OrderLine) -> int:
    """What of a place's total is its fee, the tax on that fee in it."""
    policy = events.PricePolicy(tax_rate=line.tax_rate, tax_included=line.tax_included)
    return min(policy.taxed(line.fee_minor)[1], line.total_minor)


def quote_for(order: Order, chosen: Collection[int], fees_back: Collection[int]) -> ReturnQuote:
    """The same for this order as it is now."""
    return quote(list(order.lines.all()), adjusted_minor(order), chosen, fees_back)


def adjusted_minor(order: Order) -> int:
    return int(order.adjustments.aggregate(sum=Sum("amount_minor"))["sum"] or 0)


def owed_minor(order: Order) -> int:
    """What the order keeps, once what was asked back is back."""
    standing = order.lines.filter(canceled_at=None).aggregate(sum=Sum("total_minor"))["sum"] or 0
    return int(standing) + adjusted_minor(order)


def get_return_terms(event: events.EventView, now: datetime) -> ReturnOffer | None:
    """The event's policy for buyers who want to return tickets, or None where they never may."""
    policy = ReturnPolicy.objects.filter(event_id=event.id).first()
    if policy is None:
        return None
    until = event.starts_at - timedelta(hours=policy.until_hours)
    return ReturnOffer(now < until and event.status == "published", until, policy.keeps_fees)
