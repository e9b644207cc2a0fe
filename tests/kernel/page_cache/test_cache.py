"""The page cache in front of a site that the test controls: what is kept, for whom, and for how long."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import brotli
import pytest

from apps.kernel import rate_limits
from apps.kernel.fastpath.request import Receive, Scope, Send
from apps.kernel.http import problems
from apps.kernel.page_cache import cache, languages
from apps.kernel.page_cache.cache import PageCache, Saturated, SiteResponse
from apps.kernel.page_cache.encodings import zstd
from apps.kernel.page_cache.page import Page
from tests.support.event_loops import run_loop_once

PAGE = "public, max-age=10, s-maxage=300, stale-while-revalidate=60"
EVENT = "/events/concert/"
VISITOR, BUSY = "203.0.113.1", "203.0.113.9"
BYTES_MAX = 100_000
WAIT_SECONDS = 0.05


@dataclass
class FakeSite:
    """Counts renders. `body` and `headers` are those of the next one; `go_on` delays it."""

    body: bytes = b"<p>page</p>" * 100
    headers: dict[str, str] = field(default_factory=lambda: {"cache-control": PAGE})
    status: int = 200
    rendered: list[tuple[str, str]] = field(default_factory=list)
    forwarded: list[str] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    problem: problems.Problem | None = None
    wait: float | None = None
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    slots: dict[str, asyncio.Semaphore] = field(default_factory=dict)
    """By the client's address; without an entry, a client has as many as it needs."""
    saturated: set[str] = field(default_factory=set)
    """Addresses of clients that have no thread."""
    may_refuse: asyncio.Event = field(default_factory=asyncio.Event)
    repeats_max: int = 1_000
    requests: list[tuple[str, bool]] = field(default_factory=list)
    """The client's address of every request for a shared page, and whether it was a repetition."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.forwarded.append(scope["path"])
        await send({"type": "http.response.start", "status": 299, "headers": []})
        await send({"type": "http.response.body", "body": b"forwarded"})

    def wait_seconds(self, scope: Scope) -> float | None:
        return self.wait

    @asynccontextmanager
    async def render_slot(self, scope: Scope) -> AsyncIterator[None]:
        slots = self.slots.get(scope["client"][0])
        if slots is None:
            yield
            return
        try:
            await asyncio.wait_for(slots.acquire(), WAIT_SECONDS)
        except TimeoutError:
            raise problems.Busy from None
        try:
            yield
        finally:
            slots.release()

    def pauses(self) -> Iterator[float]:
        yield from [0.01] * self.repeats_max

    async def fetch(
        self, scope: Scope, path: str, host: str, language: str, bytes_max: int, *, is_repeated: bool
    ) -> SiteResponse | None:
        client = scope["client"][0]
        self.requests.append((client, is_repeated))
        if client in self.saturated:
            self.reached.set()
            await self.may_refuse.wait()
            raise Saturated
        self.rendered.append((path, language))
        headers = [(b"content-type", b"text/html; charset=utf-8")]
        headers += [(name.encode(), value.encode()) for name, value in self.headers.items()]
        response = SiteResponse(self.status, headers, self.body)
        self.reached.set()
        await self.go_on.wait()
        if self.problem is not None:
            raise self.problem
        return response if len(response.body) <= bytes_max else None

    async def refuse(self, scope: Scope, send: Send, problem: problems.Problem) -> None:
        self.refused.append(problem.status)
        await send({"type": "http.response.start", "status": problem.status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@dataclass
class Clock:
    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(cache, "monotonic", clock)
    return clock


@pytest.fixture
async def site() -> FakeSite:
    site = FakeSite()
    site.go_on.set()
    site.may_refuse.set()
    return site


@pytest.fixture
def pages(site: FakeSite, clock: Clock) -> PageCache:
    pages = PageCache(site, lambda path: not path.startswith("/orders/"), bytes_max=BYTES_MAX)
    pages.set_version("1")
    clock.now += 60
    return pages


def scope_of(
    path: str = EVENT, method: str = "GET", query: str = "", client: str = VISITOR, **headers: str
) -> dict[str, Any]:
    pairs = {"host": "testserver", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return {
        "type": "http", "method": method, "path": path, "query_string": query.encode(), "scheme": "http",
        "client": (client, 1), "headers": [(name.encode(), value.encode()) for name, value in pairs.items()],
    }  # fmt: skip


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


async def ask(pages: PageCache, *args: str, **headers: str) -> Answer:
    """Return the response, from memory if possible, as our own server asks for it."""
    scope = scope_of(*args, **headers)
    at_once = pages.respond_sync(scope)
    if at_once is not None:
        status, lines, body = at_once
        named = [line.partition(b": ") for line in lines.split(b"\r\n")[:-1]]
        return Answer(status, {name.decode(): value.decode() for name, _, value in named}, body)
    messages: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("a page has no body to receive")

    async def send(message: Any) -> None:
        messages.append(message)

    await pages(scope, receive, send)
    start, body = messages
    return Answer(start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, body["body"])


async def test_a_page_is_rendered_once_and_compressed_for_each_client(pages: PageCache, site: FakeSite) -> None:
    for coding, expand in {"br": brotli.decompress, "zstd": zstd.decompress, "gzip": gzip.decompress}.items():
        answer = await ask(pages, accept_encoding=f"{coding}, identity;q=0.5")
        assert (answer.headers["content-encoding"], expand(answer.body)) == (coding, site.body)
        assert answer.headers["etag"].startswith("W/")
        assert answer.headers["vary"] == "Accept-Encoding"
    plain = await ask(pages, accept_encoding="br;q=0")
    assert plain.body == site.body
    assert "content-encoding" not in plain.headers
    assert int(plain.headers["content-length"]) == len(site.body)
    assert len(plain.headers["x-request-id"]) > 12
    for known in (plain.headers["etag"], f"W/{plain.headers['etag']}", "*"):
        unchanged = await ask(pages, if_none_match=known)
        assert (unchanged.status, unchanged.body) == (304, b"")
        assert unchanged.headers["etag"] == plain.headers["etag"]
    assert len(site.rendered) == 1
    assert site.forwarded == []


async def test_a_page_with_its_version_in_the_address_is_sent_only_in_that_version(
    pages: PageCache, site: FakeSite
) -> None:
    """The page for choosing tickets names the plan's newest version, which the copy may not have yet."""
    old, new = "0" * 24, "1" * 24
    site.headers["etag"] = f'"{old}"'
    assert (await ask(pages, EVENT, "GET", f"v={new}")).body == b"forwarded"
    for query in (f"v={old}", "", f"v={old}"):
        assert (await ask(pages, EVENT, "GET", query)).body == site.body
    assert (len(site.rendered), len(site.forwarded)) == (1, 1)
    site.headers["etag"], site.body = f'"{new}"', b"new"
    assert (await ask(pages, EVENT, "GET", f"v={new}")).body == b"forwarded"
    await drain(pages)
    assert len(site.rendered) == 1, "no version that a client invents causes a render"
    pages.set_version("2")
    assert (await ask(pages, EVENT, "GET", f"v={new}")).body == b"forwarded"
    await drain(pages)
    assert (await ask(pages, EVENT, "GET", f"v={new}")).body == b"new"
    assert len(pages._pages) == 1


async def test_a_head_request_gets_the_headers(pages: PageCache, site: FakeSite) -> None:
    answer = await ask(pages, EVENT, "HEAD")
    assert (answer.status, answer.headers["content-length"]) == (200, str(len(site.body)))
    assert answer.body == b""


@pytest.mark.parametrize(
    "scope",
    [
        scope_of(query="q=a"),
        scope_of(method="POST"),
        scope_of("/orders/1"),
        scope_of(authorization="Bearer a"),
        scope_of(range="bytes=0-10"),
        scope_of(if_match='"a"'),
        scope_of(host="attacker.example"),
        scope_of("/api/events", accept="text/html"),
    ],
)
async def test_other_requests_are_passed_on(scope: Scope, pages: PageCache, site: FakeSite) -> None:
    await ask(pages)
    assert pages.respond_sync(scope) is None
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await pages(scope, None, send)
    assert sent[0]["status"] == 299
    assert len(site.rendered) == 1


async def test_requests_that_wait_share_one_render(pages: PageCache, site: FakeSite) -> None:
    site.go_on.clear()
    tasks = [asyncio.create_task(ask(pages)) for _ in range(50)]
    await site.reached.wait()
    site.go_on.set()
    assert {answer.body for answer in await asyncio.gather(*tasks)} == {site.body}
    assert len(site.rendered) == 1


async def test_a_stale_page_is_sent_while_it_is_rendered_again(pages: PageCache, site: FakeSite, clock: Clock) -> None:
    first = await ask(pages)
    clock.now += cache.REFRESH_SECONDS
    site.body, old = b"<p>new</p>" * 50, site.body
    site.go_on.clear()
    site.reached.clear()
    for _ in range(5):
        assert (await ask(pages)).body == old
    await site.reached.wait()
    assert len(site.rendered) == 2
    site.go_on.set()
    await drain(pages)
    newer = await ask(pages)
    assert newer.body == site.body
    assert newer.headers["etag"] != first.headers["etag"]


async def test_a_page_without_visitors_for_a_while_is_rendered_for_the_next(
    pages: PageCache, site: FakeSite, clock: Clock
) -> None:
    await ask(pages)
    site.body = b"new"
    clock.now += cache.REFRESH_SECONDS + cache.STALE_SECONDS
    assert (await ask(pages)).body == b"new"


async def test_no_page_is_sent_after_its_lifetime(pages: PageCache, site: FakeSite, clock: Clock) -> None:
    """Sales open in two seconds."""
    site.headers["cache-control"] = "public, max-age=0, s-maxage=2, stale-while-revalidate=0"
    await ask(pages)
    clock.now += 1.5
    assert (await ask(pages)).headers["cache-control"] == "public, max-age=0, s-maxage=1, stale-while-revalidate=0"
    clock.now += 0.5
    site.body = b"open"
    assert (await ask(pages)).body == b"open"


async def test_a_request_near_a_moment_gets_a_render_that_began_after_it(
    pages: PageCache, site: FakeSite, clock: Clock
) -> None:
    """The page may not be kept. A request that arrives during a render could be the first after the opening."""
    site.headers["cache-control"] = "public, max-age=0, s-maxage=0, stale-while-revalidate=0"
    site.go_on.clear()
    first = asyncio.create_task(ask(pages))
    await site.reached.wait()
    clock.now += 0.1
    site.body, closed = b"open", site.body
    late = [asyncio.create_task(ask(pages)) for _ in range(20)]
    await run_loop_once()
    site.go_on.set()
    assert (await first).body == closed
    assert {answer.body for answer in await asyncio.gather(*late)} == {b"open"}
    assert len(site.rendered) == 2


async def test_a_change_ends_every_copy_within_a_second(pages: PageCache, site: FakeSite, clock: Clock) -> None:
    old = (await ask(pages)).body
    pages.set_version("2")
    site.body = b"new"
    site.go_on.clear()
    clock.now += 0.9
    assert (await ask(pages)).body == old
    pages.set_version("3")  # A later change does not extend the time.
    clock.now += 0.2
    waiting = asyncio.create_task(ask(pages))
    await run_loop_once()
    site.go_on.set()
    assert (await waiting).body == b"new"


async def test_a_change_that_commits_during_a_render_does_not_leave_the_old_page_behind(
    pages: PageCache, site: FakeSite, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """render reads the old price | change commits | the version is read | render ends | a visitor comes"""

    async def visit_after_the_race() -> bytes:
        pages.clear()
        site.body, site.go_on, site.reached = b"old price", asyncio.Event(), asyncio.Event()
        visit = asyncio.create_task(ask(pages))
        await site.reached.wait()
        site.body = b"new price"
        pages.set_version(f"after {len(site.rendered)} renders")
        site.go_on.set()
        await visit
        clock.now += cache.OUTDATED_SECONDS
        return (await ask(pages)).body

    assert await visit_after_the_race() == b"new price"
    # Control: stored with the version that is known when the render ends, the old page stays.
    monkeypatch.setattr(cache, "Page", lambda *args, **values: Page(*args, **{**values, "number": pages._number}))
    assert await visit_after_the_race() == b"old price"


async def test_a_page_just_after_a_change_is_soon_rendered_again(
    pages: PageCache, site: FakeSite, clock: Clock
) -> None:
    """Announcements in Redis are written after the commit that the version shows."""
    pages.set_version("2")
    await ask(pages)
    clock.now += 1
    await ask(pages)
    await drain(pages)
    assert len(site.rendered) == 2


@pytest.mark.parametrize(
    "headers",
    [
        {"cache-control": "private, no-store"},
        {"cache-control": PAGE, "set-cookie": "sessionid=a"},
        {"cache-control": PAGE, "vary": "Cookie"},
    ],
)
async def test_what_is_personal_is_passed_on_with_the_clients_own_headers(
    headers: dict[str, str], pages: PageCache, site: FakeSite, clock: Clock
) -> None:
    site.headers = headers
    for _ in range(3):
        assert (await ask(pages)).body == b"forwarded"
    assert len(site.rendered) == 1, "for some seconds no request waits for a render that cannot be shared"
    site.headers = {"cache-control": PAGE}
    clock.now += cache.UNKEPT_SECONDS
    assert (await ask(pages)).body == site.body


async def test_the_memory_is_bounded_and_the_least_recently_sent_page_goes(pages: PageCache, site: FakeSite) -> None:
    site.headers["etag"] = '"same"'
    site.body = bytes(range(256)) * 50
    for number in range(20):
        site.body = site.body[1:] + b"x"
        await ask(pages, f"/events/event-{number}/")
        await ask(pages, "/events/event-0/")
        assert pages._byte_count <= BYTES_MAX
        assert pages._byte_count == sum(page.byte_count for page in pages._pages.values())
    assert 2 < len(pages._pages) < 10
    assert "/events/event-0/" in {key.path for key in pages._pages}
    site.body = b"x" * BYTES_MAX
    assert (await ask(pages, "/events/large/")).body == b"forwarded"


async def test_a_render_that_fails_refuses_the_requests_that_waited_for_it(pages: PageCache, site: FakeSite) -> None:
    site.problem = problems.Busy("The site cannot take this now.")
    assert {answer.status for answer in await asyncio.gather(*(ask(pages) for _ in range(5)))} == {503}
    assert len(site.rendered) == 1
    site.problem = None
    assert (await ask(pages)).status == 200


async def test_a_visitor_who_exceeds_the_limit_is_refused(
    pages: PageCache, site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask(pages)
    monkeypatch.setattr(rate_limits, "check_request", lambda *_: 7.0)
    site.wait = 7.0
    assert (await ask(pages)).status == 429
    assert (await ask(pages, "/static/page.css")).status == 429, "a file that has not been served yet"


async def test_nothing_is_kept_before_the_version_is_known(site: FakeSite, clock: Clock) -> None:
    pages = PageCache(site, lambda _: True, bytes_max=BYTES_MAX)
    assert (await ask(pages)).body == b"forwarded"
    assert (site.rendered, pages._byte_count) == ([], 0)


async def test_files_that_never_change_outlive_every_change(pages: PageCache, site: FakeSite, clock: Clock) -> None:
    site.headers["cache-control"] = "max-age=315360000, public, immutable"
    site.headers["last-modified"] = "Thu, 26 Nov 2026 10:00:00 GMT"
    await ask(pages, "/static/page.0123.css")
    pages.set_version("2")
    clock.now += 10_000
    answer = await ask(pages, "/static/page.0123.css")
    assert answer.headers["cache-control"] == "max-age=315360000, public, immutable"
    again = await ask(pages, "/static/page.0123.css", if_modified_since="Thu, 26 Nov 2026 10:00:00 GMT")
    assert (answer.status, again.status, len(site.rendered)) == (200, 304, 1)


async def test_each_language_is_a_page_of_its_own(
    pages: PageCache, site: FakeSite, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.LANGUAGES = [("en", "English"), ("de", "German")]
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.middleware.locale.LocaleMiddleware"]
    languages._choose.cache_clear()
    monkeypatch.setattr(languages, "_is_negotiated_once", lambda: True)
    site.headers["vary"] = "Accept-Language"
    for accepted in ("de-AT,de;q=0.9,en;q=0.5", "de", "fr,en;q=0.8", "fr", ""):
        answer = await ask(pages, accept_language=accepted)
        assert answer.headers["vary"] == "Accept-Encoding, Accept-Language"
    await ask(pages, accept_language="en", cookie=f"{settings.LANGUAGE_COOKIE_NAME}=de")
    assert site.rendered == [(EVENT, "de"), (EVENT, "en")]
    languages._choose.cache_clear()


async def test_a_client_without_a_free_slot_delays_no_render_of_others(
    pages: PageCache, site: FakeSite, clock: Clock
) -> None:
    """A, whose slots are all taken, asks for the page first
    B asks, has a slot, and the page is rendered for it
    A gets that copy when a slot comes too late, and 503 only if there is no copy
    """
    site.slots[BUSY] = asyncio.Semaphore(0)
    first = asyncio.create_task(ask(pages, client=BUSY))
    await run_loop_once()
    assert (await ask(pages)).status == 200
    assert site.rendered == [(EVENT, "")]
    assert ((await first).status, site.rendered) == (200, [(EVENT, "")])
    assert (await ask(pages, "/", client=BUSY)).status == 503
    # A copy that is stale is refreshed in a slot of a client that has one.
    clock.now += cache.REFRESH_SECONDS
    assert (await ask(pages, client=BUSY)).status == 200
    assert (await ask(pages)).status == 200
    await run_loop_once()
    assert len(site.rendered) == 2
    # A slot that comes in time finds what was rendered meanwhile, and renders nothing.
    clock.now += 60
    second = asyncio.create_task(ask(pages, client=BUSY))
    await run_loop_once()
    clock.now += 0.01
    assert (await ask(pages)).status == 200
    site.slots[BUSY].release()
    assert ((await second).status, len(site.rendered)) == (200, 3)
    assert (pages._renders, pages._waiting) == ({}, {})


async def test_a_client_without_a_thread_delays_and_refuses_no_render_of_others(
    pages: PageCache, site: FakeSite
) -> None:
    """A asks first, and has no thread
    B asks while A's request is at the site, which refuses it
    the page is rendered for B, and A's request is not repeated meanwhile
    both get this page
    """
    site.saturated.add(BUSY)
    site.slots[BUSY] = asyncio.Semaphore(1)
    site.may_refuse.clear()
    site.go_on.clear()
    first = asyncio.create_task(ask(pages, client=BUSY))
    await site.reached.wait()
    second = asyncio.create_task(ask(pages))
    await run_loop_once()
    assert site.requests == [(BUSY, False)], "one render of a page at a time"
    site.may_refuse.set()
    while not site.rendered:
        await run_loop_once()
        assert not second.done()
    while site.slots[BUSY].locked():  # Until its pause ends.
        await run_loop_once()
    assert site.requests[-1] == (VISITOR, False)
    site.go_on.set()
    assert [(await task).status for task in (first, second)] == [200, 200]
    assert (len(site.rendered), site.requests[-1]) == (1, (VISITOR, False))
    assert (pages._renders, pages._waiting) == ({}, {})


async def test_requests_of_a_client_without_a_thread_are_repeated_and_then_refused(
    pages: PageCache, site: FakeSite
) -> None:
    site.saturated.add(BUSY)
    site.repeats_max = 3
    assert {answer.status for answer in await asyncio.gather(*(ask(pages, client=BUSY) for _ in range(5)))} == {503}
    assert site.requests == [(BUSY, False)] + [(BUSY, True)] * 3
    assert (pages._renders, pages._waiting) == ({}, {})
    waiting = asyncio.create_task(ask(pages, client=BUSY))
    while len(site.requests) < 5:
        await run_loop_once()
    site.saturated.clear()  # One of its threads is free again.
    assert (await waiting).status == 200
    assert (len(site.rendered), site.requests[-1]) == (1, (BUSY, True))


async def test_a_stale_page_is_rendered_again_for_a_client_that_has_a_thread(
    pages: PageCache, site: FakeSite, clock: Clock
) -> None:
    old = (await ask(pages)).body
    clock.now += cache.REFRESH_SECONDS
    site.saturated.add(BUSY)
    site.body = b"new"
    site.reached.clear()
    assert (await ask(pages, client=BUSY)).body == old
    await site.reached.wait()
    while pages._renders:
        await run_loop_once()
    clock.now += 0.01
    for client in (BUSY, VISITOR):
        assert (await ask(pages, client=client)).body == old
    await drain(pages)
    assert (await ask(pages, client=BUSY)).body == b"new"
    assert len(site.rendered) == 2


async def test_a_visit_during_a_repeated_request_has_the_page_rendered_next(
    pages: PageCache, site: FakeSite, clock: Clock
) -> None:
    """The copy is stale. A's request has been refused once and is at the site again
    B gets the copy
    the site refuses A's request; B's is sent without another visit
    """
    await ask(pages)
    clock.now += cache.REFRESH_SECONDS
    site.saturated.add(BUSY)
    site.may_refuse = first_refusal = asyncio.Event()
    site.reached.clear()
    assert (await ask(pages, client=BUSY)).status == 200
    await site.reached.wait()
    site.may_refuse = second_refusal = asyncio.Event()
    first_refusal.set()
    while site.requests[-1] != (BUSY, True):
        await run_loop_once()
    clock.now += 0.01
    assert (await ask(pages)).status == 200
    await run_loop_once()
    assert site.requests[-1] == (BUSY, True)
    second_refusal.set()
    await drain(pages)
    assert site.requests[-1] == (VISITOR, False)
    assert len(site.rendered) == 2


async def drain(pages: PageCache) -> None:
    """Wait for the renders in the background."""
    while tasks := [*pages._waiting.values(), *(request.task for request in pages._renders.values())]:
        await asyncio.gather(*tasks, return_exceptions=True)
