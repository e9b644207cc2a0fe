"""The forwarder between real sockets, with a server in front and a site behind: messages are forwarded unchanged."""

import contextlib
import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import uvicorn
from django.conf import settings
from django.test import Client

from apps.events.models import Role
from tests.support.factories import make_member, make_organizer
from tests.support.web_processes import wait_until
from ticketing.devserver.ports import free_port
from ticketing.server import request_body
from ticketing.server.request_body import BODY_BYTES_MAX, UPLOAD_BYTES_MAX
from ticketing.server.site_proxy import Forwarder

WAIT_SECONDS_MAX = 10


@dataclass
class Site:
    """The site behind: responds by path, and records its requests."""

    port: int
    requests: list[tuple[str, str, dict[str, list[str]], bytes]] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)
    client_left: threading.Event = field(default_factory=threading.Event)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the tests read `requests`."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): self.headers.get_all(name, []) for name in self.headers}
        self.site.requests.append((self.command, self.path, headers, body))
        answers: dict[str, Callable[[], None]] = {
            "/cookies": self._cookies,
            "/redirect": lambda: self._answer(302, [("Location", "/elsewhere?a=1"), ("Content-Length", "0")]),
            "/unchanged": lambda: self._answer(304, [("ETag", '"1"')]),
            "/gzip": self._gzip,
            "/chunks": self._chunks,
            "/waits": self._waits,
            "/breaks": self._breaks,
            "/hangs-up": self._close,
        }
        answers.get(self.path.split("?")[0], self._echo)()

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = _serve

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _echo(self) -> None:
        self._answer(200, [("Content-Type", "text/plain"), ("Content-Length", "5")], b"hello")

    def _cookies(self) -> None:
        cookies = [("Set-Cookie", "a=1; Path=/"), ("Set-Cookie", "b=2; HttpOnly"), ("Set-Cookie", "c=3")]
        self._answer(200, [*cookies, ("Connection", "X-Private"), ("X-Private", "1"), ("Content-Length", "0")])

    def _gzip(self) -> None:
        body = gzip.compress(b"packed " * 1000, mtime=0)
        self._answer(200, [("Content-Encoding", "gzip"), ("Content-Length", str(len(body)))], body)

    def _chunks(self) -> None:
        self._answer(200, [("Transfer-Encoding", "chunked")])
        self.wfile.write(b"5\r\nfirst\r\n")
        self.wfile.flush()
        self.site.go_on.wait(WAIT_SECONDS_MAX)
        self.wfile.write(b"6\r\nsecond\r\n0\r\n\r\n")

    def _waits(self) -> None:
        self._answer(200, [("Content-Length", "100")], b"only this")
        self.connection.settimeout(WAIT_SECONDS_MAX)
        if self.connection.recv(1) == b"":
            self.site.client_left.set()
        self.close_connection = True

    def _breaks(self) -> None:
        self._answer(200, [("Content-Length", "100")], b"only this")
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _close(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def site() -> Iterator[Site]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    site = Site(server.server_port)
    server.RequestHandlerClass = type("Handler", (_Handler,), {"site": site})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    site.go_on.set()
    server.shutdown()
    server.server_close()
    thread.join(WAIT_SECONDS_MAX)


@contextlib.contextmanager
def server_in_front_of(port: int) -> Iterator[int]:
    """Serve a forwarder to that port by uvicorn; yields its own port."""
    forwarder = Forwarder("127.0.0.1", port)

    async def application(scope, receive, send) -> None:
        if scope["type"] == "http":
            await forwarder(scope, receive, send)
            return
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await forwarder.close()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return

    server = uvicorn.Server(
        uvicorn.Config(
            application,
            lifespan="on",
            log_level="error",
            access_log=False,
            ws="none",
            server_header=False,
            forwarded_allow_ips="",
        )
    )
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            assert thread.is_alive()
            thread.join(0.01)
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join(WAIT_SECONDS_MAX)


@pytest.fixture
def front(site: Site) -> Iterator[int]:
    with server_in_front_of(site.port) as port:
        yield port


def ask(port: int, method: str, path: str, body: bytes | None = None, **headers: str):
    """Send one request. Returns status, headers as a list, and the body without decompression."""
    connection = HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS_MAX)
    with contextlib.closing(connection):
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, [(name.lower(), value) for name, value in answer.getheaders()], answer.read()


def speak(port: int, text: bytes) -> bytes:
    """Send raw bytes. Returns everything received until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS_MAX) as connection:
        connection.sendall(text)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_path_query_host_and_method_are_forwarded_unchanged(front: int, site: Site) -> None:
    path = "/a%2Fb//../c%20d/%C3%A9?x=%26&x=2&empty="
    assert ask(front, "PUT", path, b"body", Host="tickets.example:81")[0] == 200
    method, target, headers, body = site.requests[0]
    assert (method, target, body) == ("PUT", path, b"body")
    assert headers["host"] == headers["x-forwarded-host"] == ["tickets.example:81"]


def test_a_request_without_a_host_is_malformed(front: int, site: Site) -> None:
    assert speak(front, b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert site.requests == []


def test_the_clients_claims_about_proxies_are_replaced(front: int, site: Site) -> None:
    speak(
        front,
        b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6\r\nX_Forwarded_For: 6.6.6.6\r\nForwarded: for=6.6.6.6"
        b"\r\nX-Forwarded-Proto: https\r\nX-Real-IP: 6.6.6.6\r\nX-Private: 1\r\nX-Request-Id: bad id\r\n"
        b"Connection: close, x-private\r\n\r\n",
    )
    headers = site.requests[0][2]
    assert headers["x-forwarded-for"] == ["127.0.0.1"]
    assert headers["x-forwarded-proto"] == ["http"]
    assert len(headers["x-request-id"][0]) == 32
    assert not {"forwarded", "x-real-ip", "x_forwarded_for", "x-private"} & headers.keys()


@pytest.mark.parametrize("option", ["content-length", "host", "close, Content-Length, Host", "transfer-encoding"])
def test_a_connection_header_cannot_remove_what_frames_or_routes_the_request(
    front: int, site: Site, option: str
) -> None:
    head = f"POST / HTTP/1.1\r\nHost: a\r\nConnection: {option}\r\nConnection: close\r\n"
    speak(front, head.encode() + b"Content-Length: 4\r\n\r\nbody")
    speak(front, head.encode() + b"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n")
    for _, _, headers, body in site.requests:
        assert (headers["content-length"], headers["host"], body) == (["4"], ["a"], b"body")
    assert len(site.requests) == 2


def test_a_request_is_forwarded_when_its_body_has_arrived() -> None:
    """The site's server gives a request a thread as soon as it has the headers."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.settimeout(WAIT_SECONDS_MAX)
        port = stack.enter_context(server_in_front_of(listener.getsockname()[1]))
        slow, quick = (
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS_MAX)) for _ in "12"
        )
        slow.sendall(b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nsome")
        quick.sendall(b"GET /quick HTTP/1.1\r\nHost: a\r\n\r\n")
        assert first_request(stack, listener).startswith(b"GET /quick ")
        slow.sendall(b" more")
        received = first_request(stack, listener)
        assert received.startswith(b"POST /slow ")
        assert received.endswith(b"some more")
        listener.close()  # The requests are not answered: they end with their connections.


def first_request(stack: contextlib.ExitStack, listener: socket.socket) -> bytes:
    """Accept the next connection, and return the request on it."""
    connection, _ = listener.accept()
    stack.enter_context(connection)
    received = b""
    while not received.endswith((b"\r\n\r\n", b"some more")) or (b"POST" in received and b"more" not in received):
        received += connection.recv(65_536)
    return received


def test_the_clients_request_id_is_kept(front: int, site: Site) -> None:
    ask(front, "GET", "/", X_Request_Id="0123456789abcdef")
    assert site.requests[0][2]["x-request-id"] == ["0123456789abcdef"]


def test_all_cookies_are_forwarded_and_connection_headers_are_not(front: int) -> None:
    _, headers, _ = ask(front, "GET", "/cookies")
    assert [value for name, value in headers if name == "set-cookie"] == ["a=1; Path=/", "b=2; HttpOnly", "c=3"]
    names = [name for name, _ in headers]
    assert "x-private" not in names
    assert "server" not in names
    assert names.count("date") == 1


def test_redirects_are_not_followed(front: int) -> None:
    status, headers, body = ask(front, "GET", "/redirect")
    assert (status, dict(headers)["location"], body) == (302, "/elsewhere?a=1", b"")


def test_not_modified_has_its_etag_and_no_body(front: int) -> None:
    status, headers, body = ask(front, "GET", "/unchanged", If_None_Match='"1"')
    assert (status, dict(headers)["etag"], body) == (304, '"1"', b"")
    assert "transfer-encoding" not in dict(headers)


def test_head_has_the_length_and_no_body(front: int) -> None:
    status, headers, body = ask(front, "HEAD", "/")
    assert (status, dict(headers)["content-length"], body) == (200, "5", b"")


def test_a_compressed_body_stays_compressed(front: int) -> None:
    _, headers, body = ask(front, "GET", "/gzip", Accept_Encoding="gzip")
    assert dict(headers)["content-encoding"] == "gzip"
    assert int(dict(headers)["content-length"]) == len(body)
    assert gzip.decompress(body) == b"packed " * 1000


def test_the_sites_response_is_streamed(front: int, site: Site) -> None:
    with contextlib.closing(HTTPConnection("127.0.0.1", front, timeout=WAIT_SECONDS_MAX)) as connection:
        connection.request("GET", "/chunks")
        answer = connection.getresponse()
        assert answer.read1() == b"first"  # The site still waits for `go_on`.
        site.go_on.set()
        assert answer.read() == b"second"


@pytest.fixture
def staff(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every session is that of a staff account of its own. The thread that finds it may have a connection already."""
    monkeypatch.setattr(request_body, "find_uploader", hash)


@pytest.mark.usefixtures("staff")
def test_a_large_upload_of_staff_goes_through_whole(front: int, site: Site) -> None:
    body = bytes(range(256)) * 8192
    assert ask(front, "POST", "/", body)[0] == 413
    assert site.requests == []
    assert ask(front, "POST", "/admin/upload", body)[0] == 200
    assert site.requests[0][3] == body
    assert site.requests[0][2]["connection"] == ["close"], "the connection is not reused"


@pytest.mark.usefixtures("staff")
def test_an_account_sends_one_upload_at_a_time(front: int, site: Site) -> None:
    """While an account's upload arrives slowly, its next one is refused, and another account's is not."""
    body = b"x" * (BODY_BYTES_MAX + 1)
    head = (
        f"POST /admin/upload HTTP/1.1\r\nHost: a\r\nCookie: sessionid=aaaaaaaa\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", front), timeout=WAIT_SECONDS_MAX) as connection:
        connection.sendall(head.encode())
        again = {"Cookie": "sessionid=aaaaaaaa"}
        wait_until(lambda: ask(front, "POST", "/admin/upload", body, **again)[0] == 503, "the next one is refused")
        assert ask(front, "POST", "/admin/upload", body, Cookie="sessionid=bbbbbbbb")[0] == 200
        connection.sendall(body)
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    assert ask(front, "POST", "/admin/upload", body, Cookie="sessionid=aaaaaaaa")[0] == 200


@pytest.mark.django_db
def test_only_accounts_that_may_create_plans_or_events_upload(client: Client) -> None:
    organizer = make_organizer()
    found = {}
    for role in (Role.ORGANIZER, Role.DOOR):
        member = make_member(organizer, role)
        client.force_login(member)
        found[role] = request_body.find_uploader(client.session.session_key or "") == member.pk
    assert found == {Role.ORGANIZER: True, Role.DOOR: False}
    assert request_body.find_uploader("") is None


def test_a_body_without_a_declared_length_reaches_the_site_with_one(front: int, site: Site) -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    assert speak(front, head + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").startswith(b"HTTP/1.1 200")
    _, _, headers, body = site.requests[0]
    assert (headers["content-length"], body) == (["5"], b"abcde")
    assert "transfer-encoding" not in headers


def test_a_body_declared_too_large_is_refused_before_it_is_sent(front: int, site: Site) -> None:
    for path, size in (("/", BODY_BYTES_MAX + 1), ("/admin/upload", UPLOAD_BYTES_MAX + 1)):
        head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
        answer = speak(front, head.encode())
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"application/problem+json" in answer
    assert site.requests == []


def test_an_api_request_has_the_apis_size_limit(front: int, site: Site) -> None:
    def head(size: int) -> bytes:
        return f"POST /api/x HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n".encode()

    answer = speak(front, head(settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1))
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"too-large" in answer
    assert site.requests == []
    whole = b"x" * settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    assert speak(front, head(len(whole)) + whole).startswith(b"HTTP/1.1 200")


def test_a_browser_gets_a_page_for_an_upload_that_is_too_large(front: int, site: Site) -> None:
    head = (
        f"POST {{}} HTTP/1.1\r\nHost: a\r\nAccept: text/html,*/*\r\nContent-Length: {UPLOAD_BYTES_MAX + 1}"
        "\r\nConnection: close\r\n\r\n"
    )
    answer = speak(front, head.format("/admin/").encode())
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"text/html" in answer
    assert b"larger than 256 KB" in answer
    assert b"up to 72 MB" in answer
    assert b"application/problem+json" in speak(front, head.format("/api/x").encode())
    assert site.requests == []


def test_a_body_that_grows_too_large_is_refused(front: int, site: Site) -> None:
    size = BODY_BYTES_MAX + 1
    answer = speak(
        front,
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        + f"{size:x}\r\n".encode()
        + b"x" * size
        + b"\r\n0\r\n\r\n",
    )
    assert answer.startswith(b"HTTP/1.1 413")
    assert site.requests == []


def test_a_client_that_disconnects_ends_the_rest_of_its_response(front: int, site: Site) -> None:
    with socket.create_connection(("127.0.0.1", front), timeout=WAIT_SECONDS_MAX) as connection:
        connection.sendall(b"GET /waits HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
    assert site.client_left.wait(WAIT_SECONDS_MAX)


def test_a_partial_response_does_not_look_complete(front: int) -> None:
    answer = speak(front, b"GET /breaks HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-length: 100" in head.lower()
    assert len(body) < 100


@pytest.mark.parametrize(("method", "tries"), [("GET", 2), ("POST", 1)])
def test_only_idempotent_requests_are_repeated_when_the_site_closes_a_pooled_connection(
    front: int, site: Site, method: str, tries: int
) -> None:
    ask(front, "GET", "/")
    status, headers, body = ask(front, method, "/hangs-up", b"x" if method == "POST" else None)
    assert (status, json.loads(body)["type"], len(site.requests) - 1) == (503, "busy", tries)
    assert int(dict(headers)["retry-after"]) > 0


def test_without_a_site_api_clients_get_a_problem_and_browsers_a_page() -> None:
    with server_in_front_of(free_port()) as port:
        status, headers, body = ask(port, "GET", "/api/events", Accept="text/html")
        assert (status, dict(headers)["content-type"]) == (503, "application/problem+json")
        assert json.loads(body)["status"] == 503
        assert int(dict(headers)["retry-after"]) > 0
        status, headers, body = ask(port, "GET", "/", Accept="text/html,*/*")
        assert (status, dict(headers)["content-type"]) == (503, "text/html; charset=utf-8")
        assert b"One moment" in body


def test_kept_connections_serve_many_requests(front: int, site: Site) -> None:
    with contextlib.closing(HTTPConnection("127.0.0.1", front, timeout=WAIT_SECONDS_MAX)) as connection:
        for _ in range(20):
            connection.request("POST", "/", b"body")
            assert connection.getresponse().read() == b"hello"
    assert len(site.requests) == 20


@contextlib.contextmanager
def site_that_sends(*answers: bytes, reads: int = 65536) -> Iterator[int]:
    """A site that sends the next of these byte strings on each connection, whatever the request, and closes it."""

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(WAIT_SECONDS_MAX)
                if reads:
                    connection.recv(reads)
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                while reads and connection.recv(65536):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WAIT_SECONDS_MAX)
        thread = threading.Thread(target=serve)
        thread.start()
        with server_in_front_of(listener.getsockname()[1]) as port:
            yield port
        thread.join(WAIT_SECONDS_MAX)
        assert not thread.is_alive()


def test_a_response_that_ends_with_its_connection_is_complete() -> None:
    with site_that_sends(b"HTTP/1.1 200 OK\r\n\r\nto the end") as port:
        assert ask(port, "GET", "/")[2] == b"to the end"


def test_interim_responses_are_not_forwarded() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    with site_that_sends(hints + hints + b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok") as port:
        status, headers, body = ask(port, "GET", "/")
    assert (status, body) == (201, b"ok")
    assert "link" not in dict(headers)


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-hello\r\n", b"HTTP/1.1 200 OK\r\nContent-Le"])
def test_an_invalid_response_becomes_a_problem(answer: bytes) -> None:
    with site_that_sends(answer) as port:
        status, _, body = ask(port, "POST", "/", b"x")
    assert (status, json.loads(body)["type"]) == (503, "busy")


@pytest.mark.usefixtures("staff")
def test_a_response_before_the_end_of_the_body_is_forwarded() -> None:
    answer = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with site_that_sends(answer) as port:
        assert ask(port, "POST", "/admin/upload", b"x" * 4_000_000)[0] == 413


def test_a_large_response_reaches_a_slow_client_complete() -> None:
    body = bytes(range(256)) * 32_768
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    with site_that_sends(head + body) as port, contextlib.closing(HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("GET", "/")
        answer = connection.getresponse()
        assert answer.read() == body


def test_a_request_after_head_gets_its_own_response(front: int) -> None:
    with contextlib.closing(HTTPConnection("127.0.0.1", front, timeout=WAIT_SECONDS_MAX)) as connection:
        for method, body in [("HEAD", b""), ("GET", b"hello"), ("HEAD", b""), ("GET", b"hello")]:
            connection.request(method, "/")
            assert connection.getresponse().read() == body
