"""Render an invoice or credit note as PDF from its stored document: the same bytes each time."""

from datetime import datetime

from apps.events import facade as events
from apps.kernel.formatting import format_datetime, format_money
from apps.orders.models import Invoice, InvoiceKind
from apps.orders.pdf import renderer

_TITLES = {InvoiceKind.INVOICE: "Invoice", InvoiceKind.CREDIT_NOTE: "Credit note"}


def render_invoice(invoice: Invoice) -> bytes:
    """Return the PDF, on as many pages as its lines need."""
    paper, currency = invoice.paper, invoice.currency
    seller, buyer, kind = paper["seller"], paper["buyer"], _TITLES[InvoiceKind(invoice.kind)]
    tax_id = f"Tax ID {seller['tax_id']}" if seller["tax_id"] else ""
    facts = [("Date", paper["date"]), ("Order", paper["order"]), ("Event", _describe_event(paper["event"]))]
    if paper["refers_to"]:
        facts.insert(1, ("Invoice", paper["refers_to"]))
    sums = []
    for tax in paper["taxes"]:
        rate = events.percent(tax["rate"])
        sums.append((f"Net, taxed at {rate}", format_money(tax["net_minor"], currency)))
        sums.append((f"Tax, {rate}", format_money(tax["tax_minor"], currency)))
    return renderer.render(
        "invoice",
        {
            "title": f"{kind} {invoice.number}",
            "author": seller["name"],
            "subject": f"Order {paper['order']}",
            "kind": kind,
            "number": invoice.number,
            "seller": [line for line in (seller["name"], *seller["address"].split("\n"), tax_id) if line.strip()],
            "buyer": [line for line in (buyer["name"], buyer["email"]) if line.strip()],
            "facts": facts,
            "has_tax": bool(paper["taxes"]),
            "lines": [
                {
                    "description": row["description"],
                    "category": row["category"],
                    "tax": events.percent(row["tax_rate"]),
                    "amount": format_money(row["total_minor"], currency),
                }
                for row in paper["lines"]
            ],
            "sums": sums,
            "total_label": "Refunded" if invoice.kind == InvoiceKind.CREDIT_NOTE else "Paid",
            "total": format_money(invoice.total_minor, currency),
        },
    )


def _describe_event(event: dict[str, str]) -> str:
    start = format_datetime(datetime.fromisoformat(event["starts_at"]), event["timezone"], with_zone_name=True)
    venue = f"{event['venue']}, {event['city']}" if event["city"] else event["venue"]
    return f"{event['name']}, {start}, {venue}"
