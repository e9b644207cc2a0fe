"""A client's WebSocket: uvicorn's protocol, with the limits it lacks and a notice before shutdown.

Clients only listen, so a data frame closes the socket. uvicorn (0.54, websockets) has four more gaps. It answers any
number of pings, each of which costs a parse and a write. It leaves a connection open without a response or a timer if
websockets refuses the handshake. A closed socket stays open while its client does not read. A worker that ends closes
every socket before the application can send a retry time.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.protocol import State

from apps.kernel.fastpath.server_extensions import SHUTDOWN_NOTICE, SOCKET_FRAME
from ticketing.server.event_stream import UNREAD_SECONDS_MAX, limit_buffers

MESSAGE_BYTES_MAX = 4 * 1024
"""Of a longer frame only the header is read."""
PIECE_BYTES = 512
"""Received data is parsed in pieces of this size: what follows a refused frame is not parsed."""
CONTROL_FRAMES_BURST = 20
CONTROL_FRAMES_PER_SECOND = 1.0
"""More pings and pongs of a client close its socket. A client that only answers our pings sends one in 20 seconds."""
UNREAD_BYTES_MAX = 256 * 1024
"""Beside the application's last frame. Applications pause sending before this, so only control frames in reply to a
client exceed it."""


class ShutdownNotice:
    """`tell` is called before the server closes the socket."""

    __slots__ = ("tell",)

    def __init__(self) -> None:
        self.tell: Callable[[], object] | None = None


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One client's WebSocket. A client that sends messages or many control frames is disconnected."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._ending = ShutdownNotice()
        self.on_lost: Callable[[], object] | None = None
        """Called when the connection is lost."""
        self._unread_clock: asyncio.TimerHandle | None = None
        self._frame_bytes = 0
        """The size of the last frame, which a client that reads slowly has not got completely yet."""
        self._control_frames = 0.0
        self._counted_at = 0.0

    # --- called by the transport -------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        limit_buffers(transport)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread_clock is None:
            self._unread_clock = self.loop.call_later(UNREAD_SECONDS_MAX, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_unread_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_unread_clock()
        if self.on_lost is not None:
            self.on_lost()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            self._receive_handshake(data)
        elif not self.handshake_complete:
            self.transport.abort()  # The client must wait for the response to its handshake.
        else:
            for start in range(0, len(data), PIECE_BYTES):
                if self.transport.is_closing():
                    return
                super().data_received(data[start : start + PIECE_BYTES])
            if self.transport.is_closing():
                return
            if self.transport.get_write_buffer_size() > UNREAD_BYTES_MAX + self._frame_bytes:
                self.transport.abort()

    def _receive_handshake(self, data: bytes) -> None:
        """Receive the whole request of the handshake, which the HTTP connection has parsed."""
        super().data_received(data)
        if not self.handshake_initiated:
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    # --- called by uvicorn -------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        if self._ending.tell is None or self.close_sent:
            super().shutdown()
        else:
            self._ending.tell()

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        scope: Any = getattr(self, "scope", None)
        if scope is not None:  # None if the handshake was refused. The application's task has not begun yet.
            scope[SHUTDOWN_NOTICE] = self._ending

    def handle_text(self, event: Any) -> None:
        self._refuse(CloseCode.UNSUPPORTED_DATA, "clients send no messages")

    handle_bytes = handle_cont = handle_text

    def handle_ping(self) -> None:
        if self._count_control_frame():
            super().handle_ping()

    def handle_pong(self, event: Any) -> None:
        if self._count_control_frame():
            super().handle_pong(event)

    async def send(self, message: Any) -> None:
        if SOCKET_FRAME in message:
            await self._send_frame(message[SOCKET_FRAME])
            return
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True  # Otherwise uvicorn logs an error: it forgets that this is a response.

    def handle_parser_exception(self) -> None:
        super().handle_parser_exception()
        self.disconnected = True  # What the application still sends is discarded.

    def send_keepalive_ping(self) -> None:
        if self.close_sent or self.transport.is_closing():
            self.transport.abort()  # Its client has not read the close frame.
        else:
            super().send_keepalive_ping()

    def keepalive_timeout(self) -> None:
        self.transport.abort()  # A client that does not answer does not read a close frame either.

    async def _send_frame(self, frame: bytes) -> None:
        """Write a whole frame. uvicorn would copy it twice for each socket."""
        await self.writable.wait()
        if self.disconnected or self.close_sent or self.conn.state is not State.OPEN:
            raise ClientDisconnected
        self._frame_bytes = len(frame)
        self.transport.write(frame)

    def _stop_unread_clock(self) -> None:
        if self._unread_clock is not None:
            self._unread_clock.cancel()
            self._unread_clock = None

    # --- refusals ----------------------------------------------------------------------------------------------------

    def _count_control_frame(self) -> bool:
        """Return whether the client may send this ping or pong; otherwise the socket is closed."""
        if self.transport.is_closing():
            return False
        now = self.loop.time()
        earlier = self._control_frames - (now - self._counted_at) * CONTROL_FRAMES_PER_SECOND
        self._control_frames, self._counted_at = max(earlier, 0.0) + 1, now
        if self._control_frames <= CONTROL_FRAMES_BURST:
            return True
        self._refuse(CloseCode.POLICY_VIOLATION, "too many control frames")
        return False

    def _refuse(self, code: CloseCode, reason: str) -> None:
        """Close the socket without waiting for the client's close frame."""
        if self.transport.is_closing():
            return
        if self.close_sent:
            self.transport.abort()
            return
        self.conn.fail(code, reason)
        self.handle_parser_exception()
