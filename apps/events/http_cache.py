"""How long who may keep a page that is the same for everybody.

Three keep it, one after the other: a shared cache (CDN, proxy) until it is stale, the same cache while it fetches the
next one, and the browser, which no purge reaches and which therefore keeps it for a moment only. Some browsers too go
on showing a stale page for as long as it may be fetched anew. All of that together ends before the next moment at which
the clock changes the page: nobody is shown a page without its button when sales have opened.
"""

import hashlib
from collections.abc import Sequence

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import get_conditional_response

from apps.events.selectors import EventCard

BROWSER_SECONDS = 10


def page_cache_control(cards: Sequence[EventCard], seconds: int) -> str:
    """`Cache-Control` of a page that shows these events, for at most so many seconds in shared caches."""
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
    """`Cache-Control` of a file that no clock changes."""
    return f"public, max-age={seconds}, stale-while-revalidate={min(settings.CACHE_STALE_SECONDS, seconds)}"


def public_page(request: HttpRequest, html: str, cache_control: str) -> HttpResponseBase:
    """The page, or 304 for who has these very bytes. Nothing of it came from the request's session."""
    body = html.encode()
    etag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
    page = HttpResponse(body, headers={"Cache-Control": cache_control, "ETag": etag})
    return get_conditional_response(request, etag=etag, response=page) or page
