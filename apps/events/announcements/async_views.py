"""The announcements' call on the fast path. `api_views` answers the same call on the site."""

from apps.events import event_views
from apps.events.announcements import feed
from apps.events.announcements.feed import Feed
from apps.kernel.fastpath.cache import RefreshingCache
from apps.kernel.fastpath.dispatcher import Route
from apps.kernel.fastpath.etags import has_etag
from apps.kernel.fastpath.request import Request
from apps.kernel.fastpath.response import JSON, Reply

EVENTS_MAX = 1_000
_CACHEABLE = (b"cache-control", b"public, max-age=%d" % feed.MAX_AGE_SECONDS)

# However many requests arrive, Redis is read at most twice a second.
feeds: RefreshingCache[str, Feed] = RefreshingCache(
    feed.feed_of_event, fresh_seconds=0.5, stale_seconds=0.5, most=EVENTS_MAX
)


async def announcements(request: Request, slug: str) -> Reply:
    """Return the same response as `AnnouncementsView.get`."""
    if feeds.peek(slug) is None:
        await event_views.get_cached_event(slug)  # Names of no event are looked up many at a time.
    response = (await feeds.get(slug)).response_since(feed.parse_since(request.GET.get("since")))
    headers = [(b"etag", response.etag.encode()), _CACHEABLE]
    known = request.headers.get("if-none-match")
    if known is not None and has_etag(known, response.etag):
        return Reply(304, b"", headers)
    return Reply(200, response.body, [JSON, *headers])


ROUTES = (Route("GET", "events/<slug>/announcements", announcements, "announcements", "read"),)
