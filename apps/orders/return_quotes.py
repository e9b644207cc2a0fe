"""Quotes for returns: the refund for returned tickets, and whether a buyer may return them. Read only.

One function, `quote`, computes the refund for all pages that show it and for the return itself.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Sum

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql
from apps.orders.models import Order, OrderLine

_policies = sql.load("apps.orders", "return_policies_of_events")
_notices = sql.load("apps.orders", "schedule_notices_of_events")

TICKETS_MAX = 200


@dataclass(frozen=True, slots=True)
class QuotedLine:
    line_id: int
    description: str
    back_minor: int
    kept_minor: int
    """The ticket's fee, if the organizer keeps it."""


@dataclass(frozen=True, slots=True)
class ReturnQuote:
    """The refund for a set of tickets."""

    lines: tuple[QuotedLine, ...]
    order_fees: tuple[int, ...]
    """Ids of the order's own fee lines, which are refunded with its last ticket."""
    order_fees_minor: int
    settled_minor: int
    """The part of the tickets' value that earlier goodwill refunds already cover."""
    back_minor: int
    is_whole: bool
    """Whether the order has no ticket left afterwards."""

    @property
    def kept_minor(self) -> int:
        return sum(line.kept_minor for line in self.lines)


@dataclass(frozen=True, slots=True)
class ReturnOffer:
    """The terms under which the buyer may return tickets."""

    is_open: bool
    until: datetime
    keeps_fees: bool

    def contract(self) -> dict[str, Any]:
        return {"open": self.is_open, "until": clock.iso(self.until), "keeps_fees": self.keeps_fees}


def quote(
    order_lines: Sequence[OrderLine], adjusted_minor: int, chosen: Collection[int], fees_back: Collection[int]
) -> ReturnQuote:
    """Return the refund for the chosen uncanceled ticket lines, which includes the fees of lines in `fees_back`.
    `order_lines` are all lines of the order. The order's own fees are refunded with its last ticket, if the fees of all
    chosen tickets are refunded.

    `adjusted_minor` is the sum of the order's adjustments. Earlier goodwill refunds reduce the refund, so that it never
    exceeds what the order keeps."""
    standing = [line for line in order_lines if line.canceled_at is None]
    ticket_lines = {line.pk for line in standing if line.kind == OrderLine.Kind.PLACE}
    assert ticket_lines.issuperset(chosen)
    quoted = []
    for line in standing:
        if line.pk in chosen:
            kept_minor = 0 if line.pk in fees_back else fee_minor(line)
            quoted.append(QuotedLine(line.pk, line.description, line.total_minor - kept_minor, kept_minor))
    is_whole = bool(chosen) and ticket_lines == set(chosen)
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
    """Return the fee within a ticket line's total, including the tax on the fee."""
    policy = events.PricePolicy(tax_rate=line.tax_rate, tax_included=line.tax_included)
    return min(policy.taxed(line.fee_minor)[1], line.total_minor)


def quote_for(order: Order, chosen: Collection[int], fees_back: Collection[int]) -> ReturnQuote:
    """Return the quote for this order in its present state."""
    return quote(list(order.lines.all()), adjusted_minor(order), chosen, fees_back)


def adjusted_minor(order: Order) -> int:
    return int(order.adjustments.aggregate(sum=Sum("amount_minor"))["sum"] or 0)


def owed_minor(order: Order) -> int:
    """Return what the order keeps after all its requested refunds."""
    standing = order.lines.filter(canceled_at=None).aggregate(sum=Sum("total_minor"))["sum"] or 0
    return int(standing) + adjusted_minor(order)


@dataclass(frozen=True, slots=True)
class ReturnTerms:
    """An event's terms for returns by buyers: its policy, its changes of date, and the windows that these opened."""

    policy: ReturnOffer | None
    starts_at: datetime
    windows: tuple[tuple[datetime, datetime], ...] = ()
    """Open windows, each as two times: tickets for seats held until the first may be returned until the second."""
    earlier_starts: tuple[tuple[datetime, datetime], ...] = ()
    """Changes of the start, oldest first, each as two times: seats held until the first were for the second."""

    @property
    def is_moved(self) -> bool:
        """Whether the terms depend on when seats were held."""
        return bool(self.windows or self.earlier_starts)

    def of_order(self, held_at: datetime) -> ReturnOffer | None:
        """Return the terms for an order whose seats were held at this time, or None if it cannot be returned. In a
        window the fees are refunded, too: the buyer chose another date."""
        until = max((until for held_until, until in self.windows if held_at <= held_until), default=None)
        return self.policy if until is None else ReturnOffer(True, until, keeps_fees=False)

    def earlier_start(self, held_at: datetime) -> datetime | None:
        """Return the start that the event had when these seats were held; None if it is the same now."""
        before = next((start for held_until, start in self.earlier_starts if held_at <= held_until), None)
        return None if before == self.starts_at else before


def get_return_terms(event: events.EventView, now: datetime) -> ReturnTerms:
    """Return the event's terms for returns by buyers."""
    with connection.cursor() as cursor:
        policies, notices = sql.execute_batch(cursor, terms_calls([event.id]))
    return read_terms([event], now, policies.rows, notices.rows)[event.id]


def terms_calls(event_ids: Sequence[int]) -> list[sql.Call]:
    """Return the two statements whose rows `read_terms` reads."""
    return [_policies.call(event_ids=list(event_ids)), _notices.call(event_ids=list(event_ids))]


def read_terms(
    given: Iterable[events.EventView],
    now: datetime,
    policies: Iterable[tuple[Any, ...]],
    notices: Sequence[tuple[Any, ...]],
) -> dict[int, ReturnTerms]:
    """Return the terms of these events, by id."""
    policy_of = {event_id: values for event_id, *values in policies}
    found = {}
    for event in given:
        is_published = event.status == "published"
        offer = None
        if event.id in policy_of:
            until_hours, keeps_fees = policy_of[event.id]
            until = event.starts_at - timedelta(hours=until_hours)
            offer = ReturnOffer(now < until and is_published, until, keeps_fees)
        own = [notice for event_id, *notice in notices if event_id == event.id]
        # A later change may have moved the start to before the end of an earlier window.
        windows = [
            (held_until, min(return_until, event.starts_at))
            for held_until, return_until, _ in own
            if is_published and return_until is not None
        ]
        found[event.id] = ReturnTerms(
            offer,
            event.starts_at,
            tuple((held_until, until) for held_until, until in windows if now < until),
            tuple((held_until, datetime.fromisoformat(starts_at)) for held_until, _, starts_at in own),
        )
    return found
