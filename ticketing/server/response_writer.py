"""An answer that is whole, on its way to the client: one write instead of one for the headers and one for the body."""

from collections.abc import Sequence
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE


async def send_response(cycle: Any, status: int, head: bytes, body: bytes) -> None:
    """As the cycle's own `send`, for an answer that is whole."""
    if cycle.flow.write_paused and not cycle.disconnected:
        await cycle.flow.drain()
    if not cycle.disconnected:
        write_response(cycle, status, head, body)


def write_response(cycle: Any, status: int, head: bytes, body: bytes) -> None:
    """One write, and so one journey to the kernel, instead of one for the headers and one for the body."""
    cycle.response_started = True
    cycle.waiting_for_100_continue = False
    if cycle.scope["method"] == "HEAD":
        body = b""
    farewell = b"" if cycle.keep_alive else b"connection: close\r\n"
    cycle.transport.write(encode_response(cycle.default_headers, status, head, body, farewell))
    cycle.response_complete = True
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()


def encode_response(
    default_headers: Sequence[tuple[bytes, bytes]], status: int, head: bytes, body: bytes, farewell: bytes
) -> bytes:
    """The bytes of an answer; `farewell`: what it says of the connection, if anything."""
    return b"".join((STATUS_LINE[status], _defaults.lines(default_headers), head, farewell, b"\r\n", body))


class _Defaults:
    """What every answer of the server begins with, joined once for each list of them: uvicorn makes one a second."""

    def __init__(self) -> None:
        self._of: object = None
        self._lines = b""

    def lines(self, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        if headers is not self._of:
            self._of, self._lines = headers, b"".join([b"%b: %b\r\n" % header for header in headers])
        return self._lines


_defaults = _Defaults()
