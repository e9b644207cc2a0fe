"""Extensions of ASGI between our own server and the fast path. Imported by the server before Django is set up."""

from collections.abc import Callable

SEND_RESPONSE = "fairgate.whole"
"""Scope key: the coroutine function `(status, head, body)` that sends a whole response. Only our own server sets this
key and the keys below."""

START_STREAM = "fairgate.stream"
"""Scope key: the function `(head) -> listener` that starts a response without an end. `head` is the encoded header
lines; the result is None if the client has disconnected. The request's task may end after the call."""

SHUTDOWN_NOTICE = "fairgate.ending"
"""Scope key of a WebSocket: an object whose attribute `tell` is called before the server closes the socket."""

SOCKET_FRAME = "fairgate.frame"
"""Key of a `websocket.send` message: a whole WebSocket frame, which is written as it is, the same bytes to all sockets.
Only for a socket whose scope has SHUTDOWN_NOTICE."""

HEADERS_BY_NAME = "fairgate.headers"
"""Scope key: the request's headers by lower-case name, set only if each name occurs once. Read-only."""

CLIENT = "fairgate.client"
"""Scope key: the connection's `Client`."""

RawResponse = tuple[int, bytes, bytes]
"""Status, encoded header lines (each with its line end, with the content length, without connection headers), and
body."""

OnResponse = Callable[[RawResponse | None], None]

CONNECTION_CAP, BODY_CAP = "connection_cap", "body_cap"
"""Attributes of an application: objects with `enter(address) -> bool`, `leave(address)` and `total`, which cap the
connections and the unfinished request bodies of each client address. Absent: no cap."""

RESPOND_SYNC = "respond_sync"
"""The method of an application that can answer without a task: `respond_sync(scope, body, later)`, called with a
completely received request. It returns the response, or None if the server must call the application through ASGI, or
DEFERRED if the application will call `later` once, on the event loop, with a response or None."""


class Client:
    """The state of a connection's client."""

    __slots__ = ("has_disconnected", "is_ending")

    def __init__(self) -> None:
        self.has_disconnected = False
        self.is_ending = False
        """Whether the present request is the last one, since the server is shutting down."""


DEFERRED: RawResponse = (0, b"", b"")
