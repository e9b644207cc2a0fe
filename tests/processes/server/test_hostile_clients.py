"""Clients that do not mean well, against the lane as the Procfile starts it: all are answered or cut, a hold that its
buyer did not wait for is found again or never was, and afterwards the process has what it had before."""

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

SILENT = 1_000
BODY = b'{"visitor_id": "visitor-of-a-test"}'
JOIN = b"POST /api/events/hostile/queue HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
NOTHING = (0, 0)
GROWTH_BYTES_MAX = 48 * 1024 * 1024
"""What a second wave of the same may add: nothing, but for how memory is cut into pieces."""


@pytest.fixture(scope="module")
def lane(django_db_setup: None, django_db_blocker: Any) -> Iterator[Web]:
    """One worker, whose site is away: what the lane does not answer itself is refused with 503."""
    with django_db_blocker.unblock():
        url = database_url()
    with web(free_port(), DATABASE_URL=url, DATABASE_DIRECT_URL=url) as served:
        yield served


@pytest.fixture
def vanishing(transactional_db: None) -> events.EventView:
    """On sale: 5 rows of 10 seats in `hall`."""
    return factories.make_event("vanishing")


def speak(lane: Web, *parts: bytes, then: Callable[[socket.socket], object] | None = None) -> bytes:
    """Sends the parts and returns all that comes back until the other side hangs up."""
    with lane.connect() as client:
        said = b""
        try:
            for part in parts:
                client.sendall(part)
            if then is not None:
                then(client)
            while chunk := client.recv(65_536):
                said += chunk
        except TimeoutError:
            return b"neither answered nor cut: " + said
        except OSError:
            pass  # Cut.
        return said


def with_length(length: int | bytes, rest: bytes = b"") -> bytes:
    told = length if isinstance(length, bytes) else str(length).encode()
    return JOIN + b"Content-Length: " + told + b"\r\n\r\n" + rest


def half_close(client: socket.socket) -> None:
    client.shutdown(socket.SHUT_WR)


STATUS = b"GET /api/events/hostile/queue/status HTTP/1.1\r\nHost: localhost\r\n"
CLOSE = b"Connection: close\r\n\r\n"
CHUNKED = JOIN + b"Transfer-Encoding: chunked\r\n\r\n"
# What is said, and how the answer may begin: with a status, or not at all where the client is cut.
CONVERSATIONS: dict[str, tuple[tuple[bytes, ...], tuple[int, ...]]] = {
    "nothing at all": ((), (0,)),
    "headers that never end": ((STATUS, b"X-Slow: 1\r\n"), (408,)),
    "a request line that never ends": ((b"GET /api/even",), (408,)),
    "a body that never comes": ((with_length(100),), (408,)),
    "a body that stops": ((with_length(100, b'{"visitor'),), (408,)),
    "a chunk that stops": ((CHUNKED, b"20\r\n{"), (408,)),
    "a body longer than it says": ((with_length(2, b"{}" + b"x" * 50_000),), (201, 400, 0)),
    "ten megabytes": ((with_length(10_000_000), b"x" * 10_000_000), (413,)),
    "ten megabytes in chunks": ((CHUNKED, b"989680\r\n", b"x" * 10_000_000), (413, 0)),
    "lengths that disagree": ((JOIN + b"Content-Length: 2\r\nContent-Length: 20\r\n\r\n{}",), (400,)),
    "a length and chunks": ((JOIN + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",), (400,)),
    "a length below nothing": ((with_length(-1),), (400,)),
    "a length of letters": ((with_length(b"many"),), (400,)),
    "a length beyond counting": ((with_length(b"9" * 40),), (400,)),
    "garbage for chunks": ((CHUNKED, b"zz\r\n{}\r\n"), (400,)),
    "trailers without end": ((CHUNKED, b"2\r\n{}\r\n0\r\n", b"X-More: " + b"x" * 4_000_000), (413, 0)),
    "a great many headers": ((STATUS + b"".join(b"X-%d: 1\r\n" % n for n in range(5_000)) + CLOSE,), (431,)),
    "a header without end": ((STATUS + b"X-Long: " + b"x" * 1_000_000,), (431,)),
    "headers of 90 KB in one piece": ((STATUS + b"X-Long: " + b"x" * 90_000 + b"\r\n" + CLOSE,), (431,)),
    "an address of 90 KB in one piece": ((b"GET /api/" + b"x" * 90_000 + b" HTTP/1.1\r\n" + CLOSE,), (431,)),
    "headers below the limit and a body above it": (
        (
            STATUS.replace(b"GET", b"POST").replace(b"/status", b"")
            + b"X-Long: "
            + b"x" * 60_000
            + b"\r\nContent-Type: application/json\r\nContent-Length: 90000\r\n"
            + CLOSE
            + b" " * 89_998
            + b"{}",
        ),
        (201,),
    ),
    "an address without end": ((b"GET /api/" + b"x" * 1_000_000,), (431,)),
    "no HTTP": ((b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,), (400,)),
    "an absurd method": ((b"MAKEMEASANDWICH /api/events HTTP/1.1\r\nHost: localhost\r\n" + CLOSE,), (400,)),
    "another protocol's greeting": ((b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",), (400,)),
    "the address of a proxy": ((b"CONNECT example.org:443 HTTP/1.1\r\nHost: localhost\r\n" + CLOSE,), (400, 404, 503)),
    "every method at once": ((b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n" + CLOSE,), (400, 404, 503)),
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
    "a socket nobody serves": (
        (
            b"GET /socket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        ),
        (403,),
    ),
    "a hundred requests at once": (((STATUS + b"\r\n") * 100,), (401, 0)),
}


def test_each_is_answered_or_cut(lane: Web, transactional_db: None) -> None:
    """All of them at once: who is slow keeps nobody else waiting. No answer is a 500, every refusal is a problem
    document, and none is followed by anything but another whole answer."""
    factories.make_event("hostile")
    with ThreadPoolExecutor(len(CONVERSATIONS)) as threads:
        asked = {name: threads.submit(speak, lane, *parts) for name, (parts, _) in CONVERSATIONS.items()}
        assert lane.healthy()
        said = {name: future.result() for name, future in asked.items()}
    wrong = {name: answer[:200] for name, answer in said.items() if status_of(answer) not in CONVERSATIONS[name][1]}
    assert wrong == {}
    assert [name for name, answer in said.items() if b"HTTP/1.1 500" in answer] == []
    wait_until(lambda: at_rest(lane) == NOTHING, "everything is given back")


def status_of(answer: bytes) -> int:
    """0: cut without a word; -1: neither answered nor cut."""
    return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else -1 if answer else 0


def test_who_half_closes_or_resets_is_forgotten(lane: Web) -> None:
    for request in (STATUS + b"\r\n", with_length(len(BODY), BODY), with_length(100, BODY), STATUS):
        speak(lane, request, then=half_close)
        reset(lane, request)
    assert lane.healthy()
    wait_until(lambda: at_rest(lane) == NOTHING, "everything is given back")


def test_thousands_who_never_speak_keep_nobody_out(lane: Web) -> None:
    """Two waves, each of which the lane ends by itself; the second needs no more memory than the first left."""
    (worker,) = (psutil.Process(pid) for pid in lane.workers())
    memory = []
    for _ in range(2):
        silent = [lane.connect() for _ in range(SILENT)]
        assert lane.healthy()
        for client in silent:
            assert client.recv(1) == b""
            client.close()
        wait_until(lambda: at_rest(lane) == NOTHING, "all of them are forgotten")
        memory.append(worker.memory_info().rss)
    assert memory[1] - memory[0] < GROWTH_BYTES_MAX


def test_who_asks_on_and_on_and_never_reads_is_cut(lane: Web) -> None:
    with lane.connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        with contextlib.suppress(OSError):
            while True:
                client.sendall((STATUS + b"\r\n") * 8)
        wait_until(lambda: at_rest(lane) == NOTHING, "it is cut")


def test_a_buyer_who_vanishes_in_the_middle_finds_the_hold_or_leaves_none(
    lane: Web, vanishing: events.EventView
) -> None:
    """Buyers hang up at the very moment in which their joins and holds are sent. Asking again with the same key tells
    each what came of it; nobody holds twice, and the books are right."""
    visitors = [f"visitor-{number}-{uuid.uuid4().hex}" for number in range(20)]
    for visitor in visitors:
        reset(lane, post("queue", {"visitor_id": visitor}))
    tokens = [
        json.loads(body_of(speak(lane, post("queue", {"visitor_id": one}))))["admission_token"] for one in visitors
    ]
    holds = [
        post("reservations", {"seats": [f"hall-{'ABCDE'[n // 10]}-{n % 10 + 1}"]}, token=token, key=f"key-{n}")
        for n, token in enumerate(tokens)
    ]
    threads = [threading.Thread(target=reset, args=(lane, hold)) for hold in holds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS_MAX)
    found = [json.loads(body_of(speak(lane, hold)))["reservation_id"] for hold in holds]
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


def body_of(answer: bytes) -> bytes:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 201"), answer
    return body


def reset(lane: Web, request: bytes) -> None:
    """Sends it and breaks the connection off without a good-bye."""
    with lane.connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(request)


def at_rest(lane: Web) -> tuple[int, int]:
    """How many connections of clients the worker has, and how many threads more than it may keep for itself."""
    (worker,) = (psutil.Process(pid) for pid in lane.workers())
    open_ = [each for each in worker.net_connections("tcp") if each.laddr.port == lane.port]
    return len([each for each in open_ if each.status != psutil.CONN_LISTEN]), max(0, worker.num_threads() - 32)
