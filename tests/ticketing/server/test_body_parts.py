"""Bodies in many parts: each part costs the event loop, however few bytes it has."""

from typing import Any

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tests.support.connections import connection, request
from ticketing.server.http_protocol import BODY_PARTS_MAX, PART_BYTES_MIN

HEAD = b"POST /api/a HTTP/1.1\r\nHost: testserver\r\nTransfer-Encoding: chunked\r\n\r\n"


class Reader:
    """An application that answers when it has the whole body."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        parts, more = [], True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            parts.append(message["body"])
            more = message["more_body"]
        self.bodies.append(b"".join(parts))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"{}"})


def chunks(count: int, size: int) -> bytes:
    return b"%x\r\n%b\r\n" % (size, b"a" * size) * count


@pytest.mark.parametrize(
    ("count", "size"), [(BODY_PARTS_MAX, 1), (BODY_PARTS_MAX + 1, PART_BYTES_MIN), (4 * BODY_PARTS_MAX, 1_000)]
)
async def test_few_parts_may_be_small_and_many_may_not(count: int, size: int) -> None:
    application = Reader()
    protocol, line = connection(application)
    for _ in range(2):  # The second request on the connection begins to count anew.
        protocol.data_received(HEAD + chunks(count, size) + b"0\r\n\r\n")
        assert [status for status, _ in await line.answers(1)] == [200]
    assert application.bodies == [b"a" * count * size] * 2


@pytest.mark.parametrize("is_in_pieces", [False, True])
async def test_a_body_of_many_tiny_parts_is_refused_before_the_rest_is_parsed(
    is_in_pieces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[bytes] = []
    monkeypatch.setattr(HttpToolsProtocol, "on_body", lambda protocol, body: parsed.append(body))
    application = Reader()
    protocol, line = connection(application)
    sent = HEAD + chunks(20_000, 1) + b"0\r\n\r\n"
    for piece in [sent] if not is_in_pieces else [sent[start : start + 1_000] for start in range(0, len(sent), 1_000)]:
        protocol.data_received(piece)
    ((status, problem),) = await line.answers(1)
    assert (status, problem["type"]) == (400, "malformed")
    assert line.is_closed
    assert application.bodies == []
    assert len(parsed) == BODY_PARTS_MAX


async def test_a_body_of_known_length_in_single_bytes_is_refused() -> None:
    protocol, line = connection(Reader())
    sent = request("POST", "/api/a", b"a" * 2_000)
    for start in range(len(sent)):
        protocol.data_received(sent[start : start + 1])
    assert [status for status, _ in await line.answers(1)] == [400]
