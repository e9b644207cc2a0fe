"""Files that programs ask for at the root: sitemap.xml, robots.txt and favicon.ico."""

from functools import cache
from pathlib import Path
from xml.sax.saxutils import escape

from django.conf import settings
from django.contrib.staticfiles import finders
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from apps.events import http_cache
from apps.events.discovery.structured_data import absolute_url
from apps.events.models import Event
from apps.kernel import clock

SITEMAP_URLS_MAX = 50_000
"""A sitemap may have no more."""
ICON_SECONDS = 86_400
_PRIVATE = (
    "/accounts/", "/admin/", "/api/", "/check-in/", "/orders/", "/reservations/", "/search", "/tickets/", "/transfers/",
)  # fmt: skip
_PERSONAL = ("choose", "join", "leave", "wait")


@require_safe
def sitemap(request: HttpRequest) -> HttpResponse:
    """List the catalog and the pages of all public events that have not started."""
    now = clock.now()
    public = Event.objects.exclude(status=Event.Status.DRAFT).filter(on_sale__isnull=False)
    coming = public.filter(starts_at__gt=now).order_by("starts_at", "slug")
    slugs = coming.values_list("slug", flat=True)[: SITEMAP_URLS_MAX - 1]
    pages = [reverse("events:catalog"), *(reverse("events:event", args=[slug]) for slug in slugs)]
    urls = "".join(f"<url><loc>{escape(absolute_url(page))}</loc></url>" for page in pages)
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{urls}</urlset>\n'
    )
    return _respond(body, "application/xml; charset=utf-8", settings.CACHE_PAGE_SECONDS)


@require_safe
def robots(request: HttpRequest) -> HttpResponse:
    """Keep crawlers away from personal pages and from the API."""
    lines = ["User-agent: *", *(f"Disallow: {path}" for path in _PRIVATE)]
    lines += [f"Disallow: /events/*/{page}" for page in _PERSONAL]
    lines += ["", f"Sitemap: {absolute_url(reverse('sitemap'))}", ""]
    return _respond("\n".join(lines), "text/plain; charset=utf-8", settings.CACHE_PAGE_SECONDS)


@require_safe
def favicon(request: HttpRequest) -> HttpResponse:
    """Return the icon for browsers that do not read the SVG of the pages."""
    return _respond(_icon(), "image/x-icon", ICON_SECONDS)


@cache
def _icon() -> bytes:
    path = finders.find("favicon.ico")
    if not isinstance(path, str):
        raise Http404
    return Path(path).read_bytes()


def _respond(content: str | bytes, content_type: str, seconds: int) -> HttpResponse:
    headers = {"Cache-Control": http_cache.fixed_cache_control(seconds)}
    return HttpResponse(content, content_type=content_type, headers=headers)
