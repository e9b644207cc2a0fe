"""Password checks wait in `web` for their turn, while other requests go on."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.ticketing.server.test_site_proxy import server_in_front_of
from ticketing.server import password_queue

WAIT_SECONDS_MAX = 30
FORM = b"username=ann%40example.org&password=guessed"


class HashingSite:
    """A site that counts the password checks it has at once, answers them when `go_on` is set, and refuses the first
    `refusals` of them as busy."""

    def __init__(self) -> None:
        self.go_on, self.reached, self.lock = threading.Event(), threading.Semaphore(0), threading.Lock()
        self.running = self.most = self.refusals = self.received = 0
        self.bodies: list[bytes] = []
        self.answer_bytes = 0
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

            def do_GET(self) -> None:
                self.answer(200)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with site.lock:
                    site.received += 1
                    site.running += 1
                    site.most = max(site.most, site.running)
                    site.bodies.append(body)
                    is_refused = site.received <= site.refusals
                site.reached.release()
                if not is_refused:
                    site.go_on.wait(WAIT_SECONDS_MAX)
                with site.lock:
                    site.running -= 1
                if is_refused:
                    self.answer(503, ("X-Fairgate-Hashing", "busy"), ("Retry-After", "1"))
                else:
                    self.answer(200)

            def answer(self, status: int, *headers: tuple[str, str]) -> None:
                self.send_response(status)
                for name, value in (*headers, ("Content-Length", str(site.answer_bytes))):
                    self.send_header(name, value)
                self.end_headers()
                with suppress(OSError):  # The client has left.
                    self.wfile.write(bytes(site.answer_bytes))

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True


@pytest.fixture
def site() -> Iterator[HashingSite]:
    site = HashingSite()
    thread = threading.Thread(target=site.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    site.go_on.set()
    site.server.shutdown()
    site.server.server_close()
    thread.join(WAIT_SECONDS_MAX)


def send(port: int, method: str = "POST", path: str = "/accounts/log-in") -> HTTPResponse:
    connection = HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS_MAX)
    connection.request(method, path, FORM if method == "POST" else None)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response


def test_password_checks_are_forwarded_one_at_a_time_and_pages_meanwhile(site: HashingSite) -> None:
    with server_in_front_of(site.server.server_port) as port, ThreadPoolExecutor(6) as pool:
        checks = [pool.submit(send, port) for _ in range(6)]
        assert site.reached.acquire(timeout=WAIT_SECONDS_MAX)
        assert [send(port, "GET", "/accounts/log-in").status for _ in range(5)] == [200] * 5
        site.go_on.set()
        assert [check.result().status for check in checks] == [200] * 6
    assert (site.most, site.received) == (1, 6)
    assert set(site.bodies) == {FORM}


def test_a_check_that_the_site_refuses_is_repeated(site: HashingSite) -> None:
    site.refusals = 3
    site.go_on.set()
    with server_in_front_of(site.server.server_port) as port:
        response = send(port)
    assert response.status == 200
    assert site.received == 4
    assert site.bodies == [FORM] * 4


def test_a_check_that_the_site_always_refuses_gets_its_refusal(
    site: HashingSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(password_queue, "WAIT_SECONDS_MAX", 0.3)
    site.refusals = 1_000
    with server_in_front_of(site.server.server_port) as port:
        response = send(port)
    assert (response.status, response.headers["Retry-After"]) == (503, "1")
    assert response.headers["X-Fairgate-Hashing"] is None


def test_the_queue_is_bounded(site: HashingSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_queue, "WAITING_MAX", 0)
    with server_in_front_of(site.server.server_port) as port, ThreadPoolExecutor(1) as pool:
        first = pool.submit(send, port)
        assert site.reached.acquire(timeout=WAIT_SECONDS_MAX)
        refused = send(port)
        site.go_on.set()
        assert first.result().status == 200
    assert refused.status == 503
    assert refused.headers["Retry-After"]
    assert site.received == 1


def test_a_large_or_slow_body_takes_no_turn(site: HashingSite) -> None:
    site.go_on.set()
    with server_in_front_of(site.server.server_port) as port:
        slow: Any = HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS_MAX)
        slow.putrequest("POST", "/accounts/log-in")
        slow.putheader("Content-Length", "1000")
        slow.endheaders(b"username=")
        large: Any = HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS_MAX)
        large.putrequest("POST", "/accounts/log-in")
        large.putheader("Content-Length", str(72 * 1024 * 1024))
        large.endheaders()
        assert large.getresponse().status == 413
        assert send(port).status == 200
        slow.close()
        large.close()
    assert site.received == 1


def test_a_client_that_does_not_read_the_answer_keeps_no_turn(site: HashingSite) -> None:
    """A log-in page repeats the name that was typed, so its answer may be long."""
    site.answer_bytes = 32 * 1024 * 1024
    site.go_on.set()
    with server_in_front_of(site.server.server_port) as port:
        unread: Any = HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS_MAX)
        unread.request("POST", "/accounts/log-in", FORM)
        try:
            assert site.reached.acquire(timeout=WAIT_SECONDS_MAX)
            site.answer_bytes = 0
            assert send(port).status == 200
        finally:
            unread.close()


@pytest.mark.parametrize(
    ("clients", "ahead"),
    [(["one"] * 20, 2), ([f"20010db8abcd{subnet:04x}" for subnet in range(150)], 4)],
    ids=["of one address", "of one /48"],
)
def test_one_client_does_not_fill_the_line(clients: list[str], ahead: int) -> None:
    async def order_of_turns() -> list[str]:
        queue, turns, all_wait = password_queue.PasswordQueue(1), list[str](), asyncio.Event()

        async def check(client: str) -> None:
            if client == "another":
                all_wait.set()
            async with queue.turn(client):
                turns.append(client)
                await all_wait.wait()

        await asyncio.gather(*(check(client) for client in (*clients, "another")))
        return turns

    assert asyncio.run(order_of_turns()).index("another") == ahead
