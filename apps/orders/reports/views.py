"""The page of a sale's report, its PDF, and the public keys of reports."""

import json
from datetime import datetime

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.utils.cache import get_conditional_response, patch_cache_control
from django.views.decorators.http import require_safe

from apps.events import facade as events
from apps.orders.reports.presentation import describe_report
from apps.orders.reports.publication import latest_report, published_keys

MAX_AGE_SECONDS = 60


@require_safe
def report(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the latest published report of the event's sale."""
    event = events.get_event(slug)
    found = latest_report(event)
    document = json.loads(found.document)
    context = {
        "event": event,
        "report": found,
        "document": document,
        "moments": {
            name: datetime.fromisoformat(document[name]) for name in ("starts_at", "opened_at", "closed_at", "as_of")
        },
        "sections": describe_report(document),
        "base_url": settings.SITE_URL.rstrip("/"),
    }
    response = render(request, "orders/report.html", context)
    patch_cache_control(response, private=True, no_cache=True)
    return response


@require_safe
def report_pdf(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Serve the PDF of the latest report, as it was published."""
    found = latest_report(events.get_event(slug))
    headers = {"Content-Disposition": f'inline; filename="report-{slug}.pdf"'}
    response = HttpResponse(bytes(found.pdf), content_type="application/pdf", headers=headers)
    return cacheable(request, response, f'"{found.event_id}-{found.version}-pdf"')


@require_safe
def report_keys(request: HttpRequest) -> HttpResponseBase:
    """List the public keys that sign reports, at a well-known address."""
    response = JsonResponse({"keys": published_keys()})
    patch_cache_control(response, public=True, max_age=MAX_AGE_SECONDS)
    return response


def cacheable(request: HttpRequest, response: HttpResponse, etag: str) -> HttpResponseBase:
    """Return the response with its ETag, for caches and conditional requests."""
    response.headers["ETag"] = etag
    patch_cache_control(response, public=True, max_age=MAX_AGE_SECONDS)
    return get_conditional_response(request, etag=etag, response=response) or response
