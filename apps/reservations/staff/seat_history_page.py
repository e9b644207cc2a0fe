"""A seat's history on its admin page, and its holder at a given time."""

from typing import Any
from zoneinfo import ZoneInfo

from django.contrib import admin
from django.http import HttpRequest, HttpResponse

from apps.events import facade as events
from apps.kernel import clock
from apps.reservations.checks import seat_history
from apps.reservations.models import SeatInventory

AT_LENGTH_MAX = 40
SPANS_MAX = 500
"""Shown. Any visitor can hold and release a seat again and again."""


class SeatHistoryMixin(admin.ModelAdmin):
    """Shows on a seat's admin page who held it and when, from the ledger. `?at=` selects one time."""

    change_form_template = "admin/reservations/seatinventory/change_form.html"

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        row = self.get_object(request, object_id)
        context = _history_context(row, request.GET.get("at", "")) if isinstance(row, SeatInventory) else {}
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), **context})


def _history_context(row: SeatInventory, at_text: str) -> dict[str, Any]:
    event, seat = events.get_event_by_id(row.event_id), events.seats_by_id([row.pk])[row.pk]
    timeline = seat_history.timeline(event, seat)
    context: dict[str, Any] = {
        "timeline": timeline,
        "spans": timeline.spans[: -SPANS_MAX - 1 : -1],  # Newest first.
        "zone": ZoneInfo(timeline.timezone),
        "requested_time": at_text[:AT_LENGTH_MAX],
    }
    if not at_text.strip():
        return context
    try:
        moment = seat_history.parse_moment(at_text, timeline.timezone, clock.now())
    except seat_history.BadMoment as bad:
        return context | {"bad_moment": str(bad)}
    return context | {"moment": moment, "holders": timeline.at(moment), "free_since": timeline.free_since(moment)}
