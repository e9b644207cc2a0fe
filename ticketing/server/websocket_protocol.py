"""A client's socket: uvicorn's own, with the bounds it lacks and a farewell.

What uvicorn (0.54, websockets) leaves open: pongs pile up for one who pings and does not read, a text that is not UTF-8
is logged with a trace, and a worker that ends closes every socket before the application could say when to come back.
"""

from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from apps.kernel.fastpath.server_extensions import SHUTDOWN_NOTICE

UNREAD_BYTES_MAX = 256 * 1024
"""An application that sends waits from a quarter of this on. Only control frames in reply to a client exceed it."""


class ShutdownNotice:
    """`tell` is called before the server closes the socket."""

    __slots__ = ("tell",)

    def __init__(self) -> None:
        self.tell: Callable[[], object] | None = None


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One client's WebSocket. A client that causes replies and does not read them is disconnected."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._ending = ShutdownNotice()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.transport.is_closing() and self.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            self.transport.abort()

    def shutdown(self) -> None:
        if self._ending.tell is None or self.close_sent:
            super().shutdown()
        else:
            self._ending.tell()

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        scope: Any = getattr(self, "scope", None)
        if scope is not None:  # Else the handshake was refused. The application's task has not begun yet.
            scope[SHUTDOWN_NOTICE] = self._ending

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.conn.send_close(1007)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()
