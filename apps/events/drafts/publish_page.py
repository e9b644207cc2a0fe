"""The admin page of a draft's checklist, with the buttons to preview and to publish it."""

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.views.decorators.http import require_http_methods

from apps.events.checklist.draft import read_draft
from apps.events.checklist.findings import digest, list_findings
from apps.events.checklist.registry import Finding, Level
from apps.events.models import Event
from apps.events.organizers.membership_backend import is_permitted
from apps.events.publication import EventRefused, publish_event
from apps.kernel import clock

MAY_PUBLISH = "events.change_event"


def find_event(request: HttpRequest, event_id: int) -> Event:
    """Return the event if the user may publish it. Raises Http404 or PermissionDenied."""
    event = Event.objects.select_related("venue", "organizer", "plan").filter(pk=event_id).first()
    if event is None:
        raise Http404
    if not is_permitted(request.user, MAY_PUBLISH, event):
        raise PermissionDenied
    return event


@require_http_methods(["GET", "HEAD", "POST"])
def publish_page(request: HttpRequest, event_id: int, site: AdminSite) -> HttpResponse:
    """Show the draft's checklist, or publish it if the checklist is still the one that the user saw."""
    event = find_event(request, event_id)
    # A browser would keep the fragment of the form's address otherwise, and scroll the message away.
    change_page = redirect(f"{reverse('admin:events_event_change', args=[event.pk])}#top")
    if event.status != Event.Status.DRAFT:
        messages.info(request, f"{event.name} is already published.")
        return change_page
    findings = list_findings(read_draft(event), clock.now())
    if request.method != "POST":
        return _page(request, event, findings, site)
    if request.POST.get("seen") != digest(findings):
        messages.error(request, "The event has changed since you opened this page. Check the list again.")
        return _page(request, event, findings, site, status=409)
    try:
        publish_event(event.pk)
    except EventRefused as error:
        messages.error(request, f"Not published. {error}")
        return _page(request, event, findings, site, status=409)
    link = format_html('<a href="{}">View the event page</a>', reverse("events:event", args=[event.slug]))
    messages.success(request, format_html("{} is published. {}", event.name, link))
    return change_page


def _page(
    request: HttpRequest, event: Event, findings: list[Finding], site: AdminSite, *, status: int = 200
) -> HttpResponse:
    context = {
        **site.each_context(request),
        "title": f"Publish {event.name}",
        "event": event,
        "missing": [finding for finding in findings if finding.level == Level.MISSING],
        "warnings": [finding for finding in findings if finding.level == Level.WARNING],
        "seen": digest(findings),
    }
    return TemplateResponse(request, "admin/events/publish.html", context, status=status)
