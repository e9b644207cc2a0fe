"""Sales of an event by minute. A minute is counted once, when no transaction can add to it any more; later reads add
only the minutes after it. So a dashboard never counts the whole history of a sale."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import connection

from apps.kernel.db import sql, transactions
from apps.orders.models import Order, SalesMinute, SalesTally

STEP_ORDERS_MAX = 20_000
"""Orders that one step counts (more if a single minute has more), so that each read is short."""
STEPS_MAX = 20
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
END = datetime(9999, 1, 1, tzinfo=UTC)
_LOCK_MS = 2_000

_closed_until = sql.load("apps.orders", "sales_closed_until")
_step_end = sql.load("apps.orders", "sales_step_end")
_sales_of_minutes = sql.load("apps.orders", "sales_of_minutes")
_sales_bins = sql.load("apps.orders", "sales_bins")


@dataclass(frozen=True, slots=True)
class Minute:
    at: datetime
    orders: int
    tickets: int
    gross_minor: int


@dataclass(frozen=True, slots=True)
class Sales:
    """The sums of all sales of an event."""

    orders: int
    tickets: int
    gross_minor: int


def count_sales(event_id: int) -> Sales:
    """Close the minutes that can be closed, and return the sales of all time."""
    close_minutes(event_id)
    return read_sales(event_id)


def read_sales(event_id: int) -> Sales:
    """Return the sales of all time without closing minutes, for callers in a transaction."""
    tally = SalesTally.objects.filter(pk=event_id).first() or SalesTally(event_id=event_id, counted_until=BEGINNING)
    # A concurrent request may close further minutes now; the sums and this read use the same boundary.
    fresh = _read_minutes(event_id, tally.counted_until, END)
    return Sales(
        tally.order_count + sum(one.orders for one in fresh),
        tally.ticket_count + sum(one.tickets for one in fresh),
        tally.gross_minor + sum(one.gross_minor for one in fresh),
    )


def close_minutes(event_id: int) -> None:
    """Count the orders of all minutes that no transaction can add to any more, in steps of one transaction each."""
    SalesTally.objects.bulk_create([SalesTally(event_id=event_id, counted_until=BEGINNING)], ignore_conflicts=True)
    with connection.cursor() as cursor:
        ((closed_until,),) = _closed_until.rows(cursor)
    for _ in range(STEPS_MAX):
        if _close_step(event_id, closed_until):
            return


def _close_step(event_id: int, closed_until: datetime) -> bool:
    """Count the next orders; return whether nothing is left to count, or another request counts."""
    with transactions.write(lock_ms=_LOCK_MS):
        # Of two requests one counts. The other does not wait: it reads the orders that are not counted itself.
        rows = SalesTally.objects.select_for_update(skip_locked=True, no_key=True).filter(pk=event_id)
        tally = rows.first()
        if tally is None or tally.counted_until >= closed_until:
            return True
        since = tally.counted_until
        with connection.cursor() as cursor:
            step = _step_end.rows(cursor, event_id=event_id, since=since, until=closed_until, most=STEP_ORDERS_MAX)
        until = step[0][0] if step else closed_until
        minutes = _read_minutes(event_id, since, until)
        SalesMinute.objects.bulk_create(
            SalesMinute(
                event_id=event_id, minute=one.at, order_count=one.orders, ticket_count=one.tickets,
                gross_minor=one.gross_minor,
            )
            for one in minutes
        )  # fmt: skip
        tally.counted_until = until
        tally.order_count += sum(one.orders for one in minutes)
        tally.ticket_count += sum(one.tickets for one in minutes)
        tally.gross_minor += sum(one.gross_minor for one in minutes)
        tally.save(update_fields=["counted_until", "order_count", "ticket_count", "gross_minor"])
        return not step


def _read_minutes(event_id: int, since: datetime, until: datetime) -> list[Minute]:
    with connection.cursor() as cursor:
        rows = _sales_of_minutes.rows(cursor, event_id=event_id, since=since, until=until)
    return [Minute(*row) for row in rows]


def read_bins(event_id: int, since: datetime, bin_seconds: int) -> list[Minute]:
    """Return the sales since a full minute in bins, without empty ones."""
    tally = SalesTally.objects.filter(pk=event_id).first()
    # A concurrent request may close further minutes now; both reads use the same boundary, so none is counted twice.
    boundary = BEGINNING if tally is None else tally.counted_until
    params = {"event_id": event_id, "since": since, "until": boundary, "bin_seconds": bin_seconds}
    with connection.cursor() as cursor:
        bins = {row[0]: Minute(*row) for row in _sales_bins.rows(cursor, **params)}
    length = timedelta(seconds=bin_seconds)
    for one in _read_minutes(event_id, max(since, boundary), END):
        at = since + (one.at - since) // length * length
        former = bins.get(at, Minute(at, 0, 0, 0))
        bins[at] = Minute(
            at, former.orders + one.orders, former.tickets + one.tickets, former.gross_minor + one.gross_minor
        )
    return [bins[at] for at in sorted(bins)]


def first_sale_at(event_id: int) -> datetime | None:
    """Return the time of the first sale: one row of an index."""
    sold = Order.objects.filter(event_id=event_id, confirmed_at__isnull=False).order_by("confirmed_at")
    return sold.values_list("confirmed_at", flat=True).first()
