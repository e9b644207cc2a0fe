"""Streams of server-sent events, each a plain connection without task or coroutine, so that thousands cost little."""

import asyncio
import ssl
from collections.abc import Iterator
from functools import lru_cache
from typing import cast
from urllib.parse import urlsplit

import msgspec

from ticketing.simulator.api import RETRY_AFTER_SECONDS
from ticketing.simulator.plan import PlanRefused, addresses_of, is_loopback
from ticketing.simulator.stream_listeners import CACHED_FRAMES_MAX, Frame, StreamListener, StreamOpener, read_frame

HEAD_BYTES_MAX = 32 * 1024
WAITING_BYTES_MAX = 4 * 1024 * 1024
"""An incomplete event may be at most this long."""


class NotAnEventStream(ValueError):
    """The response is not a stream of events."""


@lru_cache(maxsize=CACHED_FRAMES_MAX)
def _frame(event: bytes) -> Frame:
    """Return the parsed event. Raises NotAnEventStream."""
    fields = {}
    for line in event.split(b"\n"):
        name, _, value = line.partition(b":")
        if name:
            fields[name] = value.removeprefix(b" ")
    if b"data" not in fields:
        return Frame()
    try:
        return read_frame(fields.get(b"event", b"").decode(), fields.get(b"id", b"").decode(), fields[b"data"])
    except (ValueError, msgspec.MsgspecError) as error:
        raise NotAnEventStream(f"{event[:100]!r}") from error


class Stream(asyncio.Protocol):
    """One connection: a response head, then events until either side closes it."""

    __slots__ = (
        "_body",
        "_has_ended",
        "_is_chunked",
        "_is_open",
        "_listener",
        "_request",
        "_rest",
        "_transport",
    )

    def __init__(self, listener: StreamListener, request: bytes) -> None:
        self._listener, self._request = listener, request
        self._transport: asyncio.Transport | None = None
        self._rest = self._body = b""
        self._is_open = self._is_chunked = self._has_ended = False

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._listener.stream = self
        self._transport.write(self._request)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._listener.ended(type(error).__name__ if error is not None else "no response")

    def data_received(self, data: bytes) -> None:
        if self._has_ended:
            return
        self._listener.last_data_at = self._listener.group.context.now()
        rest = self._rest + data if self._rest else data
        try:
            if not self._is_open:
                head, found, rest = rest.partition(b"\r\n\r\n")
                if not found:
                    if len(head) > HEAD_BYTES_MAX:
                        raise NotAnEventStream("the response head is too long")
                    self._rest = head
                    return
                if not self._read_head(head):
                    return
            self._rest = self._consume_body(rest)
        except NotAnEventStream as error:
            self._listener.report_breach(f"not a stream of events: {error}")
            self.close()

    def _read_head(self, head: bytes) -> bool:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, status = first.partition(" ")
        if not version.startswith("HTTP/1.1") or not status[:3].isdigit():
            raise NotAnEventStream(first[:100])
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if status[:3] != "200" or not fields.get("content-type", "").startswith("text/event-stream"):
            self._has_ended = True
            after = fields.get("retry-after", "")
            self._listener.refused(int(status[:3]), float(after) if after.isdigit() else RETRY_AFTER_SECONDS)
            self.close()
            return False
        self._is_open = True
        self._is_chunked = "chunked" in fields.get("transfer-encoding", "").lower()
        self._listener.opened()
        return True

    def _consume_body(self, rest: bytes) -> bytes:
        """Consume the complete chunks and return the rest."""
        at = 0
        if self._is_chunked:
            pieces: list[bytes] = []
            for begin, end in _pieces(rest):
                if end == begin:
                    self._consume_events(b"".join(pieces))
                    self.close()
                    return b""
                pieces.append(rest[begin:end])
                at = end + 2
            self._consume_events(b"".join(pieces))
            return rest[at:] if at else rest
        self._consume_events(rest)
        return b""

    def _consume_events(self, piece: bytes) -> None:
        *events, self._body = (self._body + piece).split(b"\n\n")
        if len(self._body) > WAITING_BYTES_MAX:
            raise NotAnEventStream("an event is too long")
        for event in events:
            self._listener.receive(_frame(event))


def _pieces(rest: bytes) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each complete chunk of a chunked body; the last one is empty."""
    at = 0
    while (line := rest.find(b"\r\n", at)) >= 0:
        try:
            size = int(rest[at:line].partition(b";")[0], 16)
        except ValueError as error:
            raise NotAnEventStream(f"{rest[at:line][:40]!r} instead of a chunk size") from error
        if not 0 <= size <= WAITING_BYTES_MAX:
            raise NotAnEventStream(f"a chunk of {size} bytes")
        begin, end = line + 2, line + 2 + size
        if size and len(rest) < end + 2:
            return
        yield begin, end
        if not size:
            return
        at = end + 2


def open_streams(base: str, event: str, *, anywhere: bool) -> StreamOpener:
    """Return a function that opens a stream of this event. The host name is resolved once; without `anywhere`, only
    addresses of this machine are used. Raises PlanRefused."""
    parts = urlsplit(base)
    is_secure = parts.scheme == "https"
    host, port = parts.hostname or "", parts.port or (443 if is_secure else 80)
    addresses = [address for address in addresses_of(host, port) if anywhere or is_loopback(address)]
    if not addresses:
        raise PlanRefused(f"{host} is not this machine")
    context = ssl.create_default_context() if is_secure else None

    async def open_one(listener: StreamListener) -> None:
        loop = asyncio.get_running_loop()
        lines = [
            f"GET /api/events/{event}/sections/updates HTTP/1.1",
            f"Host: {parts.netloc}",
            "Accept: text/event-stream",
            "User-Agent: fairgate-simulate",
            *([f"Last-Event-ID: {listener.last_id}"] if listener.last_id else []),
        ]
        request = "\r\n".join(lines).encode() + b"\r\n\r\n"
        failure: OSError = OSError("no address")
        for address in list(addresses):
            try:
                await loop.create_connection(
                    lambda: Stream(listener, request),
                    address,
                    port,
                    ssl=context,
                    server_hostname=host if is_secure else None,
                )
            except OSError as error:
                failure = error
            else:
                # The next stream tries this address first.
                addresses.remove(address)
                addresses.insert(0, address)
                return
        raise failure

    return open_one
