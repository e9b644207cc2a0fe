"""An event stream: a connection of our own server that was handed over to a listener.

No task, scope or coroutine of the request is kept. Frames are written straight to the transport, the same bytes to all
listeners, so a connection costs little more than its socket.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from apps.kernel.push.frames import HEARTBEAT_CHUNK, LAST_CHUNK, Frame, chunk, closing_event
from apps.kernel.push.hub import Listener

BUFFER_BYTES_MAX = 16 * 1024
"""Unsent bytes at which a listener counts as slow. The kernel buffers as much again."""
UNREAD_SECONDS_MAX = 20.0
"""How long a connection waits for its client to read the rest."""


def limit_buffers(transport: asyncio.Transport) -> None:
    """Limit the unsent bytes of a connection that gets frames: otherwise megabytes of old frames wait in the kernel for
    a client that does not read."""
    transport.set_write_buffer_limits(high=BUFFER_BYTES_MAX)
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family != getattr(socket, "AF_UNIX", None):
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES_MAX)


class StreamListener(Listener):
    """The listener of one connection, until either side closes it."""

    __slots__ = ("_is_paused", "_transport", "on_disconnect", "on_shutdown")

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__("events")
        self._transport = transport
        self._is_paused = False
        self.on_disconnect: Callable[[Listener], object] | None = None
        self.on_shutdown: Callable[[Listener], object] | None = None
        limit_buffers(transport)

    def write(self, frame: Frame) -> None:
        self._transport.write(frame.chunk)

    def is_slow(self) -> bool:
        return self._is_paused

    def keep_alive(self) -> None:
        self._transport.write(HEARTBEAT_CHUNK)

    def close(self, retry_seconds: float) -> None:
        if not self._is_paused:
            self._transport.write(chunk(closing_event(retry_seconds)) + LAST_CHUNK)
        self._transport.close()
        with suppress(RuntimeError):  # uvloop raises it for a closed connection.
            if self._transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(UNREAD_SECONDS_MAX, self._transport.abort)

    # --- called by the connection -----------------------------------------------------------------------------------

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self.catch_up()

    def server_shutting_down(self) -> None:
        if self.on_shutdown is not None:
            self.on_shutdown(self)
        else:
            self.close(0.0)

    def client_disconnected(self) -> None:
        if self.on_disconnect is not None:
            self.on_disconnect(self)
