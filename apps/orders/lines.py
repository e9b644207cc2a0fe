"""The lines of an order: written once with it, from then on standing or canceled."""

from collections.abc import Collection, Iterable
from dataclasses import asdict
from datetime import datetime

from apps.events import facade as events
from apps.orders.models import Order, OrderLine
from ticketing.kernel.transactions import require


def freeze(order: Order, bill: events.Bill) -> None:
    """The new order is made of this bill's lines. Joins the caller's transaction."""
    require()
    columns = [{name: value for name, value in asdict(line).items() if name != "is_canceled"} for line in bill.lines]
    OrderLine.objects.bulk_create(OrderLine(order=order, **values) for values in columns)


def bill_of(lines: Iterable[OrderLine]) -> events.Bill:
    """What the order with these lines was placed for, as it was told then; what was given back since is marked."""
    return events.Bill(
        tuple(
            events.BillLine(
                kind=line.kind,
                description=line.description,
                category=line.category,
                reservation_line_id=line.reservation_line_id,
                place=line.place,
                price_minor=line.price_minor,
                discount_minor=line.discount_minor,
                fee_minor=line.fee_minor,
                tax_included=line.tax_included,
                tax_rate=line.tax_rate,
                tax_minor=line.tax_minor,
                total_minor=line.total_minor,
                is_canceled=line.canceled_at is not None,
            )
            for line in lines
        )
    )


def cancel_all(order: Order, now: datetime) -> None:
    """Nothing of the order stands any more. Joins the caller's transaction, which holds the order's lock."""
    require()
    OrderLine.objects.filter(order=order, canceled_at=None).update(canceled_at=now)


def cancel_some(order: Order, line_ids: Collection[int], now: datetime) -> None:
    """These lines of the order stand no more; others do, or stood no more before. Joins the caller's transaction, which
    holds the order's lock."""
    require()
    canceled = OrderLine.objects.filter(order=order, pk__in=line_ids, canceled_at=None).update(canceled_at=now)
    assert canceled == len(line_ids), f"{canceled} of {len(line_ids)} lines of order {order.number} stood"
