"""The admin page of changes to a published event: a form for each kind of change, what a change would mean, and the
record of all changes.

A form is sent twice. The first time it shows what the change means; the second time, with the version of the values
that the user saw, it makes the change.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.views.decorators.http import require_http_methods

from apps.accounts import facade as accounts
from apps.events import event_views
from apps.events.event_views import EventView
from apps.events.models import EventChange
from apps.events.organizers.membership_backend import is_permitted
from apps.events.pricing import percent
from apps.events.revisions import service
from apps.events.revisions.forms import FORMS, ChangeForm
from apps.kernel import admin_actions
from apps.kernel.formatting import format_datetime, format_money, format_short_duration
from apps.kernel.http import problems

URL_NAME = "admin:events_changes"
MAY_SEE = "events.view_eventchange"
MAY_CHANGE = "events.change_event"
CHANGES_SHOWN = 30

LABELS: Mapping[str, str] = {
    "starts_at": "Start",
    "doors_at": "Doors open",
    "ends_at": "End",
    "opens_at": "Sales open",
    "closes_at": "Sales end",
    "presale_until": "Presale ends",
    "hold_seconds": "Time to pay",
    "payment_seconds": "Time for a payment",
    "hold_minutes": "Minutes to pay",  # In records of earlier changes.
    "payment_minutes": "Minutes for a payment",
    "seats_per_reservation_max": "Tickets at a time",
    "per_buyer_max": "Tickets per buyer",
    "ticket_fee_minor": "Fee per ticket",
    "ticket_fee_rate": "Fee per ticket, share",
    "order_fee_minor": "Fee per order",
    "waives_fees_when_free": "No fees on free tickets",
    "tax_rate": "Tax",
    "tax_included": "Tax included",
}
_EMPTY = {"closes_at": "when the event starts", "per_buyer_max": "no limit"}


@require_http_methods(["GET", "HEAD", "POST"])
def changes_page(request: HttpRequest, event_id: int, site: AdminSite) -> HttpResponse:
    """Show the forms and the record, what a proposed change means, or make the change."""
    try:
        event = event_views.get_event_by_id(event_id)
    except event_views.EventNotFound as error:
        raise Http404 from error
    if not event.is_public:
        raise Http404
    if not any(is_permitted(request.user, permission, event) for permission in (MAY_SEE, MAY_CHANGE)):
        raise PermissionDenied
    if request.method != "POST":
        return _page(request, event, site)
    if not is_permitted(request.user, MAY_CHANGE, event):
        raise PermissionDenied
    accounts.require_recent_authentication(request)
    form_class = FORMS.get(request.POST.get("kind", ""))
    if form_class is None:
        messages.error(request, "Choose what to change.")
        return redirect(URL_NAME, event_id)
    form = form_class(event, request.POST)
    if not form.is_valid():
        return _page(request, event, site, form, status=400)
    wanted = form.wanted()
    if not wanted:
        messages.info(request, "Nothing was changed: the values are the present ones.")
        return _page(request, event, site, form)
    texts = {name: form.cleaned_data[name] for name in ("message", "return_days") if name in form.cleaned_data}
    try:
        if "confirm" not in request.POST:
            proposal, meaning = service.propose(event_id, form.kind, wanted, **texts)
            review = {
                "rows": describe_values(event, proposal.before, proposal.after),
                "meaning": meaning,
                "seen": service.version(event, form.kind),
            }
            return _page(request, event, site, form, review)
        service.change_event(
            event_id, form.kind, wanted, who=request.user.get_username(), why=form.cleaned_data["why"],
            seen=request.POST.get("seen", ""), **texts,
        )  # fmt: skip
    except problems.Invalid as problem:
        for name, text in problem.extra["errors"].items():
            form.add_error(name if name in form.fields else None, admin_actions.sentence(str(text)))
        return _page(request, event, site, form, status=problem.status)
    except problems.Problem as problem:
        messages.error(request, admin_actions.describe_problem(problem))
        return _page(request, event_views.get_event_by_id(event_id), site, status=problem.status)
    accounts.record_staff_action(request, f"changed {form.kind} of {event.slug}")
    messages.success(request, "The event is changed. The change is recorded below.")
    return redirect(URL_NAME, event_id)


def _page(
    request: HttpRequest,
    event: EventView,
    site: AdminSite,
    sent: ChangeForm | None = None,
    review: Mapping[str, Any] | None = None,
    *,
    status: int = 200,
) -> HttpResponse:
    forms = [sent if sent is not None and kind == sent.kind else form(event) for kind, form in FORMS.items()]
    context = {
        **site.each_context(request),
        "title": f"Change {event.name}",
        "event": event,
        "forms": forms if is_permitted(request.user, MAY_CHANGE, event) and event.status == "published" else [],
        "sent": sent,
        "review": review,
        "changes": [_shown(event, change) for change in EventChange.objects.filter(event_id=event.id)[:CHANGES_SHOWN]],
        "may_cancel": event.status == "published" and is_permitted(request.user, "orders.add_eventcancellation", event),
    }
    return TemplateResponse(request, "admin/events/changes.html", context, status=status)


def _shown(event: EventView, change: EventChange) -> dict[str, Any]:
    read = [
        {name: _from_json(name, value) for name, value in values.items()} for values in (change.before, change.after)
    ]
    return {"change": change, "rows": describe_values(event, *read)}


def _from_json(name: str, value: Any) -> Any:
    return datetime.fromisoformat(value) if name.endswith(("_at", "_until")) and value is not None else value


def describe_values(
    event: EventView, before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    """Return label, old and new value of everything that changes, as text on the venue's clock."""
    return [
        (LABELS[name], _describe(event, name, before[name]), _describe(event, name, after[name]))
        for name in LABELS
        if name in after and before[name] != after[name]
    ]


def _describe(event: EventView, name: str, value: Any) -> str:
    if value is None:
        return _EMPTY.get(name, "none")
    if isinstance(value, datetime):
        return format_datetime(value, event.timezone, with_zone_name=True)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_minor"):
        return format_money(value, event.currency)
    if name.endswith("_rate"):
        return percent(value)
    if name.endswith("_seconds"):
        return format_short_duration(value)
    return f"{value:,}"
