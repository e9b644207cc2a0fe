"""The HTTP protocol of the server: pipelined requests, requests in several pieces, idle connections."""

import asyncio
from typing import Any

import pytest

from tests.support.connections import connection, request


async def echo(scope: Any, receive: Any, send: Any) -> None:
    message = await receive()
    body = b'{"path":"%b","size":%d}' % (scope["raw_path"], len(message["body"]))
    head = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def test_whole_and_divided_requests_follow_each_other_on_one_connection() -> None:
    wire, line = connection(echo)
    whole, divided = request("POST", "/whole", b"{}"), request("POST", "/divided", b"{ }")
    for pieces in (
        [whole],
        [divided[:20], divided[20:]],
        [whole],
        [divided[:-1], divided[-1:]],
        [whole + divided],
        [whole],
    ):
        for piece in pieces:
            wire.data_received(piece)
        expected = [("/whole", 2)] * (whole in pieces or pieces[0].startswith(whole)) + [("/divided", 3)] * (
            pieces != [whole]
        )
        assert await line.answers(len(expected)) == [(200, {"path": path, "size": size}) for path, size in expected]


async def test_a_pipelined_request_waits_for_the_response_before_it() -> None:
    released = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/first":
            await released.wait()
        await echo(scope, receive, send)

    wire, line = connection(slow)
    wire.data_received(request("GET", "/first"))
    wire.data_received(request("GET", "/second"))
    wire.data_received(request("GET", "/third"))
    assert line.written == b""
    released.set()
    assert [document["path"] for _, document in await line.answers(3)] == ["/first", "/second", "/third"]


async def test_an_idle_connection_is_closed_and_one_in_use_is_not() -> None:
    wire, line = connection(echo)
    wire.timeout_keep_alive = 3_600
    wire.data_received(request("GET", "/"))
    await line.answers(1)
    timer = wire.timeout_keep_alive_task
    assert timer is not None
    wire.data_received(request("GET", "/"))
    wire.timeout_keep_alive_handler()  # While it is being answered.
    assert not line.is_closed
    await line.answers(1)
    wire.timeout_keep_alive_handler()  # A moment after its answer.
    assert not line.is_closed
    wire.timeout_keep_alive = 0
    wire.timeout_keep_alive_handler()
    assert line.is_closed


async def test_a_request_that_begins_on_an_idle_connection_has_the_header_timeout_not_the_idle_one() -> None:
    wire, line = connection(echo)
    wire.timeout_keep_alive = 3_600
    wire.data_received(request("GET", "/"))
    await line.answers(1)
    whole = request("GET", "/slow")
    wire.data_received(whole[:-1])
    assert wire.timeout_keep_alive_task is None
    wire.data_received(whole[-1:])
    assert [document["path"] for _, document in await line.answers(1)] == ["/slow"]
    assert wire.timeout_keep_alive_task is not None


@pytest.mark.parametrize(
    ("what", "by"),
    [
        (b"Content-Length: 7", b"Content-Length: +7"),
        (b"Content-Length: 7", b"Content-Length: 7\r\nContent-Length: 8"),
        (b"Content-Length: 7", b"Content-Length: 7\r\nTransfer-Encoding: chunked"),
        (b"Host: ", b"Host : "),
        (b"Host: ", b"Ho(st: "),
        (b"testserver", b"test\0server"),
        (b"HTTP/1.1", b"HTTP/1.1 x"),
    ],
)
async def test_a_request_that_two_servers_could_read_differently_is_malformed(what: bytes, by: bytes) -> None:
    wire, line = connection(echo)
    damaged = request("POST", "/whole", b'{"a":1}').replace(what, by, 1)
    wire.data_received(damaged)
    assert (await line.answers(1))[0][0] == 400
    assert line.is_closed
