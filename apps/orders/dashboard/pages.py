"""The dashboard of one event, its downloads, and the context of the staff's home page."""

from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo

from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.views.decorators.http import require_safe

from apps.accounts import facade as accounts
from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.http.csv_download import respond_with_csv
from apps.kernel.plots import bar_plot
from apps.orders.dashboard import figures, sales_tally
from apps.orders.dashboard.exports import EXPORTS
from apps.orders.models import Order
from apps.queue import facade as queue

URL_NAME = "admin:event_dashboard"
EVENTS_MAX = 12
ORDERS_SHOWN = 8
_PERIODS = {"hour": (60, 60), "day": (900, 96)}
"""Length and number of a plot's bins."""
_PERMISSIONS: Mapping[str, str] = {
    "see_demand": "events.view_viewminute",
    "see_stock": "reservations.view_seatinventory",
    "see_money": "orders.view_order",
    "see_room": "queue.view_waitingroom",
    "see_scans": "orders.view_ticketscan",
    "check_in": "orders.check_in",
    "see_tickets": "orders.view_ticket",
    "change_event": "events.change_event",
    "see_announcements": "events.view_announcementversion",
    "see_tasks": "scheduler.view_scheduledtask",
    "cancel_event": "orders.add_eventcancellation",
}


def _permissions(user: Any, event: events.StaffEvent) -> dict[str, bool]:
    return {name: events.is_permitted(user, permission, event) for name, permission in _PERMISSIONS.items()}


def _get_event(request: HttpRequest, event_id: int, permission: str) -> events.StaffEvent:
    """Return the event if the user has the permission for it. Raises Http404 and PermissionDenied."""
    event = events.get_staff_event(event_id)
    if event is None:
        raise Http404
    if not events.is_permitted(request.user, permission, event):
        raise PermissionDenied
    return event


@require_safe
def dashboard_view(request: HttpRequest, event_id: int, site: AdminSite) -> HttpResponse:
    """Show one event's figures, as far as the user may see them."""
    event = _get_event(request, event_id, "events.view_event")
    may = _permissions(request.user, event)
    context: dict[str, Any] = {
        **site.each_context(request),
        "title": event.name,
        "event": event,
        "may": may,
        "zone": ZoneInfo(event.timezone),
        "exports": {
            name: export
            for name, export in EXPORTS.items()
            if events.is_permitted(request.user, export.permission, event)
        },
    }
    if not event.is_draft:
        context["figures"] = figures.read_figures(event.id)
        context["room"] = queue.read_room_counts(event.id) if may["see_room"] else None
        if may["see_money"]:
            period = request.GET.get("period", "")
            context |= _plot(event, period if period in (*_PERIODS, "all") else "")
            context["orders"] = Order.objects.filter(event_id=event.id, confirmed_at__isnull=False).order_by(
                "-confirmed_at"
            )[:ORDERS_SHOWN]
    return TemplateResponse(request, "admin/orders/dashboard.html", context)


def _plot(event: events.StaffEvent, name: str) -> dict[str, Any]:
    """Return the plot of the period with this name; without one, of all time."""
    zone, now = ZoneInfo(event.timezone), clock.now()
    first = sales_tally.first_sale_at(event.id)
    shown = name or "all"
    if shown == "all" and first is not None:
        period = bar_plot.whole_period(first, now, zone)
    else:
        period = bar_plot.last_period(now, *_PERIODS.get(shown, _PERIODS["hour"]))
    bins = sales_tally.read_bins(event.id, period.since, period.bin_seconds)
    labels = (("hour", "Last hour"), ("day", "Last day"), ("all", "All"))
    return {
        "plot": bar_plot.draw([(one.at, one.tickets) for one in bins], period, zone),
        "period": shown,
        "periods": labels,
    }


@require_safe
def export_view(request: HttpRequest, event_id: int, kind: str) -> HttpResponseBase:
    """Send one of the event's exports. It has the personal data of many people, so it needs a recent authentication;
    the security log has each download, since the URL's name is that of a page with personal data."""
    export = EXPORTS.get(kind)
    if export is None:
        raise Http404
    event = _get_event(request, event_id, export.permission)
    accounts.require_recent_authentication(request)
    return respond_with_csv(request, request.user.pk, f"{kind}-{event.slug}.csv", export.header, export.rows(event))


def home_context(user: Any) -> dict[str, Any]:
    """Return the user's current and coming events with their figures, as far as the user may see them."""
    found, more_count = events.list_staff_events(user, EVENTS_MAX)
    read = figures.read_home_figures(event.id for event in found if not event.is_draft)
    rows = [{"event": event, "figures": read.get(event.id), "may": _permissions(user, event)} for event in found]
    return {"events": rows, "more_count": more_count}
