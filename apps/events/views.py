"""The catalog, the page of an event, its poster and its seating plan, all the same for every visitor."""

import hashlib
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.urls import reverse
from django.utils.safestring import SafeString
from django.views.decorators.http import condition, require_safe

from apps.events import event_views, http_cache, registries, selectors
from apps.events.announcements import feed, template_context
from apps.events.discovery import structured_data
from apps.events.interest import rules, trend
from apps.events.models.organizers import DEFAULT_SLUG
from apps.events.organizers import legal_pages
from apps.events.posters import artwork
from apps.events.public_plan import documents
from apps.events.search import catalog_page, engine, filters
from apps.events.search.missed import missed_searches
from apps.kernel.http import client_address

CATALOG_PAGE_SIZE = 24
_CARD = tuple(field.name for field in fields(selectors.EventCard))


def _card_context(card: selectors.EventCard) -> dict[str, Any]:
    shown = {name: getattr(card, name) for name in _CARD}
    return shown | {
        "poster_url": reverse("events:poster", args=[card.slug]),
        "has_few_left": card.has_few_left,
    }


@require_safe
def catalog(request: HttpRequest) -> HttpResponseBase:
    problem = ""
    try:
        query = filters.read_query(request.GET.dict())
    except filters.QueryInvalid as error:
        # The page without the filter that cannot be read, with a sentence about it.
        query, problem = filters.Query(text=request.GET.get("q", "").replace("\x00", " ").strip()), f"Filter: {error}."
    query = replace(query, size=CATALOG_PAGE_SIZE)
    context: dict[str, Any] = {"q": query.text[: selectors.SEARCH_CHARACTERS_MAX], "problem": problem}
    if query.text or query.is_filtered or query.sort:
        cards, shown = _search_context(query, client_address.address_from_environ(request.META))
    else:
        cards, shown = _browse_context(query)
    if query.page > 1 and not cards:
        return redirect(catalog_page.url_of(query, page=None))  # A bookmark, or a list that is shorter now.
    # Cache the page briefly if it shows counts, or if it is a search result, because no purge covers its URL.
    is_brief = bool(request.GET) or any(card.state in ("on_sale", "sold_out") for card in cards)
    seconds = settings.CACHE_SOLD_OUT_SECONDS if is_brief else settings.CACHE_PAGE_SECONDS
    # Rendered without the request, so that all visitors get the same bytes.
    html = render_to_string("events/catalog.html", context | shown)
    return http_cache.public_page(request, html, http_cache.page_cache_control(cards, seconds))


def _browse_context(query: filters.Query) -> tuple[list[selectors.EventCard], dict[str, Any]]:
    """Return one page of all events from the database, so that a new event shows before it is indexed."""
    offset = (query.page - 1) * query.size
    cards = selectors.list_catalog(offset=offset, limit=query.size + 1)
    has_next, cards = len(cards) > query.size and query.page < filters.PAGE_MAX, cards[: query.size]
    return cards, {
        "events": [_card_context(card) for card in cards],
        "trending": trend.trending.read(None) if query.page == 1 else (),
        "filters": catalog_page.filter_context(query, engine.facets(query)),
        "previous_url": catalog_page.url_of(query, page=query.page - 1 if query.page > 2 else None, size=None)
        if query.page > 1
        else "",
        "next_url": catalog_page.url_of(query, page=query.page + 1, size=None) if has_next else "",
    }


def _search_context(query: filters.Query, address: str) -> tuple[list[selectors.EventCard], dict[str, Any]]:
    found = engine.search(query)
    if not found.total and not query.is_filtered and query.page == 1:
        missed_searches.record(query.text, address)
    results = {result.slug: result for result in found.results}
    cards = selectors.list_cards([result.event_id for result in found.results])
    events = [
        _card_context(card)
        | {
            "marks": catalog_page.marks_of(
                results[card.slug],
                name=card.name,
                venue_name=card.venue_name,
                city=card.city,
                performers=", ".join(card.performers),
                summary=card.summary,
            )
        }
        for card in cards
        if card.slug in results
    ]
    shown = catalog_page.result_context(found)
    return cards, {
        "events": events,
        "filters": catalog_page.filter_context(query, found.facets),
        "found": shown,
        "previous_url": shown["previous_url"],
        "next_url": shown["next_url"],
    }


@lru_cache(maxsize=4_096)
def _section_row(section: selectors.SectionOffer, currency: str, is_selling: bool) -> SafeString:
    # Cached because an event has hundreds of sections, and few counts change between two renderings.
    context = {"section": section, "currency": currency, "is_selling": is_selling}
    return render_to_string("includes/section_row.html", context)


@require_safe
def event(request: HttpRequest, slug: str) -> HttpResponseBase:
    try:
        page = selectors.get_event_page(slug)
    except event_views.EventNotFound as error:
        raise Http404 from error
    context = event_context(page)
    is_brief = page.card.state == "sold_out" or context["views_last_hour"] is not None
    seconds = settings.CACHE_SOLD_OUT_SECONDS if is_brief else settings.CACHE_PAGE_SECONDS
    html = render_to_string("events/event.html", context)  # Without the request, as in `catalog`.
    return http_cache.public_page(request, html, http_cache.page_cache_control([page.card], seconds))


def event_context(page: selectors.EventPage) -> dict[str, Any]:
    """Return the context of events/event.html."""
    prices = {price for section in page.sections for price in section.prices}
    is_selling = page.card.state in ("on_sale", "sold_out")
    announcement_feed = feed.read(page.event_id, page.card.starts_at)
    closes_at = None if page.presale is None else page.presale.sign_up_closes_at
    shown = _card_context(page.card) | {
        "url": structured_data.absolute_url(reverse("events:event", args=[page.card.slug])),
        "share_image_url": structured_data.absolute_url(static("img/share.png")),
        "map_url": structured_data.map_url(page),
        "details": page.details,
        "summary": structured_data.summary(page),
        "refund_terms": registries.refund_terms(page.event_id, page.card.judged_at, page.card.timezone),
        "moved_from": page.details.moved_from if page.details.moved_from != page.card.starts_at else None,
        "is_organizer_named": page.details.organizer != DEFAULT_SLUG or bool(page.details.organizer_email),
        "hold_seconds": page.hold_seconds,
        "seats_per_reservation": page.seats_per_reservation,
        "per_buyer_cap": page.per_buyer_cap,
        "presale": page.presale,
        "is_sign_up_open": closes_at is not None and page.card.has_open_lobby and page.card.judged_at < closes_at,
        "is_selling": is_selling,
        "price_words": page.price_policy.words(page.card.currency, {price.tax_rate for price in prices}),
        "prices": sorted(prices, key=lambda price: (-price.price_minor, price.name)),
        "has_guarded": any(section.needs_access for section in page.sections),
        "section_rows": [_section_row(section, page.card.currency, is_selling) for section in page.sections],
    }
    return {
        "event": shown,
        "news": template_context.newest(announcement_feed),
        "legal": legal_pages.links_of(page.details.organizer, page.legal_kinds),
        "structured_data": structured_data.structured_data(page),
        "view_after_seconds": max(rules.min_seconds.read(None), 1),
        "views_last_hour": trend.shown_views.read(None).get(page.event_id),
    }


@require_safe
def plan(request: HttpRequest, slug: str) -> HttpResponseBase:
    try:
        version = documents.plan_version(slug)
        response = http_cache.conditional_response(request, version) or _plan(request, slug, version)
    except event_views.EventNotFound as error:
        raise Http404 from error
    response.headers["Cache-Control"] = http_cache.fixed_cache_control(settings.CACHE_PAGE_SECONDS)
    return response


def _plan(request: HttpRequest, slug: str, version: str) -> HttpResponse:
    return http_cache.compressed_json(request, documents.plan_document(slug, version).compressed, version)


@require_safe
def poster(request: HttpRequest, slug: str) -> HttpResponse:
    try:
        drawing, name = selectors.get_poster(slug)
    except event_views.EventNotFound as error:
        raise Http404 from error
    drawing = drawing or artwork.plain_poster(slug, name)
    response = condition(etag_func=lambda _: f'"{hashlib.sha256(drawing.encode()).hexdigest()[:24]}"')(
        lambda _: HttpResponse(drawing, content_type="image/svg+xml; charset=utf-8")
    )(request)
    response.headers["Cache-Control"] = http_cache.fixed_cache_control(settings.CACHE_POSTER_SECONDS)
    # Opened directly, an SVG is a document: allow it to draw, and nothing else.
    response.headers["Content-Security-Policy"] = (
        "default-src 'none'; style-src 'unsafe-inline'; font-src data:; sandbox"
    )
    return response
