"""Hostile clients against the web server as the Procfile starts it: each is answered or disconnected, a hold whose
buyer disconnected is found again or was never made, and afterwards the process uses no more resources than before."""

import contextlib
import json
import socket
import struct
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from apps.events import facade as events
from apps.reservations.models import Reservation
from tests.support import factories
from tests.support.databases import database_url
from tests.support.web_processes import WAIT_SECONDS_MAX, Web, wait_until, web
from ticketing.devserver.ports import free_port
from ticketing.server.http_protocol import FILES_RESERVED

SILENT = 1_000
BODY = b'{"visitor_id": "visitor-of-a-test"}'
JOIN = b"POST /api/events/hostile/queue HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
NOTHING = (0, 0)
GROWTH_BYTES_MAX = 48 * 1024 * 1024
"""The memory that a second wave of clients may add: only fragmentation."""


@pytest.fixture(scope="module")
def server(django_db_setup: None, django_db_blocker: Any) -> Iterator[Web]:
    """One worker whose site is not running: a request that the fast path does not answer is refused with 503."""
    with django_db_blocker.unblock():
        url = database_url()
    with web(free_port(), DATABASE_URL=url, DATABASE_DIRECT_URL=url) as served:
        yield served


@pytest.fixture
def vanishing(transactional_db: None) -> events.EventView:
    """On sale: 5 rows of 10 seats in `hall`."""
    return factories.make_event("vanishing")


def speak(server: Web, *parts: bytes, then: Callable[[socket.socket], object] | None = None) -> bytes:
    """Send the parts, and return everything received until the server closes the connection."""
    with server.connect() as client:
        received = b""
        try:
            for part in parts:
                client.sendall(part)
            if then is not None:
                then(client)
            while chunk := client.recv(65_536):
                received += chunk
        except TimeoutError:
            return b"neither answered nor disconnected: " + received
        except OSError:
            pass  # Disconnected.
        return received


def with_length(length: int | bytes, rest: bytes = b"") -> bytes:
    declared = length if isinstance(length, bytes) else str(length).encode()
    return JOIN + b"Content-Length: " + declared + b"\r\n\r\n" + rest


def half_close(client: socket.socket) -> None:
    client.shutdown(socket.SHUT_WR)


STATUS = b"GET /api/events/hostile/queue/status HTTP/1.1\r\nHost: localhost\r\n"
CLOSE = b"Connection: close\r\n\r\n"
SOCKET = (
    b"GET /socket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
CHUNKED = JOIN + b"Transfer-Encoding: chunked\r\n\r\n"
# What is sent, and the permitted statuses of the response; 0 if the client is disconnected without one.
CONVERSATIONS: dict[str, tuple[tuple[bytes, ...], tuple[int, ...]]] = {
    "no byte": ((), (0,)),
    "headers that never end": ((STATUS, b"X-Slow: 1\r\n"), (408,)),
    "a request line that never ends": ((b"GET /api/even",), (408,)),
    "a body that never arrives": ((with_length(100),), (408,)),
    "a body that stops": ((with_length(100, b'{"visitor'),), (408,)),
    "a chunk that stops": ((CHUNKED, b"20\r\n{"), (408,)),
    "a body longer than declared": ((with_length(2, b"{}" + b"x" * 50_000),), (201, 400, 0)),
    "ten megabytes": ((with_length(10_000_000), b"x" * 10_000_000), (413,)),
    "ten megabytes in chunks": ((CHUNKED, b"989680\r\n", b"x" * 10_000_000), (413, 0)),
    "lengths that disagree": ((JOIN + b"Content-Length: 2\r\nContent-Length: 20\r\n\r\n{}",), (400,)),
    "a length and chunks": ((JOIN + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",), (400,)),
    "a negative length": ((with_length(-1),), (400,)),
    "a length of letters": ((with_length(b"many"),), (400,)),
    "a length of forty digits": ((with_length(b"9" * 40),), (400,)),
    "garbage instead of chunks": ((CHUNKED, b"zz\r\n{}\r\n"), (400,)),
    "trailers without end": ((CHUNKED, b"2\r\n{}\r\n0\r\n", b"X-More: " + b"x" * 4_000_000), (413, 0)),
    "five thousand headers": ((STATUS + b"".join(b"X-%d: 1\r\n" % n for n in range(5_000)) + CLOSE,), (431,)),
    "a header without end": ((STATUS + b"X-Long: " + b"x" * 1_000_000,), (431,)),
    "headers of 90 KB in one piece": ((STATUS + b"X-Long: " + b"x" * 90_000 + b"\r\n" + CLOSE,), (431,)),
    "an address of 90 KB in one piece": ((b"GET /api/" + b"x" * 90_000 + b" HTTP/1.1\r\n" + CLOSE,), (431,)),
    "an address of 9 KB": ((b"GET /api/" + b"x" * 9_000 + b" HTTP/1.1\r\n" + CLOSE,), (431,)),
    "a header of 5 KB": ((STATUS + b"X-Long: " + b"x" * 5_000 + b"\r\n" + CLOSE,), (431,)),
    "a media type of semicolons": ((STATUS + b"Content-Type: a" + b";" * 300 + b"\r\n" + CLOSE,), (431,)),
    "tags of commas": ((STATUS + b"If-None-Match: " + b"," * 1_100 + b"\r\n" + CLOSE,), (431,)),
    "tags of commas in many headers": ((STATUS + b"If-None-Match: ,,,,,,,,,,,,,,,,,,,,\r\n" * 60 + CLOSE,), (431,)),
    "cookies of 7 KB": ((STATUS + b"Cookie: a=" + b"x" * 7_000 + b"\r\n" + CLOSE,), (401,)),
    "cookies of 9 KB": ((STATUS + b"Cookie: a=" + b"x" * 9_000 + b"\r\n" + CLOSE,), (431,)),
    "three hundred cookies": ((STATUS + b"Cookie: " + b"a=1;" * 300 + b"\r\n" + CLOSE,), (431,)),
    "two media types": ((STATUS + b"Content-Type: a/b\r\nContent-Type: c/d\r\n" + CLOSE,), (400,)),
    "two hosts": ((STATUS + b"Host: localhost\r\n" + CLOSE,), (400,)),
    "headers as trailers": (
        (CHUNKED.removesuffix(b"\r\n") + CLOSE, b"2\r\n{}\r\n0\r\nContent-Type: text/plain\r\n\r\n"),
        (201, 422),
    ),
    "a query of 2 KB goes to the site": (
        (STATUS.replace(b"/status ", b"/status?a=" + b"%" * 2_000 + b" ") + CLOSE,),
        (503,),
    ),
    "a form in parts": (
        (
            b"POST /orders/find HTTP/1.1\r\nHost: localhost\r\nContent-Type: Multipart/Form-data; boundary=x\r\n"
            b"Content-Length: 7\r\n" + CLOSE + b"--x--\r\n",
        ),
        (415,),
    ),
    "headers below the limit and a body above it": (
        (
            STATUS.replace(b"GET", b"POST").replace(b"/status", b"")
            + b"".join(b"X-Long-%d: " % n + b"x" * 4_000 + b"\r\n" for n in range(7))
            + b"Content-Type: application/json\r\nContent-Length: 90000\r\n"
            + CLOSE
            + b" " * 89_998
            + b"{}",
        ),
        (201,),
    ),
    "a GET with a body": ((STATUS + b"Content-Length: 2\r\n\r\n{}",), (400,)),
    "a GET whose body never arrives": ((STATUS + b"Content-Length: 200\r\n\r\n",), (400,)),
    "a HEAD with chunks": ((STATUS.replace(b"GET", b"HEAD") + b"Transfer-Encoding: chunked\r\n\r\n",), (400,)),
    "a socket with a body": (
        (STATUS + b"Upgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\n{}",),
        (400,),
    ),
    "a GET with a body of no bytes": ((STATUS + b"Content-Length: 0\r\n" + CLOSE,), (401,)),
    "a socket with bytes above ASCII in the address": ((SOCKET.replace(b"/socket", b"/\xff"),), (400,)),
    "a socket behind an unanswered request": ((STATUS + b"\r\n" + SOCKET,), (0,)),
    "an address without end": ((b"GET /api/" + b"x" * 1_000_000,), (431,)),
    "no HTTP": ((b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,), (400,)),
    "an absurd method": ((b"MAKEMEASANDWICH /api/events HTTP/1.1\r\nHost: localhost\r\n" + CLOSE,), (400,)),
    "another protocol's greeting": ((b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",), (400,)),
    "the address of a proxy": ((b"CONNECT example.org:443 HTTP/1.1\r\nHost: localhost\r\n" + CLOSE,), (400, 404, 503)),
    "OPTIONS for the whole server": ((b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n" + CLOSE,), (400, 404, 503)),
    "bytes above ASCII in the address": (
        (b"GET /api/events/\xff\xfe HTTP/1.1\r\nHost: localhost\r\n" + CLOSE,),
        (400,),
    ),
    "bad UTF-8 in the address": (
        (b"GET /api/events/%ff%c3%28/queue/status HTTP/1.1\r\nHost: localhost\r\n" + CLOSE,),
        (503,),
    ),
    "a NUL in the address": (
        (b"GET /api/events/a%00b/sections HTTP/1.1\r\nHost: localhost\r\n" + CLOSE,),
        (503,),
    ),
    "bad UTF-8 in a header": ((STATUS + b"Authorization: Bearer \xff\xfe\xfd\r\n" + CLOSE,), (401,)),
    "bad UTF-8 in the body": ((with_length(4, b'"\xff\xfe"') + b"",), (400, 422)),
    "a host that is not ours": (
        (b"GET /api/events/hostile/queue/status HTTP/1.1\r\nHost: evil.example\r\n" + CLOSE,),
        (503, 400),
    ),
    "a socket at an unknown address": ((SOCKET[:60], SOCKET[60:]), (403,)),
    "a hundred requests at once": (((STATUS + b"\r\n") * 100,), (401, 0)),
}


def test_each_hostile_client_is_answered_or_disconnected(server: Web, transactional_db: None) -> None:
    """All of them at once: slow clients delay no other client. No response is a 500, every refusal is a problem
    document, and a response is followed only by another complete response."""
    factories.make_event("hostile")
    with ThreadPoolExecutor(len(CONVERSATIONS)) as threads:
        conversations = {name: threads.submit(speak, server, *parts) for name, (parts, _) in CONVERSATIONS.items()}
        assert server.healthy()
        received = {name: future.result() for name, future in conversations.items()}
    wrong = {
        name: response[:200] for name, response in received.items() if status_of(response) not in CONVERSATIONS[name][1]
    }
    assert wrong == {}
    assert [name for name, response in received.items() if b"HTTP/1.1 500" in response] == []
    wait_until(lambda: at_rest(server) == NOTHING, "all resources are released")


def status_of(response: bytes) -> int:
    """Return the status; 0: disconnected without a response; -1: neither answered nor disconnected."""
    return int(response[9:12]) if response.startswith(b"HTTP/1.1 ") else -1 if response else 0


def test_half_closed_and_reset_connections_are_forgotten(server: Web) -> None:
    for request in (STATUS + b"\r\n", with_length(len(BODY), BODY), with_length(100, BODY), STATUS):
        speak(server, request, then=half_close)
        reset(server, request)
    assert server.healthy()
    wait_until(lambda: at_rest(server) == NOTHING, "all resources are released")


def test_thousands_of_silent_clients_block_no_other_client(server: Web) -> None:
    """Two waves, each disconnected by the server; the second needs no more memory than the first left allocated."""
    (worker,) = (psutil.Process(pid) for pid in server.workers())
    memory = []
    for _ in range(2):
        silent = [server.connect() for _ in range(SILENT)]
        assert server.healthy()
        for client in silent:
            assert client.recv(1) == b""
            client.close()
        wait_until(lambda: at_rest(server) == NOTHING, "all of them are forgotten")
        memory.append(worker.memory_info().rss)
    assert memory[1] - memory[0] < GROWTH_BYTES_MAX


def test_a_process_with_few_files_refuses_further_connections(django_db_setup: None, django_db_blocker: Any) -> None:
    """Without a free file it could neither accept nor refuse them, nor reach PostgreSQL for the others."""
    with django_db_blocker.unblock():
        url = database_url()
    settings = {"DATABASE_URL": url, "DATABASE_DIRECT_URL": url}
    with (
        web(free_port(), files_max=FILES_RESERVED + 50, **settings) as small,
        contextlib.ExitStack() as stack,
    ):
        clients = [stack.enter_context(small.connect()) for _ in range(FILES_RESERVED + 100)]
        clients[0].sendall(b"GET /api/events/nowhere/sections HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert clients[0].recv(12) == b"HTTP/1.1 404"
        assert {client.recv(12) for client in clients[FILES_RESERVED:]} == {b"HTTP/1.1 503"}


def test_a_connection_serves_further_requests_after_an_upgrade_that_is_not_supported(server: Web) -> None:
    """curl and Java offer HTTP/2 this way."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
    with server.connect() as client:
        for headers in (upgrade, b"", upgrade, b""):
            client.sendall(STATUS.replace(b"hostile", b"nowhere") + headers + b"\r\n")
            assert client.recv(65_536).startswith(b"HTTP/1.1 404")


def test_a_client_that_keeps_requesting_and_never_reads_is_disconnected(server: Web) -> None:
    with server.connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        with contextlib.suppress(OSError):
            while True:
                client.sendall((STATUS + b"\r\n") * 8)
        wait_until(lambda: at_rest(server) == NOTHING, "it is disconnected")


def test_a_buyer_who_disconnects_during_a_hold_finds_it_again_or_leaves_none(
    server: Web, vanishing: events.EventView
) -> None:
    """Buyers disconnect at the moment their joins and holds are sent. A retry with the same key returns each buyer's
    result; no buyer holds twice, and the audit is clean."""
    visitors = [f"visitor-{number}-{uuid.uuid4().hex}" for number in range(20)]
    for visitor in visitors:
        reset(server, post("queue", {"visitor_id": visitor}))
    tokens = [
        json.loads(body_of(speak(server, post("queue", {"visitor_id": one}))))["admission_token"] for one in visitors
    ]
    holds = [
        post("reservations", {"seats": [f"hall-{'ABCDE'[n // 10]}-{n % 10 + 1}"]}, token=token, key=f"key-{n}")
        for n, token in enumerate(tokens)
    ]
    threads = [threading.Thread(target=reset, args=(server, hold)) for hold in holds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS_MAX)
    found = [json.loads(body_of(speak(server, hold)))["reservation_id"] for hold in holds]
    assert sorted(found) == sorted(str(held) for held in Reservation.objects.values_list("id", flat=True))
    assert len(set(found)) == len(holds)
    factories.assert_audit_clean()


def post(call: str, body: dict[str, Any], *, token: str = "", key: str = "") -> bytes:
    content = json.dumps(body).encode()
    lines = [f"POST /api/events/vanishing/{call} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(content)}", "Connection: close"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    lines += [f"Idempotency-Key: {key}"] if key else []
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def body_of(response: bytes) -> bytes:
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 201"), response
    return body


def reset(server: Web, request: bytes) -> None:
    """Send the request, and reset the connection."""
    with server.connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(request)


def at_rest(server: Web) -> tuple[int, int]:
    """Return the number of client connections of the worker, and the number of threads above its normal maximum."""
    (worker,) = (psutil.Process(pid) for pid in server.workers())
    open_ = [each for each in worker.net_connections("tcp") if each.laddr.port == server.port]
    return len([each for each in open_ if each.status != psutil.CONN_LISTEN]), max(0, worker.num_threads() - 32)
