"""One client leaves a thread of each process of the site to others, wherever its requests arrive."""

import asyncio
import ipaddress
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from apps.kernel.http import client_address
from apps.kernel.page_cache.cache import PageCache, Saturated
from apps.kernel.rate_limits import address_caps
from tests.kernel.page_cache.test_cache import PAGE as PUBLIC
from tests.kernel.page_cache.test_cache import ask, scope_of
from tests.support.event_loops import run_loop_once
from tests.ticketing.server.test_password_queue import send
from tests.ticketing.server.test_site_proxy import server_in_front_of
from ticketing.server import site_proxy
from ticketing.server.site_proxy import Forwarder
from ticketing.server.site_turns import leave_a_thread

WAIT_SECONDS_MAX = 10
PAGE, EXPORT = "/orders/find", "/admin/events/event/7/orders.csv"
BUSY, OTHER = "203.0.113.1", "203.0.113.2"


class Process:
    """A process of the site with two threads, in which requests wait until `go_on` is set."""

    def __init__(self, threads: int = 2) -> None:
        self.go_on, self.reached = threading.Event(), threading.Semaphore(0)
        self._respond = leave_a_thread(self._application, threads)
        self._pool = ThreadPoolExecutor(4)

    def _application(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        self.reached.release()
        self.go_on.wait(WAIT_SECONDS_MAX)
        start_response("200 OK", [])
        return [b"page"]

    def begin(self, address: str, path: str = PAGE, *, repeats: bool = True, shared_for: str = "") -> "Future[str]":
        """Send a request; the future has the status of its response."""
        environ = {
            "PATH_INFO": path,
            "REMOTE_ADDR": "127.0.0.1",
            **({"HTTP_X_FORWARDED_FOR": address} if address else {}),
            "HTTP_X_FAIRGATE_LANE": client_address.forward_token(),
            **({"HTTP_X_FAIRGATE_REPEATS": shared_for} if repeats else {}),
        }
        statuses: list[str] = []

        def respond() -> str:
            list(self._respond(environ, lambda status, headers: statuses.append(status)))
            return statuses[0]

        return self._pool.submit(respond)

    def begun(self, address: str, path: str = PAGE, *, repeats: bool = True, shared_for: str = "") -> "Future[str]":
        """Send a request that occupies a thread from now on."""
        request = self.begin(address, path, repeats=repeats, shared_for=shared_for)
        assert self.reached.acquire(timeout=WAIT_SECONDS_MAX)
        return request

    def end(self) -> None:
        self.go_on.set()
        self._pool.shutdown()


@pytest.fixture
def process() -> Iterator[Process]:
    process = Process()
    yield process
    process.end()


def is_refused(request: "Future[str]") -> bool:
    return request.result(WAIT_SECONDS_MAX) == "503 Service Unavailable"


@pytest.mark.parametrize("pair", [(BUSY, BUSY), ("2001:db8::1", "2001:db8:0:9::1")], ids=["address", "IPv6 /48"])
def test_the_last_thread_is_left_to_others(process: Process, pair: tuple[str, str]) -> None:
    first = process.begun(pair[0])
    assert is_refused(process.begin(pair[1]))
    other = process.begun(OTHER)
    process.go_on.set()
    assert not is_refused(first)
    assert not is_refused(other)
    assert not is_refused(process.begin(pair[1])), "the first one has ended"


def test_a_page_for_all_visitors_is_counted_for_the_client_that_asked(process: Process) -> None:
    process.begun("", shared_for=BUSY)
    assert is_refused(process.begin("", shared_for=BUSY))
    assert is_refused(process.begin(BUSY))
    process.begun("", shared_for=OTHER)


def test_a_request_that_is_not_repeated_is_not_refused(process: Process) -> None:
    process.begun(BUSY)
    process.begun(BUSY, repeats=False)


def test_exports_and_exempt_clients_are_not_counted(process: Process) -> None:
    process.begun(BUSY, EXPORT)
    process.begun(BUSY)
    process.begun("127.0.0.1")
    process.begun("127.0.0.1")


def test_a_raised_address_may_occupy_more(process: Process, settings: Any) -> None:
    settings.ADDRESS_CAPS_RAISED = [(ipaddress.ip_network("203.0.113.1"), 2)]
    address_caps.forget_settings()
    try:
        process.begun(BUSY)
        process.begun(BUSY)
    finally:
        address_caps.forget_settings()


def test_a_process_with_one_thread_refuses_nothing() -> None:
    process = Process(threads=1)
    process.begun(BUSY)
    process.begun(BUSY)
    process.end()


class SaturatedSite:
    """A site that refuses the first `refusals` requests as saturated, and all pages for all visitors that this client
    asked for. It records the connections of all requests."""

    def __init__(self, refusals: int = 0, client: str = "") -> None:
        self.connections: list[Any] = []
        self.headers: list[str | None] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

            def do_GET(self) -> None:
                site.connections.append(self.client_address)
                site.headers.append(self.headers["X-Fairgate-Repeats"])
                is_refused = len(site.connections) <= refusals or (bool(client) and site.headers[-1] == client)
                self.send_response(503 if is_refused else 200)
                if is_refused:
                    self.send_header("X-Fairgate-Saturated", "yes")
                self.send_header("Cache-Control", PUBLIC)
                self.send_header("Content-Length", "0")
                self.end_headers()

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    def __enter__(self) -> "SaturatedSite":
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join(WAIT_SECONDS_MAX)


def test_a_request_to_a_saturated_process_is_repeated_over_other_connections() -> None:
    with SaturatedSite(refusals=3) as site, server_in_front_of(site.server.server_port) as port:
        response = send(port, "GET", PAGE)
    assert response.status == 200
    assert response.headers["X-Fairgate-Saturated"] is None
    assert site.headers == [""] * 4
    assert len(set(site.connections)) == 4


def test_a_request_that_is_always_refused_gets_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_proxy, "WAIT_SECONDS_MAX", 0.2)
    with SaturatedSite(refusals=1_000) as site, server_in_front_of(site.server.server_port) as port:
        response = send(port, "GET", PAGE)
    assert response.status == 503
    assert response.headers["Retry-After"] is not None
    assert response.headers["X-Fairgate-Saturated"] is None


async def test_a_page_for_all_visitors_is_repeated_over_other_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    with SaturatedSite(refusals=2) as site:
        forwarder = Forwarder("127.0.0.1", site.server.server_port)

        async def fetch(*, is_repeated: bool) -> int:
            response = await forwarder.fetch(
                scope_of(client=BUSY), "/", "testserver", "en", 1_000, is_repeated=is_repeated
            )
            assert response is not None
            return response.status

        for is_repeated in (False, True):
            with pytest.raises(Saturated):
                await fetch(is_repeated=is_repeated)
        assert await fetch(is_repeated=True) == 200
        assert site.headers == [BUSY] * 3
        assert len(set(site.connections)) == 3
        await forwarder.close()
        assert next(forwarder.pauses()) > 0
        monkeypatch.setattr(site_proxy, "WAIT_SECONDS_MAX", 0.0)
        assert list(forwarder.pauses()) == []


async def test_a_client_without_a_thread_does_not_have_the_pages_of_others_refused() -> None:
    """The page that others wanted was rendered for this client, and they waited for seconds and got its refusal."""
    with SaturatedSite(client=BUSY) as site:
        forwarder = Forwarder("127.0.0.1", site.server.server_port)
        pages = PageCache(forwarder, lambda _: True, bytes_max=100_000)
        pages.set_version("1")
        first = asyncio.create_task(ask(pages, client=BUSY))
        while not site.headers:
            await run_loop_once()
        assert (await ask(pages, client=OTHER)).status == 200
        assert (await first).status == 200
        assert site.headers.count(OTHER) == 1
        await forwarder.close()
