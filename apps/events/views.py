"""Pages of what exists: the catalogue, one event, its poster and the plan of its house. The same for every visitor."""

import hashlib
from dataclasses import asdict
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import cache_control
from django.views.decorators.http import condition, require_safe

from apps.events import facade, posters, selectors

PLAN_MAX_AGE_SECONDS = 300
POSTER_MAX_AGE_SECONDS = 3_600


def _shown(card: selectors.EventCard) -> dict[str, Any]:
    return {**asdict(card), "poster_url": reverse("events:poster", args=[card.slug])}


@require_safe
def catalogue(request: HttpRequest) -> HttpResponse:
    search = request.GET.get("q", "").strip()[: selectors.SEARCH_CHARACTERS_MAX]
    events = [_shown(card) for card in selectors.list_catalogue(search)]
    return render(request, "events/catalogue.html", {"events": events, "q": search})


@require_safe
def event(request: HttpRequest, slug: str) -> HttpResponse:
    try:
        page = selectors.get_event_page(slug)
    except facade.EventNotFound as error:
        raise Http404 from error
    prices = {price for section in page.sections for price in section.prices}
    shown = _shown(page.card) | {
        "hold_minutes": page.policy.hold_minutes,
        "seats_per_reservation": page.policy.seats_per_reservation_max,
        "per_buyer_cap": page.policy.per_buyer_max,
        "prices": [asdict(price) for price in sorted(prices, key=lambda price: (-price.price_minor, price.name))],
        "sections": [asdict(section) for section in page.sections],
    }
    return render(request, "events/event.html", {"event": shown})


def _plan_etag(request: HttpRequest, slug: str) -> str | None:
    try:
        return f'"{selectors.plan_version(slug)}"'
    except facade.EventNotFound:
        return None


@require_safe
@cache_control(public=True, max_age=PLAN_MAX_AGE_SECONDS)
@condition(etag_func=_plan_etag)
def plan(request: HttpRequest, slug: str) -> HttpResponse:
    try:
        document = selectors.plan_document(slug)
    except facade.EventNotFound as error:
        raise Http404 from error
    return HttpResponse(document, content_type="application/json")


@require_safe
def poster(request: HttpRequest, slug: str) -> HttpResponse:
    try:
        drawing, name = selectors.get_poster(slug)
    except facade.EventNotFound as error:
        raise Http404 from error
    return _poster_response(request, drawing or posters.plain_poster(slug, name))


@cache_control(public=True, max_age=POSTER_MAX_AGE_SECONDS)
def _poster_response(request: HttpRequest, drawing: str) -> HttpResponse:
    answer = condition(etag_func=lambda _: f'"{hashlib.sha256(drawing.encode()).hexdigest()[:24]}"')(
        lambda _: HttpResponse(drawing, content_type="image/svg+xml; charset=utf-8")
    )(request)
    # Opened by itself a drawing is a document: it may draw, and nothing else.
    answer.headers["Content-Security-Policy"] = "default-src 'none'; style-src 'unsafe-inline'; font-src data:; sandbox"
    return answer
