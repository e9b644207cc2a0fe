"""Writes a whole response at once: one system call instead of one for the headers and one for the body."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

COPIED_BYTES_MAX = 16 * 1024


def encode_refusal(status: str, type_: str, title: str, retry_seconds: int = 0) -> bytes:
    """Return a whole response that refuses a request before the application gets it; the connection closes."""
    document = {"type": type_, "title": title, "status": int(status[:3]), "detail": title}
    body = json.dumps(document).encode()
    lines = [
        f"HTTP/1.1 {status}",
        "content-type: application/problem+json",
        f"content-length: {len(body)}",
        "cache-control: no-store",
        "connection: close",
    ]
    if retry_seconds:
        lines.append(f"retry-after: {retry_seconds}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def send_response(cycle: Any, status: int, head: bytes, body: bytes) -> None:
    """Send a whole response. The cycle's own `send` would need two messages."""
    if cycle.flow.write_paused and not cycle.disconnected:
        await cycle.flow.drain()
    if not cycle.disconnected:
        write_response(cycle, status, head, body)


def write_response(cycle: Any, status: int, head: bytes, body: bytes) -> None:
    cycle.response_started = True
    cycle.waiting_for_100_continue = False
    if cycle.scope["method"] == "HEAD":
        body = b""
    connection_header = b"" if cycle.keep_alive else b"connection: close\r\n"
    write_to(cycle.transport, cycle.default_headers, status, head, body, connection_header)
    cycle.response_complete = True
    event = cycle.event if type(cycle) is BufferedRequestCycle else cycle.message_event
    if event is not None:
        event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()


def write_to(
    transport: asyncio.Transport,
    default_headers: Sequence[tuple[bytes, bytes]],
    status: int,
    head: bytes,
    body: bytes = b"",
    connection_header: bytes = b"",
) -> None:
    """Write a response. `connection_header`: its `connection` line, or empty. A large body is not copied: pages and
    files are kept in memory once, however many clients do not read them."""
    start = (STATUS_LINE[status], _defaults.lines(default_headers), head, connection_header, b"\r\n")
    if len(body) <= COPIED_BYTES_MAX:
        transport.write(b"".join((*start, body)))
    else:
        transport.writelines((b"".join(start), body))


async def run_without_chunks(cycle: Any, app: Any, scope: Any, receive: Any, send: Any) -> None:
    """Call the application for a client before HTTP/1.1: the end of the connection ends a response without a length,
    where uvicorn would send chunks. A response that fails midway is aborted, so that it does not look complete."""
    is_unframed = False

    async def send_unframed(message: Any) -> None:
        nonlocal is_unframed
        if message["type"] == "http.response.start":
            is_unframed = all(name.lower() != b"content-length" for name, _ in message.get("headers", ()))
            if is_unframed:
                cycle.chunked_encoding = False
        elif is_unframed:
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    try:
        await app(scope, receive, send_unframed)
    except Exception:
        if cycle.response_started and not cycle.response_complete:
            cycle.transport.abort()
        raise


class _Defaults:
    """The headers at the start of every response, joined once per list. uvicorn makes a new list each second."""

    def __init__(self) -> None:
        self._of: object = None
        self._lines = b""

    def lines(self, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        if headers is not self._of:
            self._of, self._lines = headers, b"".join([b"%b: %b\r\n" % header for header in headers])
        return self._lines


_defaults = _Defaults()


class BufferedRequestCycle(RequestResponseCycle):
    """uvicorn's cycle for a completely received request, created at a third of the cost."""

    disconnected = waiting_for_100_continue = more_body = response_started = response_complete = False
    keep_alive = True
    chunked_encoding: bool | None = None
    expected_content_length = 0
    event: asyncio.Event | None = None

    def __init__(self, protocol: HttpToolsProtocol, scope: dict[str, Any], body: bytes) -> None:
        self.scope = scope  # type: ignore[assignment]
        self.transport = protocol.transport
        self.flow = protocol.flow
        self.logger = protocol.logger
        self.access_logger, self.access_log = protocol.access_logger, protocol.access_log
        self.default_headers = protocol.server_state.default_headers
        self.on_response = protocol.on_response_complete
        self.body = bytearray(body)

    @property
    def message_event(self) -> asyncio.Event:  # type: ignore[override]
        # Created on first use, which is rare, because the whole body has already been received.
        if self.event is None:
            self.event = asyncio.Event()
            self.event.set()
        return self.event
