"""Processor time and size of PDFs by Typst (the product), reportlab with shaping, and fpdf2, in one run.

    pip install reportlab rl_accel uharfbuzz fpdf2        # into a scratch environment beside the product's packages
    python -m benchmarks.experiments.pdf_libraries [--rounds 20] [--pictures FOLDER]

Needs no server. Each library renders one, two and twenty tickets and an invoice of three lines, all with new content,
in turns; a library that is not installed is left out. The figures are medians of process time. reportlab and fpdf2 draw
the same texts at fixed positions and in one size, without the product's layout. `--pictures` writes a PDF of each, to
compare the shaping: reportlab shapes runs of one direction, but does not order mixed ones.
"""

import argparse
import io
import logging
import os
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import segno

FONTS = Path(__file__).resolve().parent.parent.parent / "apps" / "orders" / "pdf" / "fonts"
NAMES = (
    "Kovács Őrség Řehoř Bąk-Kędra", "Αλέξανδρος Παπαδόπουλος", "Дмитро Їжакевич", "דנה כהן", "محمد عبد الرحمن",
    "Ada (ליאם) 123 محمد",
)  # fmt: skip
LABELS = ("Date", "Venue", "Seat", "Category", "Price", "Holder")
PAGE = (420, 595)
Document = Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    os.environ.setdefault("SECRET_KEY", "public-key-of-all-benchmarks-never-use-elsewhere")
    # Connections to this port fail at once: nothing here needs a database.
    os.environ["DATABASE_URL"] = "postgres://none:none@127.0.0.1:1/none"
    os.environ["DJANGO_SETTINGS_MODULE"] = "ticketing.settings"
    import django

    django.setup()
    logging.getLogger("fontTools").setLevel(logging.ERROR)
    libraries = {"typst": (_typst_tickets, _typst_invoice)}
    for name, module, renderers in (
        ("reportlab", "reportlab", (_reportlab_tickets, _reportlab_invoice)),
        ("fpdf2", "fpdf", (_fpdf2_tickets, _fpdf2_invoice)),
    ):
        try:
            __import__(module)
        except ImportError:
            print(f"{name} is not installed")
        else:
            libraries[name] = renderers
    numbers = iter(range(10**9))
    works: dict[str, Callable[[Any], bytes]] = {}
    for count in (1, 2, 20):
        works[f"{count} tickets"] = lambda pair, count=count: pair[0](_make_order(count, next(numbers)))
    works["invoice"] = lambda pair: pair[1](_make_invoice(next(numbers)))
    for work, render in works.items():
        spent: dict[str, list[float]] = {name: [] for name in libraries}
        sizes = {name: len(render(pair)) for name, pair in libraries.items()}
        for _ in range(options.rounds):
            for name, pair in libraries.items():
                begun = time.process_time()
                render(pair)
                spent[name].append(time.process_time() - begun)
        base = statistics.median(spent["typst"])
        for name, times in spent.items():
            median = statistics.median(times)
            print(f"{work:<12} {name:<10} {median * 1e3:7.2f} ms {median / base:6.2f} {sizes[name] / 1e3:7.1f} kB")
    if options.pictures is not None:
        options.pictures.mkdir(parents=True, exist_ok=True)
        for name, pair in libraries.items():
            (options.pictures / f"{name}.pdf").write_bytes(pair[0](_make_order(len(NAMES), 0)))


def _make_order(count: int, number: int) -> Document:
    event = SimpleNamespace(
        name="Späte Förderung: Łódź", venue_name="Théâtre des Champs-Élysées", city="Łódź", timezone="Europe/Paris",
        address_line="Théâtre des Champs-Élysées, Łódź",
        starts_at=datetime(2030, 6, 1, 18, tzinfo=UTC), doors_at=None,
    )  # fmt: skip
    tickets = [
        SimpleNamespace(
            code=f"{number:09}{at:09}XYZ2345KLM".translate(str.maketrans("0123456789", "ABCDEFGHIJ")),
            label="Parquet, row A, seat 12", section="Parquet", row="A", number=str(at), category="Gold",
            price_minor=4_500, currency="EUR", holder=f"{NAMES[(number + at) % len(NAMES)]} {number}",
        )
        for at in range(count)
    ]  # fmt: skip
    return SimpleNamespace(event=event, valid_tickets=tickets, number=f"FG{number}")


def _make_invoice(number: int) -> Document:
    from apps.orders.models import Invoice, InvoiceKind

    event = {"name": "Späte Förderung: Łódź", "starts_at": "2030-06-01T18:00:00+00:00", "timezone": "UTC"}
    row = {"description": "Parquet, row A, seat 12", "category": "Gold", "tax_rate": 1_900, "total_minor": 4_500}
    paper = {
        "seller": {"name": "Opéra", "address": "1 avenue Montaigne\n75008 Paris", "tax_id": "FR123"},
        "buyer": {"name": NAMES[number % len(NAMES)], "email": "ada@example.org"},
        "date": "1 June 2030", "order": f"FG{number}", "refers_to": "", "lines": [row] * 3,
        "event": {**event, "venue": "Théâtre", "city": "Paris"},
        "taxes": [{"rate": 1_900, "net_minor": 11_345, "tax_minor": 2_155}],
    }  # fmt: skip
    return Invoice(kind=InvoiceKind.INVOICE, number=f"FG-{number}", currency="EUR", total_minor=13_500, paper=paper)


def _typst_tickets(order: Document) -> bytes:
    from apps.orders.tickets import ticket_pdf

    return ticket_pdf.tickets_pdf(order)


def _typst_invoice(invoice: Document) -> bytes:
    from apps.orders.invoices import invoice_pdf

    return invoice_pdf.render_invoice(invoice)


def _ticket_values(order: Document, ticket: Document) -> tuple[str, ...]:
    from apps.kernel.formatting import format_datetime, format_money

    date = format_datetime(order.event.starts_at, order.event.timezone, with_zone_name=True)
    price = format_money(ticket.price_minor, ticket.currency)
    return (date, order.event.venue_name, ticket.label, ticket.category, price, ticket.holder)


def _invoice_texts(invoice: Document) -> Iterator[tuple[int, str]]:
    """Yield the invoice's texts with their columns."""
    from apps.kernel.formatting import format_money

    paper = invoice.paper
    yield from ((54, line) for line in (paper["seller"]["name"], *paper["seller"]["address"].split("\n")))
    yield from ((54, value) for value in (paper["buyer"]["name"], paper["buyer"]["email"], paper["event"]["name"]))
    for row in paper["lines"]:
        yield 54, row["description"]
        yield 54, row["category"]
        yield 450, format_money(row["total_minor"], invoice.currency)
    yield 450, format_money(invoice.total_minor, invoice.currency)


def _dark_runs(code: str) -> Iterator[tuple[int, int, int]]:
    for line, modules in enumerate(segno.make_qr(code, error="m", mask=3).matrix):
        column = 0
        for dark, run in groupby(modules):
            length = sum(1 for _ in run)
            if dark:
                yield column, line, length
            column += length


def _font_and_direction(text: str) -> tuple[str, str]:
    if any("\u0590" <= character < "\u0600" for character in text):
        return "NotoSansHebrew-Bold", "RTL"
    if any("\u0600" <= character < "\u0700" for character in text):
        return "NotoSansArabic-Bold", "RTL"
    return "Manrope-Bold", "LTR"


@cache
def _register_reportlab_fonts() -> None:
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.ttfonts import TTFont

    for name in ("Manrope-Regular", "Manrope-Bold", "BebasNeue-Regular", "NotoSansHebrew-Bold", "NotoSansArabic-Bold"):
        pdfmetrics.registerFont(TTFont(name, str(FONTS / f"{name}.ttf"), shapable=True))


def _reportlab_tickets(order: Document) -> bytes:
    from reportlab.pdfgen.canvas import Canvas

    _register_reportlab_fonts()
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=PAGE, pageCompression=1, invariant=1)
    for ticket in order.valid_tickets:
        canvas.setFillColorRGB(0.73, 0.18, 0.1)
        canvas.rect(0, 477, 420, 118, stroke=0, fill=1)
        canvas.setFillColorRGB(1, 1, 1)
        canvas.setFont("BebasNeue-Regular", 15)
        canvas.drawString(36, 555, "FAIRGATE", shaping=True)
        canvas.setFont("BebasNeue-Regular", 40)
        canvas.drawString(36, 510, order.event.name, shaping=True)
        canvas.setFillColorRGB(0.17, 0.1, 0.09)
        for at, (label, value) in enumerate(zip(LABELS, _ticket_values(order, ticket), strict=True)):
            canvas.setFont("Manrope-Regular", 8)
            canvas.drawString(36, 450 - at * 35, label, shaping=True)
            font, direction = _font_and_direction(value)
            canvas.setFont(font, 12)
            canvas.drawString(36, 436 - at * 35, value, direction=direction, shaping=True)
        canvas.saveState()
        canvas.translate(135, 56)
        canvas.scale(6, 6)
        canvas.addLiteral(" ".join(f"{x} {24 - y} {length} 1 re" for x, y, length in _dark_runs(ticket.code)) + " f")
        canvas.restoreState()
        canvas.setFont("Manrope-Regular", 9)
        canvas.drawString(135, 40, ticket.code, shaping=True)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


def _reportlab_invoice(invoice: Document) -> bytes:
    from reportlab.pdfgen.canvas import Canvas

    _register_reportlab_fonts()
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=(595, 842), pageCompression=1, invariant=1)
    for at, (x, text) in enumerate(_invoice_texts(invoice)):
        font, direction = _font_and_direction(text)
        canvas.setFont(font, 10)
        canvas.drawString(x, 750 - at * 16, text, direction=direction, shaping=True)
    canvas.showPage()
    canvas.save()
    return out.getvalue()


def _make_fpdf(width: float, height: float) -> Any:
    """Return an empty document. fpdf2 parses its fonts anew for each one."""
    from fpdf import FPDF

    pdf = FPDF(unit="pt", format=(width, height))
    pdf.set_auto_page_break(False)
    for family, name in (
        ("text", "Manrope-Regular"), ("bold", "Manrope-Bold"), ("brand", "BebasNeue-Regular"),
        ("hebrew", "NotoSansHebrew-Bold"), ("arabic", "NotoSansArabic-Bold"),
    ):  # fmt: skip
        pdf.add_font(family, "", str(FONTS / f"{name}.ttf"))
    pdf.set_fallback_fonts(["hebrew", "arabic"], exact_match=False)
    pdf.set_text_shaping(True)
    return pdf


def _fpdf2_tickets(order: Document) -> bytes:
    pdf = _make_fpdf(*PAGE)
    for ticket in order.valid_tickets:
        pdf.add_page()
        pdf.set_fill_color(185, 45, 25)
        pdf.rect(0, 0, 420, 118, style="F")
        pdf.set_text_color(255, 255, 255)
        for font, size, y, text in (("brand", 15, 30, "FAIRGATE"), ("brand", 40, 60, order.event.name)):
            pdf.set_font(font, "", size)
            pdf.set_xy(36, y)
            pdf.cell(348, size, text)
        pdf.set_text_color(43, 26, 23)
        for at, (label, value) in enumerate(zip(LABELS, _ticket_values(order, ticket), strict=True)):
            for font, size, y, text in (("text", 8, 130, label), ("bold", 12, 143, value)):
                pdf.set_font(font, "", size)
                pdf.set_xy(36, y + at * 35)
                pdf.cell(348, size, text)
        pdf.set_fill_color(0, 0, 0)
        for x, y, length in _dark_runs(ticket.code):
            pdf.rect(135 + 6 * x, 390 + 6 * y, 6 * length, 6, style="F")
        pdf.set_font("text", "", 9)
        pdf.set_xy(36, 545)
        pdf.cell(348, 9, ticket.code, align="C")
    return bytes(pdf.output())


def _fpdf2_invoice(invoice: Document) -> bytes:
    pdf = _make_fpdf(595, 842)
    pdf.add_page()
    pdf.set_font("bold", "", 10)
    for at, (x, text) in enumerate(_invoice_texts(invoice)):
        pdf.set_xy(x, 60 + at * 16)
        pdf.cell(300, 10, text)
    return bytes(pdf.output())


if __name__ == "__main__":
    main()
