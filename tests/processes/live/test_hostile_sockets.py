"""Hostile WebSocket clients: their data is neither kept nor inflated, and their pings do not delay other clients."""

import contextlib
import socket
import struct
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import websockets.sync.client
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from apps.events import facade as events
from apps.queue.identity.caller import issue_admission_token
from apps.reservations.models import SeatInventory
from tests.support.factories import join, make_event
from tests.support.web_processes import WAIT_SECONDS_MAX, Web, wait_until
from ticketing.server.event_stream import UNREAD_SECONDS_MAX
from ticketing.server.websocket_protocol import CONTROL_FRAMES_BURST, MESSAGE_BYTES_MAX

pytestmark = pytest.mark.django_db(transaction=True)

SOCKETS = 1_000
UNFINISHED_BYTES = 128 * 1024
SLACK_BYTES = 24 * 1024 * 1024
"""Differences between two waves of clients that have nothing to do with their frames."""
UNREAD_SOCKETS = 30
KEY = "dGhlIHNhbXBsZSBub25jZQ=="


@pytest.fixture
def slug() -> str:
    return make_event(f"event-{uuid.uuid4().hex[:12]}").slug


def handshake(slug: str, *more: str, query: str = "") -> bytes:
    lines = [
        f"GET /api/events/{slug}/sections/updates{query} HTTP/1.1", "Host: localhost", "Connection: Upgrade",
        "Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {KEY}", *more, "", "",
    ]  # fmt: skip
    return "\r\n".join(lines).encode()


def head_of(client: socket.socket) -> bytes:
    """Read the response to the handshake, byte by byte: frames follow it."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = client.recv(1)
        assert byte, head
        head += byte
    return head


@contextlib.contextmanager
def raw(server: Web, slug: str, *more: str) -> Iterator[socket.socket]:
    """An accepted WebSocket without a client library."""
    with server.connect() as client:
        client.sendall(handshake(slug, *more))
        assert head_of(client).startswith(b"HTTP/1.1 101")
        yield client


def frame_head(size: int, *, fin: bool = True, opcode: Opcode = Opcode.BINARY) -> bytes:
    """The header of a masked frame with this declared length."""
    return struct.pack("!BBQ", (0x80 if fin else 0) | opcode, 0x80 | 127, size) + b"mask"


def close_code(client: socket.socket) -> int:
    """Read until the server closes the connection, and return the code of its last frame, a close frame."""
    received = b"".join(iter(lambda: client.recv(65_536), b""))
    at = received.rfind(b"\x88")
    return struct.unpack("!H", received[at + 2 : at + 4])[0]


def memory(server: Web) -> int:
    (worker,) = server.workers()
    return psutil.Process(worker).memory_info().rss


def growth_with(server: Web, slug: str, sent: bytes) -> int:
    """Return the memory that the worker needs for SOCKETS sockets that have sent these bytes."""
    before = memory(server)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(raw(server, slug)) for _ in range(SOCKETS)]
        for client in clients:
            with contextlib.suppress(OSError):
                client.sendall(sent)
        assert server.healthy(), "all of it has been received"
        after = memory(server)
    wait_until(lambda: connections_of(server) == 0, "all of them are forgotten")
    return after - before


def connections_of(server: Web) -> int:
    (worker,) = (psutil.Process(pid) for pid in server.workers())
    found = [each for each in worker.net_connections("tcp") if each.laddr.port == server.port]
    return len([each for each in found if each.status == psutil.CONN_ESTABLISHED])


def unsent_bytes(server: Web) -> int:
    """Return how much the kernel keeps for the server's clients."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(row[4].split(":")[0], 16) for row in rows if row[1].endswith(f":{server.port:04X}"))


def test_a_thousand_unfinished_frames_occupy_no_memory(server: Web, slug: str) -> None:
    """Without the limit each socket could keep 16 MB of one frame; here their clients send 128 KB."""
    idle = growth_with(server, slug, b"")
    frames = {
        "a frame of 16 MB": frame_head(16 * 1024 * 1024) + b"x" * UNFINISHED_BYTES,
        "fragments without end": b"".join(
            frame_head(1_024, fin=False, opcode=Opcode.TEXT if first else Opcode.CONT) + b"x" * 1_024
            for first in (True, *[False] * 127)
        ),
        "a frame of 4 KB without its last byte": frame_head(MESSAGE_BYTES_MAX) + b"x" * (MESSAGE_BYTES_MAX - 1),
    }
    # The first wave has enlarged the process, so a later one needs less.
    growth = {name: growth_with(server, slug, sent) for name, sent in frames.items()}
    assert {name for name, bytes_ in growth.items() if bytes_ > max(idle, 0) + SLACK_BYTES} == set(), (idle, growth)


def test_sockets_that_do_not_read_share_a_large_frame_and_are_disconnected(server: Web) -> None:
    """Otherwise each of them keeps a copy of its own, in the process and in the kernel."""
    event = make_event(f"event-{uuid.uuid4().hex[:12]}", rows=20, seats_per_row=1_000, halls=("H" * 80,))
    (section,) = events.list_sections(event.id)
    SeatInventory.objects.filter(event=event.id).update(status=SeatInventory.Status.BLOCKED, blocked_for="house")
    entry = join(event)
    token = issue_admission_token(entry.id, event.slug, entry.number, None)
    sent = handshake(event.slug, f"Authorization: Bearer {token}", query=f"?section={section.slug}")
    size = sum(map(len, events.seat_guids_of_section(section.id).values()))
    with contextlib.ExitStack() as stack:

        def listen() -> socket.socket:
            client = stack.enter_context(server.connect())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.sendall(sent)
            assert head_of(client).startswith(b"HTTP/1.1 101")
            return client

        listen()
        wait_until(lambda: unsent_bytes(server) > 0, "the first one has the frame")
        before = memory(server)
        clients = [listen() for _ in range(UNREAD_SOCKETS)]
        begun = time.monotonic()
        assert server.healthy()
        kept = max(0, memory(server) - before) + unsent_bytes(server)
        assert kept < UNREAD_SOCKETS * size / 4
        for client in clients:
            client.sendall(Frame(Opcode.PONG, b"late").serialize(mask=True))
        assert server.healthy()
        assert connections_of(server) >= UNREAD_SOCKETS, "a pong of a client that reads slowly does not disconnect it"
        wait_until(lambda: connections_of(server) == 0, "they are disconnected")
        assert time.monotonic() - begun < 1.5 * UNREAD_SECONDS_MAX


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        pytest.param(Frame(Opcode.TEXT, b"hello").serialize(mask=True), 1003, id="text"),
        pytest.param(Frame(Opcode.TEXT, b"\xff\xfe").serialize(mask=True), 1003, id="text that is no UTF-8"),
        pytest.param(Frame(Opcode.BINARY, b"").serialize(mask=True), 1003, id="an empty message"),
        pytest.param(Frame(Opcode.TEXT, b"first", fin=False).serialize(mask=True), 1003, id="a fragment"),
        pytest.param(
            Frame(Opcode.TEXT, b"a").serialize(mask=True) + Frame(Opcode.CLOSE, b"\x03\xe8").serialize(mask=True),
            1000,
            id="a message before the close frame",
        ),
        pytest.param(Frame(Opcode.BINARY, b"x" * MESSAGE_BYTES_MAX).serialize(mask=True), 1003, id="4 KB"),
        pytest.param(frame_head(MESSAGE_BYTES_MAX + 1), 1009, id="the header of more than 4 KB"),
        pytest.param(frame_head(2**63 - 1), 1009, id="the header of exabytes"),
        pytest.param(Frame(Opcode.PING, b"p").serialize(mask=True) * 100, 1008, id="a hundred pings"),
        pytest.param(Frame(Opcode.PONG, b"p").serialize(mask=True) * 100, 1008, id="a hundred pongs"),
        pytest.param(b"\xc1\x81maskx", 1002, id="a compressed message"),
        pytest.param(b"\x81\x01x", 1002, id="a frame without a mask"),
    ],
)
def test_a_client_that_sends_more_than_control_frames_is_disconnected(
    server: Web, slug: str, sent: bytes, code: int
) -> None:
    with raw(server, slug) as bad, raw(server, slug) as good:
        bad.sendall(sent)
        assert close_code(bad) == code
        good.sendall(Frame(Opcode.CLOSE, b"\x03\xe8").serialize(mask=True))
        assert close_code(good) == 1000, "other sockets stay open"
    assert server.healthy()


def test_no_extension_is_negotiated(server: Web, slug: str) -> None:
    """A compressed message of 16 KB could expand to 16 MB."""
    with server.connect() as client:
        client.sendall(handshake(slug, "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"))
        assert b"sec-websocket-extensions" not in head_of(client).lower()


def test_some_pings_are_answered(server: Web, slug: str) -> None:
    with websockets.sync.client.connect(f"ws://127.0.0.1:{server.port}/api/events/{slug}/sections/updates") as client:
        for _ in range(CONTROL_FRAMES_BURST):
            assert client.ping().wait(WAIT_SECONDS_MAX)
        # A ping that the server has not read when it closes resets the connection, and the close frame may be lost.
        with pytest.raises(ConnectionClosed):  # noqa: PT012
            for _ in range(CONTROL_FRAMES_BURST):
                client.ping()
                client.recv(0.2)


def test_frames_before_the_response_to_the_handshake_disconnect(server: Web, slug: str) -> None:
    ping = Frame(Opcode.PING, b"p").serialize(mask=True)

    def send_early(more: bytes) -> None:
        with server.connect() as client, contextlib.suppress(OSError):
            client.sendall(handshake(slug) + more)
            client.sendall(Frame(Opcode.TEXT, b"early").serialize(mask=True))
            while client.recv(65_536):
                pass

    # All at once: the server disconnects some of them only after a time.
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(send_early, (b"", ping, ping * 10_000)))
    wait_until(lambda: connections_of(server) == 0, "they are disconnected")


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(["X-Long: " + "x" * 20_000], id="a header line that websockets refuses"),
        pytest.param(["Sec-WebSocket-Version: 13"], id="a repeated header"),
        pytest.param(["Sec-WebSocket-Extensions: ,;=\x7f"], id="an extension that cannot be parsed"),
    ],
)
def test_a_refused_handshake_leaves_no_connection_open(server: Web, slug: str, more: list[str]) -> None:
    with server.connect() as client:
        client.sendall(handshake(slug, *more))
        received = b"".join(iter(lambda: client.recv(65_536), b""))
    assert received == b"" or received.startswith(b"HTTP/1.1 4"), received[:200]
    wait_until(lambda: connections_of(server) == 0, "it is disconnected")


def test_two_sockets_that_send_without_pause_do_not_delay_other_clients(server: Web, slug: str) -> None:
    """The median time of a health check beside them is compared with that of an idle server."""
    calm = checks(server)
    ending = threading.Event()
    flood = Frame(Opcode.PING, b"").serialize(mask=True) * 10_000

    def send() -> None:
        while not ending.is_set():
            with contextlib.suppress(OSError, AssertionError), raw(server, slug) as client:
                for _ in range(100):
                    client.sendall(flood)
            ending.wait(0.02)

    threads = [threading.Thread(target=send) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        flooded = checks(server)
    finally:
        ending.set()
        for thread in threads:
            thread.join(WAIT_SECONDS_MAX)
    assert flooded < 25 * calm, (calm, flooded)


def checks(server: Web) -> float:
    """Return the median duration of health checks."""
    durations = []
    for _ in range(41):
        begun = time.perf_counter()
        assert server.healthy()
        durations.append(time.perf_counter() - begun)
    return sorted(durations)[20]
