"""The page with all announcements of an event, the same for every visitor."""

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.views.decorators.http import require_safe

from apps.events import event_views, http_cache
from apps.events.announcements import archive, feed
from apps.events.announcements.template_context import to_context
from apps.kernel.http import problems

SECONDS = 10


@require_safe
def announcements(request: HttpRequest, slug: str) -> HttpResponseBase:
    try:
        event = event_views.get_event(slug)
        before = feed.parse_before(request.GET.get("before"))
    except (event_views.EventNotFound, problems.Invalid) as error:
        raise Http404 from error
    page = archive.history(event.id, before)
    context = {
        "event": event,
        "announcements": to_context(page.announcements),
        "next_before": page.next_before,
        "is_first": before is None,
    }
    html = render_to_string("events/announcements.html", context)
    return http_cache.public_page(request, html, http_cache.fixed_cache_control(SECONDS))
