"""Cache-Control of pages that are the same for all visitors.

Three times add up until a visitor gets a new page. A shared cache (CDN, proxy) serves the page until it is stale, and
then while it revalidates. The browser keeps the page too, but only briefly, because no purge reaches it; some browsers
also serve a stale page while they revalidate. The sum of these times ends before the next moment that changes the page
(`EventCard.moments`), so that no visitor sees a page without the "Get tickets" button after sales open.
"""

import gzip
import hashlib
from collections.abc import Sequence

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import get_conditional_response

from apps.events.selectors import EventCard
from apps.kernel.http.compression import request_takes_gzip

BROWSER_SECONDS = 10


def page_cache_control(cards: Sequence[EventCard], seconds: int) -> str:
    """Return `Cache-Control` of a page that shows these events, cached for at most `seconds` in shared caches."""
    shared, stale, browser = seconds, min(settings.CACHE_STALE_SECONDS, seconds), min(BROWSER_SECONDS, seconds)
    left = [
        int((moment - card.judged_at).total_seconds())
        for card in cards
        for moment in card.moments
        if moment > card.judged_at
    ]
    if left:
        shared = min(shared, *left)
        stale = min(stale, (min(left) - shared) // 2)
        browser = min(browser, min(left) - shared - 2 * stale)
    return f"public, max-age={browser}, s-maxage={shared}, stale-while-revalidate={stale}"


def fixed_cache_control(seconds: int) -> str:
    """Return `Cache-Control` of a file that does not change with time."""
    return f"public, max-age={seconds}, stale-while-revalidate={min(settings.CACHE_STALE_SECONDS, seconds)}"


def public_page(request: HttpRequest, html: str, cache_control: str) -> HttpResponseBase:
    """Return the page, or 304 if the client has these bytes. The page must not depend on the request's session."""
    body = html.encode()
    etag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
    page = HttpResponse(body, headers={"Cache-Control": cache_control, "ETag": etag})
    return get_conditional_response(request, etag=etag, response=page) or page


def conditional_response(request: HttpRequest, version: str) -> HttpResponseBase | None:
    """Return 304 if the client has this version, in whichever encoding (412 if it requires another); else None."""
    etag = f'"{version}"'
    response = get_conditional_response(request, etag=etag)
    if response is not None:
        response.headers["Vary"], response.headers["ETag"] = "Accept-Encoding", etag
    return response


def compressed_json(request: HttpRequest, compressed: bytes, version: str) -> HttpResponse:
    """Return a JSON document that the caller keeps compressed, so that no request compresses it again. The ETag of the
    compressed response is weak, as in responses that Django's middleware compresses."""
    headers = {"Vary": "Accept-Encoding", "ETag": f'"{version}"'}
    if request_takes_gzip(request):
        body = compressed
        headers |= {"Content-Encoding": "gzip", "ETag": f'W/"{version}"'}
    else:
        body = gzip.decompress(compressed)
    return HttpResponse(body, content_type="application/json", headers=headers)
