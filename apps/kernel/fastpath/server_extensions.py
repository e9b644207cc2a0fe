"""What our own server and the lane say to each other beyond ASGI. Imported by the server before Django is set up."""

from collections.abc import Callable

SEND_RESPONSE = "fairgate.whole"
"""Where the server puts into the scope what sends a whole answer: `(status, head, body)`, awaited. Other servers put
nothing there."""

START_STREAM = "fairgate.stream"
"""Where it puts what begins an answer that goes on: `(head) -> listener`, the headers as they travel; None where nobody
is left to listen. The request's task may end after it."""

SHUTDOWN_NOTICE = "fairgate.ending"
"""Where it puts, for a socket, who is to be told before it ends it: an object with the attribute `tell`."""

HEADERS_BY_NAME = "fairgate.headers"
"""Where it puts a request's headers by their names in lower case, if each was given once. Nobody changes them."""

CLIENT = "fairgate.client"
"""Where it puts what it knows of the client, a Client."""

RawResponse = tuple[int, bytes, bytes]
"""Status, headers as they travel (each with its line's end, the body's length among them, nothing about the
connection), and body."""

OnResponse = Callable[[RawResponse | None], None]

RESPOND_SYNC = "respond_sync"
"""The name under which an application offers to answer without a task: `respond_sync(scope, body, later)`, called with
a request that is here whole. It returns the answer; or None: it is to be called as ASGI has it; or DEFERRED: `later`
will be called once, on the loop, with one of these two."""


class Client:
    """Who waits at the other end of a connection."""

    __slots__ = ("has_disconnected",)

    def __init__(self) -> None:
        self.has_disconnected = False


DEFERRED: RawResponse = (0, b"", b"")
