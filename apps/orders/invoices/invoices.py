"""Invoices and credit notes: write the documents that an order's balance requires.

An outbox message triggers `issue` after an order's confirmation and after each refund, so that no confirmation waits
for the counter's hot row. `issue` may run repeatedly, in any order: it writes missing documents, and none twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from itertools import product
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.utils import timezone

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import model_rows, sql, transactions
from apps.kernel.outbox import facade as outbox
from apps.orders import topics
from apps.orders.locks import draw_invoice_numbers, lock_order
from apps.orders.models import Invoice, InvoiceKind, Order, OrderAdjustment, OrderLine

_papers = sql.load("apps.orders", "papers_of_orders", prepared=True)
_lines = sql.load("apps.orders", "lines_of_orders", prepared=True)
_adjusted = sql.load("apps.orders", "adjusted_of_orders", prepared=True)
_PREFIX = {InvoiceKind.INVOICE: "", InvoiceKind.CREDIT_NOTE: "C"}


@dataclass(frozen=True, slots=True)
class Row:
    """A line of an invoice or credit note."""

    description: str
    category: str
    tax_rate: int
    tax_minor: int
    total_minor: int
    order_line: int | None = None


_ROW_FIELDS = tuple(field.name for field in fields(Row))


def invoice_message(order: Order, topic: str = topics.INVOICE) -> outbox.NewMessage:
    """Return the outbox message that triggers `issue` for the order. It has a key of its own, so that tickets do not
    wait for an invoice."""
    return outbox.NewMessage(topic, f"invoice:{order.pk}", {"order": str(order.pk)})


def handle_invoice_message(message: outbox.Message) -> None:
    """Outbox handler; safe to run twice."""
    issue(UUID(message.body["order"]))


def issue(order_id: UUID) -> list[Invoice]:
    """Write the paid order's invoice if it is missing, and a credit note for refunds that have none yet. Return the new
    documents. A free order gets none.

    The order is locked first and the counter last, so no transaction that holds a counter waits for an order.
    """
    with transactions.write():
        order = lock_order(order_id)
        if order.confirmed_at is None or not order.total_minor:
            return []
        papers, lines, adjusted, now = read_billing([order])
        year = timezone.localtime(now).year
        written = []
        invoice = next((paper for paper in papers if paper.kind == InvoiceKind.INVOICE), None)
        if invoice is None:
            invoice = _create_invoice(order, year, InvoiceKind.INVOICE, rows_of(lines), None)
            written.append(invoice)
        credited = [paper for paper in papers if paper.refers_to_id == invoice.pk]
        # The order keeps its uncanceled lines, plus fees kept from returned ones, less goodwill refunds.
        owed_minor = sum(line.total_minor for line in lines if line.canceled_at is None) + adjusted.get(order.pk, 0)
        back_minor = invoice.total_minor - sum(note.total_minor for note in credited) - owed_minor
        if back_minor > 0:
            credit = _credited_rows(order, invoice, credited, back_minor)
            written.append(_create_invoice(order, year, InvoiceKind.CREDIT_NOTE, credit, invoice))
    return written


def read_billing(orders: Sequence[Order]) -> tuple[list[Invoice], list[OrderLine], dict[UUID, int], datetime]:
    """Return the locked orders' invoices and credit notes, their lines, the sums of their adjustments by order, and the
    time."""
    params = {"order_ids": [order.pk for order in orders]}
    with connection.cursor() as cursor:
        papers, lines, adjusted, moment = sql.execute_batch(
            cursor,
            [_papers.call(**params), _lines.call(**params), _adjusted.call(**params), clock.now_call()],
        )
    return (
        model_rows.build_instances(Invoice, papers.rows),
        model_rows.build_instances(OrderLine, lines.rows),
        dict(adjusted.rows),
        moment.rows[0][0],
    )


def rows_of(lines: Iterable[OrderLine]) -> list[Row]:
    """Return the rows of a document that lists these lines."""
    return [
        Row(line.description, line.category, line.tax_rate, line.tax_minor, line.total_minor, line.pk) for line in lines
    ]


def _credited_rows(order: Order, invoice: Invoice, credited: Sequence[Invoice], back_minor: int) -> list[Row]:
    """Return the rows of a credit note over this amount: the canceled lines that no earlier note lists, and for each
    tax rate a row that corrects their sum, for example for a kept fee. When everything is refunded, all notes together
    equal the invoice, in total and in tax at each rate."""
    known = {row["order_line"] for note in credited for row in note.paper["lines"]}
    canceled = OrderLine.objects.filter(order=order, canceled_at__isnull=False).exclude(pk__in=known - {None})
    rows = rows_of(canceled)
    left = {rate: _sums_of(invoice, rate) for rate in sorted({row["tax_rate"] for row in invoice.paper["lines"]})}
    for note, rate in product(credited, left):
        total_minor, tax_minor = _sums_of(note, rate)
        left[rate] = (left[rate][0] - total_minor, left[rate][1] - tax_minor)
    for rate, rate_back_minor in _split_by_rate(order, left, back_minor).items():
        rows += _balancing_rows(rate, [row for row in rows if row.tax_rate == rate], *left[rate], rate_back_minor)
    return rows


def _sums_of(paper: Invoice, rate: int) -> tuple[int, int]:
    """Return a document's total at this tax rate and the tax within it."""
    lines = [row for row in paper.paper["lines"] if row["tax_rate"] == rate]
    return sum(row["total_minor"] for row in lines), sum(row["tax_minor"] for row in lines)


def _split_by_rate(order: Order, left: Mapping[int, tuple[int, int]], back_minor: int) -> dict[int, int]:
    """Split the amount by tax rate. Each rate's part is the amount at that rate that is neither owed nor credited yet.
    Goodwill refunds have no rate; they are allocated in proportion to what the order owes at each rate."""
    owed = dict.fromkeys(left, 0)
    goodwill_minor = 0
    for line in OrderLine.objects.filter(order=order, canceled_at=None):
        owed[line.tax_rate] += line.total_minor
    for adjustment in OrderAdjustment.objects.filter(order=order).select_related("line"):
        if adjustment.line is None:
            goodwill_minor -= adjustment.amount_minor
        else:
            owed[adjustment.line.tax_rate] += adjustment.amount_minor
    goodwill = events.allocate_amount(max(goodwill_minor, 0), list(owed.values()))
    parts = {}
    for (rate, (left_minor, _)), less_minor in zip(left.items(), goodwill, strict=True):
        # Because of rounding, earlier notes may have credited one unit more at this rate than is due now.
        parts[rate] = min(max(left_minor - owed[rate] + less_minor, 0), left_minor)
    over_minor = sum(parts.values()) - back_minor
    for rate in sorted(parts, key=lambda rate: -parts[rate]):
        change = min(over_minor, parts[rate]) if over_minor > 0 else max(over_minor, parts[rate] - left[rate][0])
        parts[rate] -= change
        over_minor -= change
    return parts


def _balancing_rows(rate: int, rows: Sequence[Row], left_minor: int, left_tax_minor: int, back_minor: int) -> list[Row]:
    """Return rows to add to `rows`, which all have this tax rate, so that their sum is `back_minor`. The notes together
    never exceed the invoice's tax or net amount; the last note leaves nothing of either."""
    more = []
    rest_minor = back_minor - sum(row.total_minor for row in rows)
    if rest_minor:
        tax_minor, _ = events.PricePolicy(tax_rate=rate).taxed(abs(rest_minor))
        sign = 1 if rest_minor > 0 else -1
        description = "Other refund" if rest_minor > 0 else "Not refunded"
        more.append(Row(description, "", rate, sign * tax_minor, rest_minor))
    left_net_minor = left_minor - left_tax_minor
    sum_tax_minor = sum(row.tax_minor for row in (*rows, *more))
    tax_minor = min(max(sum_tax_minor, back_minor - left_net_minor, 0), left_tax_minor, back_minor)
    if tax_minor != sum_tax_minor:
        more.append(Row("Tax rounding", "", rate, tax_minor - sum_tax_minor, 0))
    return more


def _create_invoice(
    order: Order, year: int, kind: InvoiceKind, rows: Sequence[Row], refers_to: Invoice | None
) -> Invoice:
    """Create the document with the next number. The counter's row stays locked until the commit."""
    event = events.get_event_by_id(order.event_id)
    # The time is read under the counter's lock, so that numbers and times rise together.
    (number,), now = draw_invoice_numbers(kind, settings.INVOICE_SERIES, year, 1)
    invoice = build_invoice(order, event, year, kind, rows, refers_to, number=number, now=now)
    invoice.save(force_insert=True)
    return invoice


def build_invoice(
    order: Order,
    event: events.EventView,
    year: int,
    kind: InvoiceKind,
    rows: Sequence[Row],
    refers_to: Invoice | None,
    *,
    number: int,
    now: datetime,
) -> Invoice:
    """Return the document with this number, unsaved."""
    series = settings.INVOICE_SERIES
    return Invoice(
        kind=kind,
        series=series,
        year=year,
        sequence=number,
        number=f"{series}{_PREFIX[kind]}-{year}-{number:06d}",
        order=order,
        refers_to=refers_to,
        issued_at=now,
        currency=order.currency,
        total_minor=sum(row.total_minor for row in rows),
        tax_minor=sum(row.tax_minor for row in rows),
        paper=_invoice_document(order, event, rows, refers_to, now),
    )


def _invoice_document(
    order: Order, event: events.EventView, rows: Sequence[Row], refers_to: Invoice | None, now: datetime
) -> dict[str, Any]:
    return {
        "seller": {
            "name": settings.INVOICE_SELLER_NAME,
            "address": settings.INVOICE_SELLER_ADDRESS,
            "tax_id": settings.INVOICE_SELLER_TAX_ID,
        },
        # A credit note names the same buyer, even if the order has been erased since.
        "buyer": {"name": order.name, "email": order.email} if refers_to is None else refers_to.paper["buyer"],
        "order": order.number,
        "refers_to": refers_to.number if refers_to is not None else "",
        "date": f"{timezone.localtime(now):%Y-%m-%d}",
        "event": {
            "name": event.name,
            "starts_at": clock.iso(event.starts_at),
            "timezone": event.timezone,
            "venue": event.venue_name,
            "city": event.city,
        },
        "lines": [{name: getattr(row, name) for name in _ROW_FIELDS} for row in rows],
        "taxes": [
            {
                "rate": rate,
                "net_minor": sum(row.total_minor - row.tax_minor for row in rows if row.tax_rate == rate),
                "tax_minor": sum(row.tax_minor for row in rows if row.tax_rate == rate),
            }
            for rate in sorted({row.tax_rate for row in rows if row.tax_rate}, reverse=True)
        ],
    }
