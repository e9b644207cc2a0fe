"""Extensions of ASGI between our own server and the fast path. Imported by the server before Django is set up."""

from collections.abc import Callable

SEND_RESPONSE = "fairgate.whole"
"""Key in the scope of the coroutine function that sends a whole response: `(status, head, body)`. Other servers do not
set it, nor the keys below."""

START_STREAM = "fairgate.stream"
"""Key in the scope of the function that starts a response without an end: `(head) -> listener`, with the encoded header
lines; it returns None if the client has disconnected. The request's task may end after it."""

SHUTDOWN_NOTICE = "fairgate.ending"
"""Key in a WebSocket's scope of an object whose attribute `tell` is called before the server closes the socket."""

HEADERS_BY_NAME = "fairgate.headers"
"""Key in the scope of the request's headers by lower-case name, if each name occurs once. Read-only."""

CLIENT = "fairgate.client"
"""Key in the scope of the connection's `Client`."""

RawResponse = tuple[int, bytes, bytes]
"""Status, encoded header lines (each with its line end, the content length among them, nothing about the connection),
and body."""

OnResponse = Callable[[RawResponse | None], None]

RESPOND_SYNC = "respond_sync"
"""The attribute of an application that can answer without a task: `respond_sync(scope, body, later)`, called with a
completely received request. It returns the response; or None: the application is to be called through ASGI; or
DEFERRED: `later` will be called once, on the event loop, with a response or None."""


class Client:
    """The state of a connection's client."""

    __slots__ = ("has_disconnected",)

    def __init__(self) -> None:
        self.has_disconnected = False


DEFERRED: RawResponse = (0, b"", b"")
