"""The WebSocket: which clients may open one, how hostile clients are handled, how it closes when its worker ends."""

import contextlib
import json
import socket
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import websockets.exceptions
import websockets.frames
import websockets.sync.client

from tests.processes.live.clients import Events, counts_in
from tests.processes.live.conftest import Relays, serving
from tests.support.factories import make_event
from tests.support.web_processes import WAIT_SECONDS_MAX, Web
from ticketing.server.websocket_protocol import UNREAD_BYTES_MAX

pytestmark = pytest.mark.django_db(transaction=True)


def address_of(server: Web, slug: str) -> str:
    return f"ws://127.0.0.1:{server.port}/api/events/{slug}/sections/updates"


def an_event() -> str:
    return make_event(f"event-{uuid.uuid4().hex[:12]}").slug


@contextlib.contextmanager
def opened(server: Web, slug: str, **headers: str) -> Iterator[websockets.sync.client.ClientConnection]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    with websockets.sync.client.connect(address_of(server, slug), additional_headers=sent) as connection:
        yield connection


def until_event(connection: Any, kind: str) -> Any:
    while (message := json.loads(connection.recv(WAIT_SECONDS_MAX)))["event"] != kind:
        pass
    return message["data"]


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="no browser, no cookie"),
        pytest.param({"Authorization": "Bearer x", "Cookie": "visitor=x"}, id="a token"),
        pytest.param({"Origin": "http://127.0.0.1:{port}", "Cookie": "visitor=x"}, id="our own page"),
    ],
)
def test_pages_of_our_own_and_clients_that_are_no_browser_can_connect(server: Web, headers: dict[str, str]) -> None:
    slug = an_event()
    sent = {name: value.format(port=server.port) for name, value in headers.items()}
    with opened(server, slug, **sent) as connection:
        assert counts_in(until_event(connection, "sections")) == {"hall": 50}


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Origin": "https://elsewhere.example"}, id="another site"),
        pytest.param({"Origin": "http://127.0.0.1:1"}, id="another port"),
        pytest.param({"Origin": "ftp://127.0.0.1:{port}"}, id="another scheme"),
        pytest.param({"Origin": "http://[::1"}, id="no address at all"),
        pytest.param({"Origin": "http://[x"}, id="another that is none"),
        pytest.param({"Origin": "null"}, id="a page without one"),
        pytest.param({"Cookie": "visitor=x"}, id="cookies from nowhere"),
    ],
)
def test_a_page_of_another_site_cannot_connect(server: Web, headers: dict[str, str]) -> None:
    sent = {name: value.format(port=server.port) for name, value in headers.items()}
    with pytest.raises(websockets.exceptions.InvalidStatus) as refused, opened(server, an_event(), **sent):
        pass
    assert refused.value.response.status_code == 403


def test_a_long_query_is_refused_by_each_transport(server: Web) -> None:
    slug = an_event()
    many = "?" + "a&" * 513
    for accept in ("text/event-stream", "application/json"):
        with Events(server.port, slug, many, Accept=accept) as stream:
            stream.until_ended()
        assert stream.status == 422
    with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
        websockets.sync.client.connect(address_of(server, slug) + many)
    assert refused.value.response.status_code == 422


@pytest.mark.parametrize(
    ("version", "accept"),
    [("1.0", "text/event-stream"), ("1.1", "text/event-stream;q=0, application/json")],
)
def test_a_client_that_cannot_stream_receives_the_current_frames(server: Web, version: str, accept: str) -> None:
    lines = [f"GET /api/events/{an_event()}/sections/updates HTTP/{version}", "Host: localhost", f"Accept: {accept}"]
    with server.connect() as connection:
        connection.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode())
        response = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert b"text/event-stream" not in response
    assert {each["event"] for each in json.loads(response.rpartition(b"\r\n\r\n")[2])["frames"]} >= {"sections"}


def test_a_stream_request_for_a_foreign_host_is_forwarded_to_the_site(server: Web) -> None:
    lines = [f"GET /api/events/{an_event()}/sections/updates HTTP/1.1", "Host: elsewhere.example"]
    with server.connect() as connection:
        connection.sendall("\r\n".join([*lines, "Accept: text/event-stream", "Connection: close", "", ""]).encode())
        response = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert response.startswith(b"HTTP/1.1 503"), "the site has to answer, and it is not running"


def test_a_client_that_pings_and_never_reads_is_disconnected(server: Web) -> None:
    """Otherwise the replies to its pings would accumulate in the process without limit."""
    slug = an_event()
    with server.connect() as connection:
        handshake = [
            f"GET /api/events/{slug}/sections/updates HTTP/1.1", "Host: localhost", "Connection: Upgrade",
            "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", "",
        ]  # fmt: skip
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.sendall("\r\n".join(handshake).encode())
        assert connection.recv(64).startswith(b"HTTP/1.1 101")
        ping = websockets.frames.Frame(websockets.frames.Opcode.PING, b"x" * 125).serialize(mask=True)
        pings, sent = ping * 1_000, 0
        with pytest.raises(OSError):  # noqa: PT012
            while sent < 400 * UNREAD_BYTES_MAX:
                connection.sendall(pings)
                sent += len(pings)
    assert server.healthy()


def test_a_replaced_worker_closes_its_sockets_with_spread_reconnect_delays(
    transactional_db: None, relays: Relays
) -> None:
    relays.start()
    slug = an_event()
    with serving() as server, contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(opened(server, slug)) for _ in range(10)]
        for each in sockets:
            until_event(each, "sections")
        server.replace_workers()
        delays = [until_event(each, "bye")["retry_ms"] for each in sockets]
        assert len(set(delays)) > 5, "their reconnections are spread"
        for each in sockets:
            with pytest.raises(websockets.exceptions.ConnectionClosedOK):
                until_event(each, "never")
