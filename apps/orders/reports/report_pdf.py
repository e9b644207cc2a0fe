"""Render a sale's report as PDF: the same sections as the page, from the same document."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from apps.kernel.formatting import format_datetime
from apps.orders.pdf import renderer, text_fit
from apps.orders.reports.charts import Chart
from apps.orders.reports.presentation import Section, describe_report

_SIGNATURE = (
    "This file is part of a signed document (JSON), which contains its SHA-256 digest and every figure above. It is "
    "published with the event; manage.py verify_report checks the signature and computes the figures again."
)


def render_report(document: Mapping[str, Any]) -> bytes:
    """Return the PDF of the report; the same bytes for the same document."""
    moments = {
        name: format_datetime(datetime.fromisoformat(document[name]), document["timezone"], with_zone_name=True)
        for name in ("starts_at", "opened_at", "closed_at", "as_of")
    }
    place = f"{document['venue']}, {document['city']}" if document["city"] else document["venue"]
    introduction = [
        f"{place}. {moments['starts_at']}.",
        f"On sale from {moments['opened_at']} to {moments['closed_at']}.",
        f"Figures up to {moments['as_of']}.",
    ]
    if document["is_canceled"]:
        introduction.append("The event was canceled.")
    return renderer.render(
        "report",
        {
            "title": f"Report of the sale: {document['name']}",
            "author": "Fairgate",
            "subject": f"Version {document['version']}, {document['published_at']}",
            "event": text_fit.fit_title(document["name"], 487, 46, (30, 24, 17, 12, 8)),
            "footer": f"Report of the sale, {document['event']}, version {document['version']}",
            "introduction": introduction,
            "sections": [_describe_section(section) for section in describe_report(document)],
            "signature": {
                "text": _SIGNATURE,
                "key_id": document["signed_by"]["key_id"],
                "public": document["signed_by"]["public"],
            },
        },
    )


def _describe_section(section: Section) -> dict[str, Any]:
    return {
        "title": section.title,
        "note": section.note,
        "facts": section.facts,
        "chart": None if section.chart is None else _describe_chart(section.chart),
    }


def _describe_chart(chart: Chart) -> dict[str, Any]:
    names = ", ".join(f"{line.name} ({'dashed' if index else 'solid'})" for index, line in enumerate(chart.lines))
    caption = f"{chart.title}: {names}. The time since the opening is not to scale."
    return {**asdict(chart), "caption": caption}
