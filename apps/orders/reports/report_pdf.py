"""Render a sale's report as PDF: the same sections as the page, from the same document."""

import io
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from reportlab.pdfgen.canvas import Canvas

from apps.kernel.formatting import format_datetime
from apps.orders.pdf_layout import (
    ACCENT,
    BOLD,
    INK,
    MUTED,
    PALE,
    TEXT,
    fit,
    register_fonts,
    width_of,
    wrap,
    write,
    write_centered,
    write_right,
)
from apps.orders.reports.charts import Chart
from apps.orders.reports.presentation import Section, describe_report

PAGE = (595, 842)  # A4 upright, in points.
MARGIN = 54
_BAND, _BOTTOM = 92, 60
_VALUE_SHARE = 0.38
_CHART_SCALE = (PAGE[0] - 2 * MARGIN) / 640


class _Sheet:
    """A canvas that begins a new page when the present one is full."""

    def __init__(self, canvas: Canvas, footer: str) -> None:
        self.canvas, self.footer, self.page = canvas, footer, 1
        self.y = PAGE[1] - _BAND - 34.0

    def need(self, height: float) -> None:
        if self.y - height < _BOTTOM:
            self.end_page()
            self.canvas.showPage()
            self.page += 1
            self.y = PAGE[1] - MARGIN

    def end_page(self) -> None:
        self.canvas.setFillColor(MUTED)
        write(self.canvas, MARGIN, 30, self.footer, TEXT, 8)
        write_right(self.canvas, PAGE[0] - MARGIN, 30, f"Page {self.page}", TEXT, 8)

    def paragraph(self, text: str, font: str = TEXT, size: float = 9, color: Any = INK) -> None:
        for line in _wrap_all(text, font, size, PAGE[0] - 2 * MARGIN):
            self.need(size * 1.4)
            self.canvas.setFillColor(color)
            write(self.canvas, MARGIN, self.y, line, font, size)
            self.y -= size * 1.4


def render_report(document: Mapping[str, Any]) -> bytes:
    """Return the PDF of the report; the same bytes for the same document."""
    register_fonts()
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=PAGE, pageCompression=1, invariant=1)
    canvas.setTitle(f"Report of the sale: {document['name']}")
    canvas.setAuthor("Fairgate")
    canvas.setSubject(f"Version {document['version']}, {document['published_at']}")
    _draw_band(canvas, document)
    sheet = _Sheet(canvas, f"Report of the sale, {document['event']}, version {document['version']}")
    zone = document["timezone"]
    moments = {
        name: format_datetime(datetime.fromisoformat(document[name]), zone, with_zone_name=True)
        for name in ("starts_at", "opened_at", "closed_at", "as_of")
    }
    place = f"{document['venue']}, {document['city']}" if document["city"] else document["venue"]
    sheet.paragraph(f"{place}. {moments['starts_at']}.")
    sheet.paragraph(f"On sale from {moments['opened_at']} to {moments['closed_at']}.")
    sheet.paragraph(f"Figures up to {moments['as_of']}.")
    if document["is_canceled"]:
        sheet.paragraph("The event was canceled.")
    for section in describe_report(document):
        _draw_section(sheet, section)
    _draw_heading(sheet, "Signature")
    sheet.paragraph(
        "This file is part of a signed document (JSON), which contains its SHA-256 digest and every figure above. It "
        "is published with the event; manage.py verify_report checks the signature and computes the figures again."
    )
    sheet.paragraph(f"Key {document['signed_by']['key_id']}:", size=8, color=MUTED)
    sheet.paragraph(document["signed_by"]["public"], size=8, color=MUTED)
    sheet.end_page()
    canvas.showPage()
    canvas.save()
    return out.getvalue()


def _draw_band(canvas: Canvas, document: Mapping[str, Any]) -> None:
    width, height = PAGE
    canvas.setFillColor(ACCENT)
    canvas.rect(0, height - _BAND, width, _BAND, stroke=0, fill=1)
    canvas.setFillColor(PALE)
    write(canvas, MARGIN, height - 34, "FAIRGATE   REPORT OF THE SALE", BOLD, 10)
    size, lines = fit(document["name"], BOLD, width - 2 * MARGIN)
    for index, line in enumerate(lines[:2]):
        write(canvas, MARGIN, height - 60 - index * size * 1.15, line, BOLD, size)


def _draw_heading(sheet: _Sheet, title: str) -> None:
    sheet.need(60)
    sheet.y -= 16
    sheet.canvas.setFillColor(ACCENT)
    write(sheet.canvas, MARGIN, sheet.y, title, BOLD, 13)
    sheet.y -= 18


def _draw_section(sheet: _Sheet, section: Section) -> None:
    _draw_heading(sheet, section.title)
    if section.note:
        sheet.paragraph(section.note, color=MUTED)
    width = PAGE[0] - 2 * MARGIN
    for label, value in section.facts:
        labels = _wrap_all(label, TEXT, 9, width * (1 - _VALUE_SHARE) - 12)
        values = _wrap_all(value, BOLD, 9, width * _VALUE_SHARE)
        sheet.need(13 * max(len(labels), len(values)))
        sheet.canvas.setFillColor(INK)
        for index in range(max(len(labels), len(values))):
            if index < len(labels):
                write(sheet.canvas, MARGIN, sheet.y, labels[index], TEXT, 9)
            if index < len(values):
                write_right(sheet.canvas, PAGE[0] - MARGIN, sheet.y, values[index], BOLD, 9)
            sheet.y -= 13
    if section.chart is not None:
        _draw_chart(sheet, section.chart)


def _draw_chart(sheet: _Sheet, chart: Chart) -> None:
    height = chart.height * _CHART_SCALE
    sheet.need(height + 30)
    sheet.y -= 8
    top, canvas = sheet.y, sheet.canvas

    def at(x: float, y: float) -> tuple[float, float]:
        return MARGIN + x * _CHART_SCALE, top - y * _CHART_SCALE

    canvas.setLineWidth(0.4)
    canvas.setStrokeColor(MUTED)
    canvas.setFillColor(MUTED)
    for mark in chart.marks_y:
        canvas.line(*at(chart.left, mark.at), *at(chart.right, mark.at))
        x, y = at(chart.left - 6, mark.at + 3)
        write_right(canvas, x, y, mark.label, TEXT, 7)
    for mark in chart.marks_x:
        write_centered(canvas, *at(mark.at, chart.bottom + 16), mark.label, TEXT, 7)
    canvas.setLineWidth(1.6)
    for index, line in enumerate(chart.lines):
        canvas.setStrokeColor(ACCENT if index else INK)
        canvas.setDash(*((5, 2) if index else ()))
        path = canvas.beginPath()
        path.moveTo(*at(*line.coordinates[0]))
        for x, y in line.coordinates[1:]:
            path.lineTo(*at(x, y))
        canvas.drawPath(path, stroke=1, fill=0)
    canvas.setDash()
    sheet.y -= height + 6
    names = ", ".join(f"{line.name} ({'dashed' if index else 'solid'})" for index, line in enumerate(chart.lines))
    sheet.paragraph(f"{chart.title}: {names}. The time since the opening is not to scale.", size=8, color=MUTED)


def _wrap_all(text: str, font: str, size: float, width: float) -> list[str]:
    """Wrap the text, also within long words such as digests."""
    pieces = []
    for word in text.split():
        length = len(word) if width_of(word, font, size) <= width else 32
        pieces += [word[at : at + length] for at in range(0, len(word), length)]
    return wrap(" ".join(pieces), font, size, width)
