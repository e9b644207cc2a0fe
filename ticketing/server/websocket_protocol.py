"""A client's WebSocket: uvicorn's protocol, with the limits it lacks and a notice before shutdown.

uvicorn (0.54, websockets) has three gaps. Pongs pile up for a client that pings and does not read. Text that is not
UTF-8 is logged with a traceback. A worker that ends closes every socket before the application can send a retry time.
"""

from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from apps.kernel.fastpath.server_extensions import SHUTDOWN_NOTICE

UNREAD_BYTES_MAX = 256 * 1024
"""Applications pause sending at a quarter of this. Only control frames in reply to a client can exceed it."""


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
        if scope is not None:  # None if the handshake was refused. The application's task has not begun yet.
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
