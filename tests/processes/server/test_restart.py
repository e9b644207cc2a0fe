"""A restart without failed requests: SIGHUP replaces every worker under continuous calls."""

import contextlib
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.web_processes import WAIT_SECONDS_MAX, wait_until, web


class Site:
    """The site behind the web server: answers at once, but a POST only when `go_on` is set."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Semaphore(0), threading.Event()
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                site.reached.release()
                site.go_on.wait(WAIT_SECONDS_MAX)
                self.do_GET()

            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", "4")
                self.end_headers()
                self.wfile.write(b"done")

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    thread = threading.Thread(target=site.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield site
    site.go_on.set()
    site.server.shutdown()
    site.server.server_close()
    thread.join(WAIT_SECONDS_MAX)


class Client(threading.Thread):
    """Sends requests without a pause until it is stopped, on one connection for as long as the server keeps it, or on a
    new one each time; records every response that is not a success."""

    def __init__(self, port: int, path: str, *, keeps_connection: bool) -> None:
        super().__init__(daemon=True)
        self._port, self._path, self._keeps_connection = port, path, keeps_connection
        self.stopping = threading.Event()
        self.answered = 0
        self.asked_to_close = 0
        self.broken: list[str] = []

    def run(self) -> None:
        while not self.stopping.is_set():
            connection = HTTPConnection("127.0.0.1", self._port, timeout=WAIT_SECONDS_MAX)
            with contextlib.closing(connection):
                self._ask_on(connection)

    def _ask_on(self, connection: HTTPConnection) -> None:
        while not self.stopping.is_set():
            try:
                connection.request("GET", self._path, headers={} if self._keeps_connection else {"Connection": "close"})
                response = connection.getresponse()
                body = response.read()
            except (OSError, HTTPException) as error:
                self.broken.append(repr(error))
                return
            if response.status != 200:
                self.broken.append(f"{response.status} {body!r}")
            self.answered += 1
            if response.will_close:
                self.asked_to_close += self._keeps_connection
                return


def ask_in_thread(port: int, outcomes: list[str]) -> threading.Thread:
    def ask() -> None:
        connection = HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS_MAX)
        with contextlib.closing(connection):
            try:
                connection.request("POST", "/slow", b"{}")
                outcomes.append(f"{connection.getresponse().status}")
            except (OSError, HTTPException) as error:
                outcomes.append(repr(error))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread


def test_a_restart_interrupts_no_response(site: Site) -> None:
    """Clients on kept and on new connections, of the fast path and of the site behind it, and requests in progress when
    their worker is stopped: all of them receive their responses, and afterwards every worker is a new one."""
    with web(site.server.server_port, workers=2) as fast_path:
        old = fast_path.workers()
        clients = [
            Client(fast_path.port, path, keeps_connection=keeps_connection)
            for path in ("/healthz", "/a-page")
            for keeps_connection in (True, True, False)
        ]
        outcomes: list[str] = []
        slow = [ask_in_thread(fast_path.port, outcomes) for _ in range(8)]
        for _ in slow:
            assert site.reached.acquire(timeout=WAIT_SECONDS_MAX)
        for client in clients:
            client.start()
        wait_for_answers(clients)
        fast_path.replace_workers()
        wait_until(lambda: bool(fast_path.serving() - old), "a new worker serves beside the old ones")
        assert outcomes == []
        site.go_on.set()
        wait_until(
            lambda: not (fast_path.workers() & old) and len(fast_path.serving()) == 2, "every worker is a new one"
        )
        wait_for_answers(clients)
        for client in clients:
            client.stopping.set()
        for thread in [*clients, *slow]:
            thread.join(WAIT_SECONDS_MAX)
    assert [client.broken for client in clients] == [[] for _ in clients]
    assert outcomes == ["200"] * len(slow)
    # The control: clients on kept connections used a worker that ended, and moved because they were asked to close.
    assert any(client.asked_to_close for client in clients)


def wait_for_answers(clients: list[Client]) -> None:
    before = [client.answered for client in clients]
    wait_until(
        lambda: all(client.answered > count + 5 for client, count in zip(clients, before, strict=True)),
        f"every client receives responses: {[client.broken for client in clients]}",
    )
