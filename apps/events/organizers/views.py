"""The public pages of an organizer: terms, privacy notice and imprint."""

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.views.decorators.http import require_safe

from apps.events.models import Organizer
from apps.events.organizers.legal_pages import current_page, html_of, list_links


@require_safe
def legal_page(request: HttpRequest, slug: str, kind: str) -> HttpResponse:
    """Show the current version, or redirect to its URL. The same bytes for every visitor."""
    organizer = Organizer.objects.filter(slug=slug).first()
    page = None if organizer is None else current_page(organizer.pk, kind)
    if organizer is None or page is None:
        raise Http404
    if page.url:
        return HttpResponseRedirect(page.url)
    shown = {"kind": page.get_kind_display(), "html": html_of(page.text), "published_at": page.published_at}
    context = {"organizer": organizer, "page": shown, "legal": list_links(organizer.pk)}
    return HttpResponse(render_to_string("events/legal_page.html", context))
