"""A seat's whole story on its page in the staff's site, and who had it at a moment asked for."""

from typing import Any
from zoneinfo import ZoneInfo

from django.contrib import admin
from django.http import HttpRequest, HttpResponse

from apps.events import facade as events
from apps.kernel import clock
from apps.reservations.checks import seat_history
from apps.reservations.models import SeatInventory

AT_LENGTH_MAX = 40


class SeatHistoryMixin(admin.ModelAdmin):
    """The page of a seat tells who had it and when, from the ledger; `?at=` asks for one moment."""

    change_form_template = "admin/reservations/seatinventory/change_form.html"

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        row = self.get_object(request, object_id)
        told = _history_context(row, request.GET.get("at", "")) if isinstance(row, SeatInventory) else {}
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), **told})


def _history_context(row: SeatInventory, asked: str) -> dict[str, Any]:
    event, seat = events.get_event_by_id(row.event_id), events.seats_by_id([row.pk])[row.pk]
    story = seat_history.timeline(event, seat)
    told: dict[str, Any] = {
        "story": story,
        # Newest first: what is asked about is mostly what happened last.
        "spans": story.spans[::-1],
        "zone": ZoneInfo(story.timezone),
        "asked": asked[:AT_LENGTH_MAX],
    }
    if not asked.strip():
        return told
    try:
        moment = seat_history.parse_moment(asked, story.timezone, clock.now())
    except seat_history.BadMoment as bad:
        return told | {"bad_moment": str(bad)}
    return told | {"moment": moment, "holders": story.at(moment), "free_since": story.free_since(moment)}
