"""Caps on what one client address has open: connections of one IPv4 address, streams and sockets of one /64, with more
for the networks that the operator names."""

import contextlib
import json
import socket
import uuid
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
import websockets.sync.client
from websockets.exceptions import InvalidStatus

from tests.processes.live.clients import Events
from tests.support.databases import database_url
from tests.support.factories import make_event
from tests.support.web_processes import WAIT_SECONDS_MAX, Web, wait_until, web
from ticketing.devserver.ports import free_port

pytestmark = pytest.mark.django_db(transaction=True)

CONNECTIONS, STREAMS, BODIES = 30, 3, 100


@pytest.fixture(scope="module")
def server(django_db_setup: None, django_db_blocker: Any) -> Iterator[Web]:
    """One worker without exemptions. The proxy is at 127.0.0.1; other addresses of this machine are clients."""
    with django_db_blocker.unblock():
        url = database_url()
    settings = {
        "DATABASE_URL": url,
        "DATABASE_DIRECT_URL": url,
        "RATE_LIMITS_EXEMPT": "",
        "TRUSTED_PROXIES": "127.0.0.1",
        "ADDRESS_CONNECTIONS_MAX": str(CONNECTIONS),
        "ADDRESS_STREAMS_MAX": str(STREAMS),
        "ADDRESS_CAPS_RAISED": "203.0.113.7=2,127.0.0.9=4",
    }
    with web(free_port(), **settings) as served:
        yield served


def connect(server: Web, address: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_SECONDS_MAX, source_address=(address, 0))


def is_answered(client: socket.socket) -> bool:
    """Whether the server answers a request on this connection with 200."""
    with contextlib.suppress(OSError):
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return client.recv(12) == b"HTTP/1.1 200"


def test_the_connections_of_an_address_are_capped(server: Web) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(server, "127.0.0.2")) for _ in range(CONNECTIONS)]
        assert all(map(is_answered, clients))
        with connect(server, "127.0.0.2") as further:
            refusal = b"".join(iter(lambda: further.recv(65_536), b""))
        head, _, body = refusal.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 429 ")
        assert b"retry-after: " in head
        assert json.loads(body)["type"] == "rate-limited"
        with connect(server, "127.0.0.3") as other:
            assert is_answered(other), "another address has its own cap"
        office = [stack.enter_context(connect(server, "127.0.0.9")) for _ in range(2 * CONNECTIONS)]
        assert all(map(is_answered, office)), "the operator has raised this one's"
        proxy = [stack.enter_context(connect(server, "127.0.0.1")) for _ in range(2 * CONNECTIONS)]
        assert all(map(is_answered, proxy)), "a proxy's connections carry many clients"
        clients.pop().close()
        wait_until(lambda: is_served(server, "127.0.0.2"), "a closed connection makes room for another")


def is_served(server: Web, address: str) -> bool:
    with connect(server, address) as client:
        return is_answered(client)


def test_the_streams_and_sockets_of_a_network_are_capped_together(server: Web) -> None:
    slug = make_event(f"event-{uuid.uuid4().hex[:12]}").slug
    own = [f"2001:db8::{number}" for number in range(1, 9)]
    with contextlib.ExitStack() as stack:
        for address in own[: STREAMS - 1]:
            stack.enter_context(stream(server, slug, address)).until(lambda one: one.counts(), "a first frame")
        held = stack.enter_context(opened(server, slug, own[-1]))
        with stream(server, slug, own[0]) as refused:
            refused.until_ended()
        assert refused.status == 429
        assert b"retry-after: " in refused.head.lower()
        with pytest.raises(InvalidStatus) as failed:
            opened(server, slug, own[1])
        response = failed.value.response
        assert (response.status_code, json.loads(response.body)["type"]) == (429, "rate-limited")
        assert int(response.headers["Retry-After"]) > 0
        assert poll(server, slug, own[0]) == 200, "polls still work"
        with stream(server, slug, "2001:db8:0:1::1") as other:
            other.until(lambda one: one.counts(), "a first frame in another network")
        for _ in range(2 * STREAMS):
            stack.enter_context(stream(server, slug, "203.0.113.7")).until(lambda one: one.counts(), "a first frame")
        held.close()
        wait_until(lambda: can_stream(server, slug, own[3]), "a closed socket makes room for a stream")


def stream(server: Web, slug: str, address: str) -> Events:
    return Events(server.port, slug, X_Forwarded_For=address)


def opened(server: Web, slug: str, address: str) -> Any:
    return websockets.sync.client.connect(
        f"ws://127.0.0.1:{server.port}/api/events/{slug}/sections/updates",
        additional_headers={"X-Forwarded-For": address},
    )


def can_stream(server: Web, slug: str, address: str) -> bool:
    with stream(server, slug, address) as one, contextlib.suppress(AssertionError):
        return bool(one.until(lambda each: each.counts(), "a first frame"))
    return False


def poll(server: Web, slug: str, address: str) -> int:
    with contextlib.closing(HTTPConnection("127.0.0.1", server.port, timeout=WAIT_SECONDS_MAX)) as connection:
        connection.request("GET", f"/api/events/{slug}/sections/updates", headers={"X-Forwarded-For": address})
        return connection.getresponse().status


def test_the_unfinished_bodies_of_an_address_are_capped(server: Web) -> None:
    """A body that arrives with its headers is not counted, and finished ones make room."""
    part = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 198.51.100.1\r\nContent-Length: 9\r\n\r\nx"
    whole = part.replace(b"\r\n\r\nx", b"\r\nConnection: close\r\n\r\nxxxxxxxxx")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(server, "127.0.0.1")) for _ in range(BODIES)]
        for client in clients:
            client.sendall(part)
        assert server.healthy()
        with connect(server, "127.0.0.1") as further:
            further.sendall(part)
            assert further.recv(12) == b"HTTP/1.1 429"
        with connect(server, "127.0.0.1") as client:
            client.sendall(whole)
            assert client.recv(12) == b"HTTP/1.1 503", "no site is running"
        for client in clients:
            client.sendall(b"xxxxxxxx")
            assert client.recv(12) == b"HTTP/1.1 503"
        with connect(server, "127.0.0.1") as client:
            client.sendall(part)
            client.sendall(b"xxxxxxxx")
            assert client.recv(12) == b"HTTP/1.1 503"
