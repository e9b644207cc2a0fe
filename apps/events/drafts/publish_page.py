"""The admin page of a draft's checklist: what will be sold and when, what is missing, and the buttons to preview and to
publish it."""

from datetime import datetime
from typing import Any

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.views.decorators.http import require_http_methods

from apps.events.checklist.draft import Draft, read_draft
from apps.events.checklist.findings import digest, list_findings
from apps.events.checklist.registry import Finding, Level
from apps.events.drafts.large_plans import alone_if_large
from apps.events.drafts.tiers import list_tiers
from apps.events.models import Event
from apps.events.organizers.membership_backend import is_permitted
from apps.events.publication import EventRefused, publish_event
from apps.kernel import clock
from apps.kernel.formatting import WEEKDAY_DATE_TIME, currency_name, format_datetime

MAY_PUBLISH = "events.change_event"


def find_event(request: HttpRequest, event_id: int) -> Event:
    """Return the event if the user may publish it. Raises Http404 or PermissionDenied."""
    events = Event.objects.select_related("venue", "organizer", "plan").defer("plan__layout")
    event = events.filter(pk=event_id).first()
    if event is None:
        raise Http404
    if not is_permitted(request.user, MAY_PUBLISH, event):
        raise PermissionDenied
    return event


@require_http_methods(["GET", "HEAD", "POST"])
@alone_if_large
def publish_page(request: HttpRequest, event_id: int, site: AdminSite) -> HttpResponse:
    """Show the draft's checklist, or publish it if the checklist is still the one that the user saw."""
    event = find_event(request, event_id)
    # The page belongs to an app above, so only its URL name is used here.
    dashboard = redirect("admin:event_dashboard", event.pk)
    if event.status != Event.Status.DRAFT:
        messages.info(request, f"{event.name} is already published.")
        return dashboard
    draft, now = read_draft(event), clock.now()
    findings = list_findings(draft, now)
    summary = _summary(request, event, draft, now)
    if request.method != "POST":
        return _page(request, event, findings, summary, site)
    if request.POST.get("seen") != digest(findings):
        messages.error(request, "The event has changed since you opened this page. Check the list again.")
        return _page(request, event, findings, summary, site, status=409)
    try:
        publish_event(event.pk)
    except EventRefused as error:
        messages.error(request, f"Not published. {error}")
        return _page(request, event, findings, summary, site, status=409)
    sale = "is published and on sale" if draft.on_sale is None or draft.on_sale.opens_at <= now else "is published"
    link = format_html(
        '<a class="button" href="{}">Open the event page</a>', reverse("events:event", args=[event.slug])
    )
    messages.success(request, format_html("{} {}. {}", event.name, sale, link))
    return dashboard


def _summary(request: HttpRequest, event: Event, draft: Draft, now: datetime) -> dict[str, Any]:
    """Return what the draft sells, where and when, as its page shows it before the publication."""
    on_sale = draft.on_sale
    return {
        "starts_at": format_datetime(draft.starts_at, draft.timezone, WEEKDAY_DATE_TIME, with_zone_name=True),
        "address": request.build_absolute_uri(reverse("events:event", args=[event.slug])),
        "currency": f"{currency_name(event.currency)} ({event.currency})",
        "venue": ", ".join(filter(None, (draft.venue_name, draft.venue_address, event.venue.city))),
        "opens_at": "" if on_sale is None or on_sale.opens_at <= now
        else format_datetime(on_sale.opens_at, draft.timezone, WEEKDAY_DATE_TIME, with_zone_name=True),
        "has_on_sale": on_sale is not None,
        "tiers": list_tiers(event),
    }  # fmt: skip


def _page(
    request: HttpRequest,
    event: Event,
    findings: list[Finding],
    summary: dict[str, Any],
    site: AdminSite,
    *,
    status: int = 200,
) -> HttpResponse:
    context = {
        **site.each_context(request),
        "title": f"Publish {event.name}",
        "event": event,
        "summary": summary,
        "missing": [finding for finding in findings if finding.level == Level.MISSING],
        "warnings": [finding for finding in findings if finding.level == Level.WARNING],
        "seen": digest(findings),
    }
    return TemplateResponse(request, "admin/events/publish.html", context, status=status)
