"""The preview of a draft as a shopper would see it: its page, and its seat map. For staff with the right to see the
event; never cached or indexed. Nothing is written: the sections and seats are those of the plan."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse

from apps.events import event_views, selectors, views
from apps.events.drafts.large_plans import MAY_SEE, alone_if_large
from apps.events.models import Event
from apps.events.organizers.membership_backend import is_permitted
from apps.events.posters import artwork
from apps.events.public_plan import documents
from apps.kernel import clock


def list_urls(site: AdminSite) -> list[URLPattern]:
    """Return the URLs of the preview, below the admin's URL of events. The admin's wrapper forbids caching."""
    pages = {
        "preview/": (_event_page, "events_preview"),
        "preview/map/": (_map_page, "events_preview_map"),
        "preview/plan.json": (_plan, "events_preview_plan"),
        "preview/status.json": (_status, "events_preview_status"),
        "preview/poster.svg": (_poster, "events_preview_poster"),
    }
    return [
        path(f"<int:event_id>/{route}", site.admin_view(alone_if_large(_for_staff(page))), name=name)
        for route, (page, name) in pages.items()
    ]


def _for_staff(page: Callable[[HttpRequest, Event], HttpResponse]) -> Callable[..., HttpResponse]:
    """Call `page` with the draft if the user may see it; a published event has its own page."""

    @wraps(page)
    def view(request: HttpRequest, event_id: int) -> HttpResponse:
        event = Event.objects.select_related("venue").defer("plan__layout").filter(pk=event_id).first()
        if event is None:
            raise Http404
        if not any(is_permitted(request.user, permission, event) for permission in MAY_SEE):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        if event.status != Event.Status.DRAFT:
            return redirect("events:event", event.slug)
        try:
            response = page(request, event)
        except event_views.EventNotFound:
            messages.error(request, "There is no on-sale yet, so there is nothing to preview.")
            response = redirect("admin:events_publish", event.pk)
        response.headers["X-Robots-Tag"] = "noindex, nofollow"
        return response

    return view


def _links(event: Event) -> dict[str, Any]:
    return {"draft": event, "may_publish_url": reverse("admin:events_publish", args=[event.pk])}


def _event_page(request: HttpRequest, event: Event) -> HttpResponse:
    context = views.event_context(selectors.get_draft_page(event.slug))
    context["event"]["poster_url"] = reverse("admin:events_preview_poster", args=[event.pk])
    html = render_to_string("events/preview.html", context | _links(event) | {"shown": "page"})
    return HttpResponse(html)


def _map_page(request: HttpRequest, event: Event) -> HttpResponse:
    view = event_views.get_event_by_id(event.pk)
    sections = [section.at_full_prices(view.price_policy) for section in documents.draft_sections(event.pk)]
    prices = {price.category: price for section in sections for price in section.prices}
    context = {
        "event": view,
        "categories": sorted(prices.values(), key=lambda price: (-price.price_minor, price.name)),
        "sections": sections,
        "has_seats": any(not section.is_general_admission for section in sections),
        "currency": view.currency,
        "limit": view.policy.seats_per_reservation_max,
        "order_fee_minor": view.price_policy.order_fee_total_minor,
        "fee_on_free": not view.price_policy.waives_fees_when_free,
        "plan_url": reverse("admin:events_preview_plan", args=[event.pk]),
        "status_url": reverse("admin:events_preview_status", args=[event.pk]),
        "guarded": [],
        "selected": [],
        "own_seats": [],
        "is_preview": True,
        "shown": "map",
    }
    return HttpResponse(render_to_string("events/preview_map.html", context | _links(event)))


def _plan(request: HttpRequest, event: Event) -> HttpResponse:
    return HttpResponse(documents.draft_plan_document(event.pk), content_type="application/json")


def _status(request: HttpRequest, event: Event) -> HttpResponse:
    """Return the state of the map with every seat free, as the reservations app returns it for a published event."""
    general = {
        section.slug: section.capacity
        for section in event_views.list_sections(event.pk)
        if section.is_general_admission
    }
    return JsonResponse({"taken": [], "general_admission": general, "as_of": clock.iso(clock.now())})


def _poster(request: HttpRequest, event: Event) -> HttpResponse:
    drawing = event.poster or artwork.plain_poster(event.slug, event.name)
    response = HttpResponse(drawing, content_type="image/svg+xml; charset=utf-8")
    response.headers["Content-Security-Policy"] = (
        "default-src 'none'; style-src 'unsafe-inline'; font-src data:; sandbox"
    )
    return response
