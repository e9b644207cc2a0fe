"""A request parsed in one piece equals the request that httptools parses."""

import asyncio
from typing import Any

import httptools
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.connections import connection, request
from tests.support.tiers import examples
from ticketing.server.fast_parser import parse_request

PLAIN = request("POST", "/api/events/concert/reservations?n=1", b'{"a":1}', Idempotency_Key="one", Cookie="a=b; c=d")


class Reading:
    """Collects the callbacks of httptools."""

    def __init__(self, data: bytes) -> None:
        self.url, self.body, self.messages = b"", b"", 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.messages += 1


def same_as_httptools(data: bytes) -> bool:
    """Return whether the request was parsed; if it was, require that httptools parses it the same."""
    piece = parse_request(data)
    if piece is None:
        return False
    reading = Reading(data)
    url = httptools.parse_url(reading.url)
    assert reading.messages == 1
    assert reading.parser.should_keep_alive()
    assert not reading.parser.should_upgrade()
    assert reading.parser.get_http_version() == "1.1"
    assert (piece.method.encode(), piece.path, piece.query) == (reading.parser.get_method(), url.path, url.query or b"")
    assert (piece.headers, piece.body) == (reading.headers, reading.body)
    assert piece.by_name == dict(piece.headers)
    return True


def test_usual_requests_are_parsed() -> None:
    assert same_as_httptools(PLAIN)
    assert same_as_httptools(request("GET", "/api/events/concert/sections", Connection="keep-alive"))
    assert same_as_httptools(b"GET / HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize(
    ("what", "by"),
    [
        (b"POST", b"HEAD"), (b"POST", b"post"), (b"POST", b"GET"),
        (b"HTTP/1.1", b"HTTP/1.0"), (b"HTTP/1.1", b"HTTP/1.1 "),
        (b"concert", b"con cert"), (b"concert", b"con%63ert"), (b"concert", b"con\xc3\xa9"), (b"?n=1", b"?n=1#top"),
        (b"/api", b"http://elsewhere/api"), (b"/api", b"*"),
        (b"Content-Length: 7", b"Content-Length: 6"), (b"Content-Length: 7", b"Content-Length: 8"),
        (b"Content-Length: 7", b"Content-Length: +7"), (b"Content-Length: 7", b"Content-Length: 0007, 7"),
        (b"Content-Length: 7", b"Transfer-Encoding: chunked"), (b"Content-Length: 7", b"X-Length: 7"),
        (b"Content-Length: 7", b"Content-Length: 7\r\nTransfer-Encoding: chunked"),
        (b"Cookie: a=b", b"Content-Length: 7\r\nCookie: a=b"), (b"Cookie: a=b", b"Host: other\r\nCookie: a=b"),
        (b"Cookie: a=b", b"Connection: close"), (b"Cookie: a=b", b"Connection: keep-alive, upgrade"),
        (b"Cookie: a=b", b"Upgrade: websocket"), (b"Cookie: a=b", b"Expect: 100-continue"),
        (b"Cookie: a=b", b"Cookie : a=b"), (b"c=d", b"c=d "), (b"a=b; c=d", b""),
        (b"Cookie: a=b", b"Cookie: a\r\n =b"), (b"Cookie: a=b", b"Cookie: a\n=b"), (b"Cookie: a=b", b"Cookie: a\r=b"),
        (b"Cookie: a=b", b"Cookie: a\0=b"), (b"Cookie: a=b", b"Cookie: a\xff=b"), (b"Cookie: a=b", b"Coo(kie: a=b"),
        (b"Cookie: a=b", b": a=b"), (b"Cookie: a=b", b"Cookie"), (b"\r\n\r\n", b"\n\n"), (b"\r\n\r\n", b"\r\n"),
        (b"Cookie: a=b", b"Cookie: " + b"a" * 20_000), (b"Cookie: a=b", b"\r\n".join(b"a%d: b" % n for n in range(80))),
    ],
)  # fmt: skip
def test_unusual_requests_are_left_to_httptools(what: bytes, by: bytes) -> None:
    assert PLAIN.count(what) >= 1
    assert parse_request(PLAIN.replace(what, by, 1)) is None


def test_two_requests_at_once_are_left_to_httptools() -> None:
    assert parse_request(PLAIN + PLAIN) is None
    assert parse_request(request("GET", "/") + PLAIN) is None


_names = st.sampled_from(
    [
        "Host",
        "host",
        "Cookie",
        "Content-Length",
        "CONTENT-LENGTH",
        "Transfer-Encoding",
        "Connection",
        "Expect",
        "TE",
        "X-A",
    ]
)
_values = st.one_of(
    st.sampled_from(["7", "0", "keep-alive", "Keep-Alive", "close", "chunked", "gzip", "upgrade", "a", " a", "a ", ""]),
    st.text(st.characters(max_codepoint=0x17F), max_size=8),
)
_separators = st.sampled_from([": ", ":", " : ", ":  ", ":\t", ""])
_ends = st.sampled_from(["\r\n", "\n", "\r\n ", "\r"])


@st.composite
def _requests(draw: st.DrawFn) -> bytes:
    method = draw(st.sampled_from(["GET", "POST", "HEAD", "PUT", "GET ", "get"]))
    path = draw(
        st.sampled_from(["/", "/a/b-c_d.e~f", "/a?b=c&d=%20", "/a?", "/a%20b", "//a", "/a b", "*", "http://a/b", ""])
    )
    version = draw(st.sampled_from(["1.1", "1.1", "1.1", "1.0", "2.0"]))
    lines = [draw(_names) + draw(_separators) + draw(_values) for _ in range(draw(st.integers(0, 4)))]
    ends = [draw(st.one_of(st.just("\r\n"), _ends)) for _ in lines]
    body = draw(st.sampled_from(["", "seven!!", "0\r\n\r\n", "GET / HTTP/1.1\r\n\r\n"]))
    text = f"{method} {path} HTTP/{version}\r\n" + "".join(map("".join, zip(lines, ends, strict=True))) + "\r\n" + body
    return text.encode("latin-1", "replace")


@given(_requests())
@settings(max_examples=examples(600), deadline=None)
@example(PLAIN)
def test_every_parsed_request_equals_that_of_httptools(data: bytes) -> None:
    same_as_httptools(data)


@given(st.integers(0, len(PLAIN) - 1), st.binary(min_size=0, max_size=3))
@settings(max_examples=examples(600), deadline=None)
def test_a_plain_request_with_any_damage_is_parsed_as_by_httptools(at: int, by: bytes) -> None:
    same_as_httptools(PLAIN[:at] + by + PLAIN[at + 1 :])


async def echo(scope: Any, receive: Any, send: Any) -> None:
    message = await receive()
    body = b'{"path":"%b","size":%d}' % (scope["raw_path"], len(message["body"]))
    head = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def test_whole_and_broken_requests_follow_each_other_on_one_connection() -> None:
    wire, line = connection(echo)
    whole, other = request("POST", "/whole", b"{}"), request("POST", "/broken", b"{ }")
    for pieces in ([whole], [other[:20], other[20:]], [whole], [other[:-1], other[-1:]], [whole + other], [whole]):
        for piece in pieces:
            wire.data_received(piece)
        wanted = [("/whole", 2)] * (whole in pieces or pieces[0].startswith(whole)) + [("/broken", 3)] * (
            pieces != [whole]
        )
        assert await line.answers(len(wanted)) == [(200, {"path": path, "size": size}) for path, size in wanted]


async def test_requests_received_during_a_response_wait_for_it() -> None:
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
    assert [found["path"] for _, found in await line.answers(3)] == ["/first", "/second", "/third"]


async def test_an_idle_connection_is_closed_and_a_used_one_is_not() -> None:
    wire, line = connection(echo)
    wire.timeout_keep_alive = 3_600
    wire.data_received(request("GET", "/"))
    await line.answers(1)
    clock = wire.timeout_keep_alive_task
    assert clock is not None
    wire.data_received(request("GET", "/"))
    wire.timeout_keep_alive_handler()  # During the response.
    assert not line.is_closed
    await line.answers(1)
    wire.timeout_keep_alive_handler()  # Just after the response.
    assert not line.is_closed
    wire.timeout_keep_alive = 0
    wire.timeout_keep_alive_handler()
    assert line.is_closed
