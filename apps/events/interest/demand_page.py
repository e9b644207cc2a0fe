"""The staff's page of the demand for one event, with the switch that shows its views to shoppers."""

from zoneinfo import ZoneInfo

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.views.decorators.http import require_http_methods

from apps.events.interest.demand import read_demand
from apps.events.interest.trend import VIEWS_MIN, set_display
from apps.events.models import ViewDisplay
from apps.events.organizers.membership_backend import is_permitted
from apps.events.staff.staff_events import get_staff_event

SEE_DEMAND = "events.view_viewminute"
CHANGE_EVENT = "events.change_event"


@require_http_methods(["GET", "HEAD", "POST"])
def demand_page(request: HttpRequest, event_id: int, site: AdminSite) -> HttpResponse:
    """Show the demand for the event; a POST sets whether its page shows its views of the last hour."""
    event = get_staff_event(event_id)
    if event is None:
        raise Http404
    if not is_permitted(request.user, SEE_DEMAND, event):
        raise PermissionDenied
    may_change = is_permitted(request.user, CHANGE_EVENT, event)
    if request.method == "POST":
        if not may_change:
            raise PermissionDenied
        is_on = request.POST.get("is_on") == "1"
        set_display(event.id, is_on=is_on)
        state = "shows" if is_on else "no longer shows"
        messages.success(request, f"The event's page {state} how often it was viewed in the last hour.")
        return redirect("admin:events_demand", event.id)
    context = {
        **site.each_context(request),
        "title": f"Demand for {event.name}",
        "event": event,
        "demand": read_demand(event.id, ZoneInfo(event.timezone)),
        "zone": ZoneInfo(event.timezone),
        "is_shown": ViewDisplay.objects.filter(event_id=event.id, is_on=True).exists(),
        "shown_min": VIEWS_MIN,
        "may_change": may_change,
        # The waiting room belongs to an app above, so only its URL name is used here.
        "may_see_room": event.has_room
        and not event.is_draft
        and is_permitted(request.user, "queue.view_waitingroom", event),
    }
    return TemplateResponse(request, "admin/events/demand.html", context)
