"""What our own server and the lane say to each other beyond ASGI. Imported by the server before Django is set up."""

from collections.abc import Callable

WHOLE = "fairgate.whole"
"""Where the server puts into the scope what sends a whole answer: `(status, head, body)`, awaited. Other servers put
nothing there."""

STREAM = "fairgate.stream"
"""Where it puts what begins an answer that goes on: `(head) -> listener`, the headers as they travel; None where nobody
is left to listen. The request's task may end after it."""

ENDING = "fairgate.ending"
"""Where it puts, for a socket, who is to be told before it ends it: an object with the attribute `tell`."""

BY_NAME = "fairgate.headers"
"""Where it puts a request's headers by their names in lower case, if each was given once. Nobody changes them."""

CLIENT = "fairgate.client"
"""Where it puts what it knows of the client, a Client."""

Whole = tuple[int, bytes, bytes]
"""Status, headers as they travel (each with its line's end, the body's length among them, nothing about the
connection), and body."""

Later = Callable[[Whole | None], None]

AT_SIGHT = "at_sight"
"""The name under which an application offers to answer without a task: `at_sight(scope, body, later)`, called with a
request that is here whole. It returns the answer; or None: it is to be called as ASGI has it; or LATER: `later` will be
called once, on the loop, with one of these two."""


class Client:
    """Who waits at the other end of a connection."""

    __slots__ = ("has_gone",)

    def __init__(self) -> None:
        self.has_gone = False


LATER: Whole = (0, b"", b"")
