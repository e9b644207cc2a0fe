"""The page of all that was announced at an event. The same for every visitor."""

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.views.decorators.http import require_safe

from apps.events import caching, facade
from apps.events.announcements import archiving, feed
from apps.events.announcements.announced import shown
from ticketing.kernel import problems

SECONDS = 10


@require_safe
def announcements(request: HttpRequest, slug: str) -> HttpResponseBase:
    try:
        event = facade.get_event(slug)
        before = feed.before_of(request.GET.get("before"))
    except (facade.EventNotFound, problems.Invalid) as error:
        raise Http404 from error
    page = archiving.history(event.id, before)
    context = {
        "event": event,
        "announcements": shown(page.announcements),
        "next_before": page.next_before,
        "is_first": before is None,
    }
    html = render_to_string("events/announcements.html", context)
    return caching.public_page(request, html, caching.fixed_lifetime(SECONDS))
