"""Answers requests for shared pages from memory, and has the site render each page once for all who want it.

A page is rendered without anything of the request that asked for it: no cookies, fixed headers. So a copy cannot
contain personal data, even if a view failed to ignore the session. Copies are kept by path, configured host, scheme
and language, in every content coding.

How old a copy may be:

- Until `REFRESH_SECONDS` it is sent as it is. For `STALE_SECONDS` more it is sent while one request has the page
  rendered again. Afterwards requests wait for that render. All of this ends with the lifetime that the site has set,
  which ends before the next announced moment.
- A change of the pages' version (`version`) makes every copy stale, and a second later useless. Each process reads the
  version twice a second. A render keeps its result only if the version is still the one known when the render began:
  a change that commits while a page is rendered cannot leave the old page behind.
- A page whose address names its version (`plan.json?v=…`) is sent if the copy has this version. Otherwise the site
  answers: an old page must not be kept by a browser under the address of a newer one.
- A request that waits gets a render that began after its arrival, unless the copy may be kept. So a page that must not
  be kept at all, because a moment is near, is still rendered for all requests at once, and is never too old for one.

A render takes a slot, a turn and a thread of the site of the first client that has all three free, of those that ask
for the page: many large pages that one client asks for are rendered one after the other, and a client that has used up
its share neither delays the others nor has them refused. While the site refuses the render of such a client, it is
repeated after pauses, in which those of other clients begin. At any time at most one request for a page is at the site.
"""

import asyncio
import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from functools import lru_cache
from itertools import accumulate
from time import monotonic
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from django.conf import settings
from django.http.request import split_domain_port
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from apps.kernel import rate_limits
from apps.kernel.fastpath import cache
from apps.kernel.fastpath.dispatcher import ROOT
from apps.kernel.fastpath.request import Receive, Request, Scope, Send
from apps.kernel.fastpath.request_ids import request_id_of
from apps.kernel.fastpath.server_extensions import RawResponse
from apps.kernel.http import client_address, problems
from apps.kernel.observability import access_log, request_metrics
from apps.kernel.page_cache import encodings
from apps.kernel.page_cache.languages import is_negotiated, language_of
from apps.kernel.page_cache.lifetime import read_lifetime
from apps.kernel.page_cache.page import Page
from apps.kernel.rate_limits import kinds

REFRESH_SECONDS = 5.0
STALE_SECONDS = 10.0
OUTDATED_SECONDS = 1.0
"""After a change of the version, copies are still sent for this long while they are rendered again."""
CHANGED_SECONDS = 3.0
"""A copy whose render began so soon after a change is refreshed after a second: other caches that a render reads, like
announcements in Redis, are written shortly after the commit."""
UNKEPT_SECONDS = 2.0
"""Requests for a page that could not be kept are passed on at once for this long."""
UNKEPT_MAX = 1_000
_NUMBERS_MAX = 1_000
_VERSION_QUERY = re.compile(rb"v=([0-9a-f]{16,64})")
_SHARE_MAX = 4
"""A page may take up at most this part of the memory."""
ROUTE = "kept-page"
AGES = (1.0, 5.0, 15.0, 60.0, 3_600.0)
_READS = frozenset(("GET", "HEAD"))
# With one of these, the response could differ, or only a part of it is wanted.
_NOT_SHARED = frozenset((b"authorization", b"range", b"if-range", b"if-match", b"if-unmodified-since"))


class SiteResponse(NamedTuple):
    """A response of the site. Header names are in lower case."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Saturated(Exception):
    """The site has no free thread for this client. It may have one for another client."""


class Site(Protocol):
    """The site as the cache uses it (`ticketing.server.site_proxy`)."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request as it is."""

    def wait_seconds(self, scope: Scope) -> float | None:
        """Count the request; return the seconds to wait if it exceeds its rate limit, else None."""

    def render_slot(self, scope: Scope) -> AbstractAsyncContextManager[None]:
        """Take a slot and a turn of the client's address while the block runs. Raises problems.Problem if it waits too
        long."""

    async def fetch(
        self, scope: Scope, path: str, host: str, language: str, bytes_max: int, *, is_repeated: bool
    ) -> SiteResponse | None:
        """Return the response to a request for this path that has nothing of the client's request; None if it is larger
        than `bytes_max`. Call it in a `render_slot`. Raises problems.Problem or Saturated."""

    def pauses(self) -> Iterator[float]:
        """Yield the seconds before each repetition of a request for which the client had no thread. The limit of the
        whole time begins with the first."""

    async def refuse(self, scope: Scope, send: Send, problem: problems.Problem) -> None:
        """Send the problem in the form that the client expects."""


class _Key(NamedTuple):
    path: str
    host: str
    is_secure: bool
    language: str


class _Request(NamedTuple):
    """A request for a page that is at the site. The result of its task is None if the page cannot be shared."""

    task: "asyncio.Task[Page | None]"
    is_repeated: bool


class _Figures:
    """What this process has answered."""

    def __init__(self) -> None:
        self.answers = {"hit": 0, "stale": 0, "waited": 0, "passed": 0}
        self.ages = [0] * (len(AGES) + 1)
        self.age_sum = 0.0


class PageCache:
    """An ASGI application for HTTP in front of the site. `is_shared(path)`: whether the path is one of a shared page.
    Until `set_version` is called, every request is passed on."""

    def __init__(self, site: Site, is_shared: Callable[[str], bool], *, bytes_max: int) -> None:
        self._site = site
        self._is_shared = is_shared
        self._bytes_max = bytes_max
        self._figures = _Figures()
        # The least recently sent page first.
        self._pages: OrderedDict[_Key, Page] = OrderedDict()
        self._byte_count = 0
        self._renders: dict[_Key, _Request] = {}
        self._waiting: dict[tuple[_Key, str], asyncio.Task[Page | None]] = {}
        """Each client's wait until it has the result of a render, by the page and the client's subject."""
        self._unkept: dict[_Key, float] = {}
        """Until when requests for pages that cannot be kept are passed on."""
        self._version = ""
        self._number = 0
        """How many versions this process has known; 0: none yet."""
        self._replaced_at: dict[int, float] = {}
        """When each version was found to be replaced."""
        cache.register(self)

    # --- the version ----------------------------------------------------------------------------------------------

    def set_version(self, version: str) -> None:
        """Set the version that PostgreSQL has had at some moment of this call's caller. Called in any one thread."""
        if version == self._version and self._number:
            return
        # In this order: the event loop must find the time of every number that is not the present one.
        self._replaced_at[self._number] = monotonic()
        self._replaced_at.pop(self._number - _NUMBERS_MAX, None)
        self._version = version
        self._number += 1

    def clear(self) -> None:
        """Forget all pages, as if the process had just started (tests)."""
        self._pages.clear()
        self._unkept.clear()
        self._byte_count = 0

    # --- requests -------------------------------------------------------------------------------------------------

    def respond_sync(self, scope: Scope) -> RawResponse | None:
        """Return the response if a copy can be sent, else None. Counts nothing if it returns None."""
        request = Request(scope)
        key = self._key_of(request)
        if key is None:
            return None
        started_at = monotonic()
        page = self._find(key, started_at)
        if page is None or not _is_wanted(page, scope):
            return None
        address = client_address.address_from_scope(scope)
        if _is_limited(request, address):
            return None  # The site's proxy refuses it, in the form that the client expects.
        self._note_answer(key, page, scope, started_at)
        status, lines, body = page.respond(request.headers, started_at)
        request_id = request_id_of(request)
        seconds = monotonic() - started_at
        request_metrics.record_response(ROUTE, request.method, status, seconds)
        access_log.log(request.method, ROUTE, status, seconds, len(body), request_id, address)
        return status, b"%bx-request-id: %b\r\n" % (lines, request_id.encode("latin-1")), body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a copy, or a page that was rendered for this request and others, or pass the request on."""
        arrived_at = monotonic()
        request = Request(scope)
        key = self._key_of(request)
        if key is None or self._unkept.get(key, 0.0) > arrived_at:
            await self._site(scope, receive, send)
            return
        if not scope.get(rate_limits.COUNTED):
            wait = self._site.wait_seconds(scope)
            if wait is not None:
                await self._site.refuse(scope, send, problems.RateLimited(wait))
                return
            scope[rate_limits.COUNTED] = True
        page = self._find(key, arrived_at)
        if page is not None:
            if not _is_wanted(page, scope):
                if not self._is_fresh(page, arrived_at):
                    self._begin_render(key, scope)  # Perhaps it is the newer version that is wanted.
                await self._site(scope, receive, send)
                return
            self._note_answer(key, page, scope, arrived_at)
        else:
            try:
                page = await self._render_for(key, scope, arrived_at)
            except problems.Problem as problem:
                await self._site.refuse(scope, send, problem)
                return
            if page is None or not _is_wanted(page, scope):
                self._figures.answers["passed"] += 1
                await self._site(scope, receive, send)
                return
            self._count_answer("waited", page, monotonic())
        await _send(page, request, send)

    def _key_of(self, request: Request) -> _Key | None:
        """Return the key of the page that the request asks for; None if the site must answer it."""
        scope = request.scope
        if (
            not self._number
            or not self._bytes_max
            or request.method not in _READS
            or _version_of(scope["query_string"]) is None
            or not self._is_shared(request.path)
            or request.headers.has_any(_NOT_SHARED)
            or not request.has_allowed_host()
            # The API refuses clients that do not accept JSON.
            or (request.path.startswith(ROOT) and not request.is_plain())
        ):
            return None
        host = _host_of(request.headers.plain(b"host"))
        return None if host is None else _Key(request.path, host, request.is_secure(), language_of(request))

    # --- copies ---------------------------------------------------------------------------------------------------

    def _find(self, key: _Key, now: float) -> Page | None:
        """Return the copy if it may be sent now, and mark it as sent."""
        page = self._pages.get(key)
        if page is None:
            return None
        if not self._is_usable(page, now):
            self._remove(key)
            return None
        self._pages.move_to_end(key)
        return page

    def _note_answer(self, key: _Key, page: Page, scope: Scope, now: float) -> None:
        """Count an answer from memory. If the copy is stale, have the page rendered again."""
        is_fresh = self._is_fresh(page, now)
        self._count_answer("hit" if is_fresh else "stale", page, now)
        if not is_fresh:
            self._begin_render(key, scope)

    def _is_fresh(self, page: Page, now: float) -> bool:
        return now < page.fresh_until and (page.is_immutable or page.number == self._number)

    def _is_usable(self, page: Page, now: float) -> bool:
        if now >= page.usable_until:
            return False
        if page.is_immutable or page.number == self._number:
            return True
        return now < self._replaced_at.get(page.number, 0.0) + OUTDATED_SECONDS

    def _keep(self, key: _Key, page: Page) -> None:
        self._remove(key)
        self._pages[key] = page
        self._byte_count += page.byte_count
        while self._byte_count > self._bytes_max:
            self._remove(next(iter(self._pages)))

    def _remove(self, key: _Key) -> None:
        page = self._pages.pop(key, None)
        if page is not None:
            self._byte_count -= page.byte_count

    # --- renders --------------------------------------------------------------------------------------------------

    async def _render_for(self, key: _Key, scope: Scope, arrived_at: float) -> Page | None:
        """Return the page for a request that arrived then, from a render that is shared with others; None if it cannot
        be shared. Raises the problem of the render."""
        while True:
            try:
                # Shielded: the render belongs to all that wait for it.
                page = await asyncio.shield(self._begin_render(key, scope))
            except Saturated:
                continue  # That ends no client's own wait, which can begin now.
            except problems.Problem:
                page = self._find(key, monotonic())  # Perhaps another client's render was quicker.
                if page is None:
                    raise
                return page
            if page is None or page.begun >= arrived_at or self._is_usable(page, arrived_at):
                return page

    def _begin_render(self, key: _Key, scope: Scope) -> "asyncio.Task[Page | None]":
        """Return the request for this page that is at the site, which ends with Saturated if its client has no thread,
        or else the task that waits until this client can send one, begun now if there was none. A repeated request will
        probably end so again: this client's is to be sent next."""
        request = self._renders.get(key)
        if request is not None and not request.is_repeated:
            return request.task
        client = rate_limits.subject(client_address.address_from_scope(scope))
        task = self._waiting.get((key, client))
        if task is None:
            task = self._waiting[key, client] = asyncio.create_task(self._render_when_free(key, client, scope))
            task.add_done_callback(_retrieve_error)
        return task

    async def _render_when_free(self, key: _Key, client: str, scope: Scope) -> Page | None:
        """Render the page once this client has a free slot, a turn and a thread of the site, unless another client had
        them earlier. Raises problems.Problem."""
        asked_at = monotonic()
        pauses, is_repeated = self._site.pauses(), False
        try:
            while True:
                async with self._site.render_slot(scope):
                    while (other := self._renders.get(key)) is None:
                        page = self._pages.get(key)
                        if page is not None and page.begun > asked_at and self._is_usable(page, monotonic()):
                            return page
                        task = asyncio.create_task(self._request(key, scope, is_repeated))
                        task.add_done_callback(_retrieve_error)
                        self._renders[key] = _Request(task, is_repeated)
                        with suppress(Saturated):
                            return await task
                        pause = next(pauses, None)
                        if pause is None:
                            raise problems.Busy("Too many requests of your address are waiting.")
                        is_repeated = True
                        await asyncio.sleep(pause)
                with suppress(Saturated):
                    return await asyncio.shield(other.task)
        finally:
            del self._waiting[key, client]

    async def _request(self, key: _Key, scope: Scope, is_repeated: bool) -> Page | None:
        """Render the page in the only request for it. Raises problems.Problem or Saturated."""
        try:
            return await self._render(key, scope, is_repeated)
        finally:
            del self._renders[key]

    async def _render(self, key: _Key, scope: Scope, is_repeated: bool) -> Page | None:
        """Have the site render the page; keep it if its lifetime and the version allow it. Raises problems.Problem or
        Saturated."""
        begun, number = monotonic(), self._number
        response = await self._site.fetch(
            scope, key.path, key.host, key.language, self._bytes_max // _SHARE_MAX, is_repeated=is_repeated
        )
        lifetime = None
        if response is not None:
            lifetime = read_lifetime(response.status, response.headers, varies_by_language=is_negotiated())
        if response is None or lifetime is None:
            self._remove(key)
            if len(self._unkept) >= UNKEPT_MAX:
                self._unkept.clear()
            self._unkept[key] = monotonic() + UNKEPT_SECONDS
            return None
        before = self._pages.get(key)
        if before is not None and before.copies[encodings.IDENTITY] == response.body:
            copies = before.copies
        else:
            content_type = dict(response.headers).get(b"content-type", b"")
            copies = await asyncio.to_thread(encodings.compress, response.body, content_type)
        page = Page(
            copies,
            response.headers,
            lifetime,
            begun=begun,
            number=number,
            refresh_seconds=1.0 if self._is_just_changed(begun, number) else REFRESH_SECONDS,
            stale_seconds=STALE_SECONDS,
        )
        # A render that began before a change may have the old content.
        is_current = page.is_immutable or page.number == self._number
        if is_current and page.byte_count <= self._bytes_max // _SHARE_MAX and monotonic() < page.usable_until:
            self._keep(key, page)
        return page

    def _is_just_changed(self, begun: float, number: int) -> bool:
        return begun < self._replaced_at.get(number - 1, 0.0) + CHANGED_SECONDS

    # --- figures --------------------------------------------------------------------------------------------------

    def _count_answer(self, how: str, page: Page, now: float) -> None:
        figures, age = self._figures, now - page.begun
        figures.answers[how] += 1
        figures.ages[bisect_left(AGES, age)] += 1
        figures.age_sum += age

    @property
    def metrics(self) -> Collector:
        """The collector of this cache's metrics."""
        return _PageCacheCollector(self)


class _PageCacheCollector(Collector):
    def __init__(self, pages: PageCache) -> None:
        self._cache = pages

    def collect(self) -> Iterable[Metric]:
        figures = self._cache._figures
        answers = CounterMetricFamily(
            "fairgate_page_cache_answers",
            "Requests for shared pages: hit and stale were answered from memory, waited from a shared render, passed by"
            " the site alone.",
            labels=["how"],
        )
        for how, count in figures.answers.items():
            answers.add_metric([how], count)
        ages = HistogramMetricFamily("fairgate_page_cache_age_seconds", "The age of pages sent from memory.")
        buckets = zip((*map(str, AGES), "+Inf"), map(float, accumulate(figures.ages)), strict=True)
        ages.add_metric([], list(buckets), figures.age_sum)
        size = GaugeMetricFamily("fairgate_page_cache_bytes", "Memory of the kept pages, of all processes.")
        size.add_metric([], self._cache._byte_count)
        pages = GaugeMetricFamily("fairgate_page_cache_pages_count", "Kept pages, of all processes.")
        pages.add_metric([], len(self._cache._pages))
        return [answers, ages, size, pages]


def _retrieve_error(task: "asyncio.Task[Page | None]") -> None:
    if not task.cancelled():
        # So that asyncio does not log it; the next request tries again.
        task.exception()


def _is_limited(request: Request, address: str) -> bool:
    """Count the request; return whether it exceeds its rate limit. Static files that exist are not counted."""
    if request.path.startswith(settings.STATIC_URL):
        return False
    kind = kinds.kind_of(request.method, request.path)
    if kind is None:
        return False
    cookie = request.headers.plain(b"cookie")
    token = "" if cookie is None else kinds.token_of("", cookie.decode("latin-1"))
    return rate_limits.check_request(kind, address, token) is not None


def _version_of(query: bytes) -> bytes | None:
    """Return the version of the page that the query asks for: `v` with the value of an ETag; empty without a query.
    None for any other query."""
    if not query:
        return b""
    found = _VERSION_QUERY.fullmatch(query)
    return None if found is None else found[1]


def _is_wanted(page: Page, scope: Scope) -> bool:
    """Return whether the page has the version that the query asks for, if it asks for one."""
    version = _version_of(scope["query_string"])
    return not version or page.etag == b'"%b"' % version


@lru_cache(maxsize=256)
def _host_of(header: bytes | None) -> str | None:
    """Return the configured host that this `Host` names, as the site is asked for it; None if it only matches a
    pattern, of which there are endlessly many."""
    domain, _ = split_domain_port((header or b"").decode("latin-1"))
    configured = urlsplit(settings.SITE_URL)
    if domain == configured.hostname:
        return configured.netloc
    return domain if domain in settings.ALLOWED_HOSTS else None


async def _send(page: Page, request: Request, send: Send) -> None:
    status, lines, body = page.respond(request.headers, monotonic())
    headers = [(name, value) for name, _, value in (line.partition(b": ") for line in lines.split(b"\r\n")[:-1])]
    headers.append((b"x-request-id", request_id_of(request).encode("latin-1")))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else body})
