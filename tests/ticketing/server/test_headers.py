"""Headers that the application gets: those that were checked, and no others."""

from typing import Any

import pytest

from tests.support.connections import connection

HEAD = b"POST /api/a HTTP/1.1\r\nHost: testserver\r\nX-Own: 1\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
TRAILERS = b"Content-Type: multipart/form-data\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n"
NEXT = b"GET /api/b HTTP/1.1\r\nHost: testserver\r\nX-Next: 2\r\n\r\n"


class Collector:
    """An application that answers when it has the whole body, and notes the names of each request's headers then."""

    def __init__(self) -> None:
        self.names: list[set[bytes]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        self.names.append({name for name, _ in scope["headers"]})
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"{}"})


@pytest.mark.parametrize(
    "pieces", [(CHUNKED + TRAILERS,), (CHUNKED, TRAILERS), (CHUNKED, TRAILERS[:20], TRAILERS[20:])]
)
async def test_trailers_are_no_headers(pieces: tuple[bytes, ...]) -> None:
    application = Collector()
    protocol, line = connection(application)
    for piece in pieces:
        protocol.data_received(piece)
    assert [status for status, _ in await line.answers(1)] == [200]
    protocol.data_received(NEXT)
    assert [status for status, _ in await line.answers(1)] == [200]
    assert application.names == [{b"host", b"x-own", b"transfer-encoding"}, {b"host", b"x-next"}]


@pytest.mark.parametrize("name", ["Content-Type", "authorization", "Host", "ORIGIN", "Idempotency-Key"])
async def test_a_header_that_must_occur_once_is_not_repeated(name: str) -> None:
    application = Collector()
    protocol, line = connection(application)
    protocol.data_received(HEAD + f"{name}: a\r\n{name}: b\r\nContent-Length: 0\r\n\r\n".encode())
    assert [status for status, _ in await line.answers(1)] == [400]
    assert application.names == []
