"""The three endpoints of live updates: server-sent events, a WebSocket and a short poll, with the same frames.

`GET /api/events/<slug>/sections/updates` with `?section=` (its seats, for admitted buyers; up to four sections),
`?reservation=` and `?order=` (for their owner). A client that accepts event streams gets one; others get the current
frames as one document, with `since`, ETag and `next_poll`. The same URL accepts WebSockets. A reconnecting client gets
the complete state again, except the frame that it has already read (Last-Event-ID).
"""

import asyncio
import hashlib
import itertools
import logging
import random
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from time import monotonic
from typing import Any

from django.conf import settings
from django.http import QueryDict

from apps.events import facade as events
from apps.kernel import rate_limits
from apps.kernel.fastpath import response, thread_pool
from apps.kernel.fastpath.etags import has_etag
from apps.kernel.fastpath.request import QUERY_BYTES_MAX, ForwardToSite, Receive, Request, Scope, Send
from apps.kernel.fastpath.response import JSON, Reply
from apps.kernel.fastpath.server_extensions import SHUTDOWN_NOTICE, SOCKET_FRAME, START_STREAM
from apps.kernel.http import client_address, problems, same_origin
from apps.kernel.observability import request_metrics
from apps.kernel.push.buffered_listener import QueuedListener
from apps.kernel.push.channel_names import topic_of
from apps.kernel.push.frames import Frame
from apps.kernel.push.hub import Hub, Listener
from apps.kernel.rate_limits import address_caps, kinds
from apps.queue import facade as queue
from apps.reservations.live.account_listeners import AccountListeners
from apps.reservations.live.event_updates import EventUpdates
from apps.reservations.live.queries import OwnerReader
from apps.reservations.live.seat_viewers import SeatViewers
from apps.reservations.ownership import get_reservation_for
from apps.reservations.serializers import SECTIONS_MAX

logger = logging.getLogger(__name__)

PATH = re.compile(r"/api/events/(?P<slug>[-a-zA-Z0-9_]+)/sections/updates")
COPIED_BYTES_MAX = 16 * 1024
"""Larger frames are sent without a copy for each client."""
NEXT_POLL_MS, NEXT_POLL_SPREAD_MS = 3_000, 1_000
_STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    # nginx would buffer small chunks.
    (b"x-accel-buffering", b"no"),
)
_random = random.Random()  # noqa: S311 - It only spreads polls.

Authorize = Callable[[queue.Caller, Request, uuid.UUID], object]
"""Raises a problem unless the caller owns the thing with this id. Blocks: call it in a thread."""


class TooManyListeners(problems.Busy):
    """All connections of this process are in use; short polls still work."""


class TooManyStreams(problems.Problem):
    """The client's address has as many open streams and WebSockets as it may have; short polls still work."""

    type, status, title = "rate-limited", 429, "Too many live connections are open from your address. Poll instead."
    retry_after_seconds = address_caps.RETRY_SECONDS


class LiveEndpoints:
    """The endpoints of one process."""

    def __init__(self) -> None:
        self.hub = Hub()
        self.event_updates = EventUpdates(self.hub)
        self._seat_viewers = SeatViewers(self.hub)
        self._account_listeners = AccountListeners(self.hub)
        self._authorize: dict[str, Authorize] = {
            "reservation": lambda caller, _, reservation_id: get_reservation_for(caller, reservation_id)
        }
        self._numbers = itertools.count(1)
        self._streams = address_caps.AddressCap("streams", settings.ADDRESS_STREAMS_MAX)

    def register_owned(self, kind: str, authorize: Authorize, reader: OwnerReader) -> None:
        """Let owners follow things of this kind."""
        self._authorize[kind] = authorize
        self.event_updates.add_owned(kind, reader)

    async def close(self) -> None:
        """Disconnect all listeners."""
        self._seat_viewers.close()
        self._account_listeners.close()
        await self.event_updates.close()

    # --- HTTP --------------------------------------------------------------------------------------------------------

    async def http(self, scope: Scope, receive: Receive, send: Send, slug: str) -> None:
        """Answer a GET request; the stream may continue after this returns."""
        request = Request(scope, receive)
        request.id = f"live{next(self._numbers):x}"
        thread_pool.set_client(client_address.address_from_scope(scope))
        begun, status = monotonic(), 200
        try:
            self._check_rate_limit(request)
            wanted = _Subscriptions(request, self._authorize)
            event = await events.get_cached_event(slug)
            caller = await self._check(request, event, wanted)
            # HTTP/1.0 has no chunked responses.
            if request.accepts_event_stream() and scope.get("http_version") != "1.0":
                await self._stream(request, send, event, caller, wanted)
            else:
                reply, parts = await self._poll(request, event, wanted)
                status = reply.status
                await _send(reply, request, send, parts)
        except Exception as error:  # noqa: BLE001 - Every error becomes a response.
            reply = _refusal(request, error)
            status = reply.status
            await _send(reply, request, send)
        request_metrics.record_response("updates", request.method, status, monotonic() - begun)

    def _check_rate_limit(self, request: Request) -> None:
        address, headers = client_address.address_from_scope(request.scope), request.headers
        named = kinds.token_of(headers.get("authorization", ""), headers.get("cookie", ""))
        wait_seconds = rate_limits.check_request("read", address, named)
        if wait_seconds is not None:
            raise problems.RateLimited(wait_seconds)

    async def _check(self, request: Request, event: events.EventView, wanted: "_Subscriptions") -> queue.Caller | None:
        """Return the caller if a personal subscription needs it. Raises the errors of the corresponding API calls."""
        if not wanted.is_personal:
            return None
        try:
            caller = await queue.authenticate_async(request, event.slug)
        except ForwardToSite:
            caller = queue.Caller()  # For example, an expired session, which only the site can correct.
        if wanted.sections:
            if not caller.is_known:
                raise problems.TokenMissing
            queue.require_entry(event.id, await queue.claim_or_get_entry_async(event, caller))
        for kind, thing in wanted.things:
            await thread_pool.run_for_client(self._authorize[kind], caller, request, thing)
        return caller

    async def _frames(self, event: events.EventView, wanted: "_Subscriptions") -> list[Frame]:
        """Return the current frames, without subscribing."""
        frames = await self.event_updates.follow_event(event)
        for section in self._sections(event, wanted):
            if seats := await self.event_updates.seats.read_once(section):
                frames.append(seats)
        for kind, thing in wanted.things:
            state = await self.event_updates.owned(kind).read_once(thing)
            if state is not None:
                frames.append(state)
        return frames

    def _sections(self, event: events.EventView, wanted: "_Subscriptions") -> list[tuple[int, str]]:
        """Return ids and slugs of the subscribed sections. Raises NotFound."""
        found = []
        for slug in wanted.sections:
            section_id = self.event_updates.section_of(event.id, slug)
            if section_id is None:
                raise problems.NotFound("There is no such section.")
            found.append((section_id, slug))
        return found

    async def _poll(
        self, request: Request, event: events.EventView, wanted: "_Subscriptions"
    ) -> tuple[Reply, list[bytes]]:
        """Return the response and the parts of its body."""
        frames = await self._frames(event, wanted)
        frames = [one for one in frames if not one.id or one.id != wanted.since]
        etag = f'W/"{hashlib.sha256(b"".join(one.digest for one in frames)).hexdigest()[:24]}"'
        headers = [(b"etag", etag.encode()), (b"cache-control", b"private, no-cache")]
        known = request.headers.get("if-none-match")
        if known is not None and has_etag(known, etag):
            return Reply(304, b"", headers), []
        # `next_poll` is random and not part of the ETag.
        next_poll = NEXT_POLL_MS + _random.randrange(NEXT_POLL_SPREAD_MS)
        return Reply(200, b"", [JSON, *headers]), _parts(frames, next_poll)

    async def _stream(
        self,
        request: Request,
        send: Send,
        event: events.EventView,
        caller: queue.Caller | None,
        wanted: "_Subscriptions",
    ) -> None:
        self._require_room()
        await self.event_updates.follow_event(event)
        self._sections(event, wanted)
        begin = request.scope.get(START_STREAM)
        if request.method == "HEAD":
            await _send(Reply(200, b"", _STREAM_HEADERS), request, send)
            return
        leave_cap = self._enter_cap(request)
        if begin is None:
            await self._stream_over_asgi(request, send, event, caller, wanted, leave_cap)
            return
        listener = begin(Reply(200, b"", _STREAM_HEADERS).stream_lines(request.id, secure=request.is_secure()))
        if listener is None:
            leave_cap()
            return
        listener.on_left = leave_cap
        listener.on_disconnect, listener.on_shutdown = self.hub.leave, self.hub.disconnect
        await self._send_initial_state(listener, event, caller, wanted)

    async def _send_initial_state(
        self, listener: Listener, event: events.EventView, caller: queue.Caller | None, wanted: "_Subscriptions"
    ) -> None:
        """Subscribe the listener and send it the current state."""
        self.hub.listen(listener, [topic_of(event.id)])
        if caller is not None and caller.account_version is not None:
            self._account_listeners.add(listener, caller.account_version)
        for one in await self.event_updates.follow_event(event):
            if not one.id or one.id != wanted.since:
                listener.send_frame(one)
        sections = self._sections(event, wanted)
        for section in sections:
            await _send_first_frame(listener, self.event_updates.seats.watch(listener, section))
        if sections and caller is not None:
            shown = {self.event_updates.seats.topic(section): section[1] for section in sections}
            self._seat_viewers.add(listener, event, caller, shown)
        for kind, thing in wanted.things:
            await _send_first_frame(listener, self.event_updates.owned(kind).watch(listener, thing))

    def _require_room(self) -> None:
        if self.hub.is_closing or self.hub.count >= settings.LIVE_LISTENERS_MAX:
            raise TooManyListeners

    def _enter_cap(self, request: Request) -> Callable[[], object]:
        """Count one more stream of the client's address, and return the function to call when it ends. Raises
        TooManyStreams."""
        address = client_address.address_from_scope(request.scope)
        if not self._streams.enter(address):
            raise TooManyStreams
        return partial(self._streams.leave, address)

    async def _stream_over_asgi(
        self,
        request: Request,
        send: Send,
        event: events.EventView,
        caller: queue.Caller | None,
        wanted: "_Subscriptions",
        leave_cap: Callable[[], object],
    ) -> None:
        """Stream under a server without our extension."""
        listener = QueuedListener("events")
        listener.on_left = leave_cap
        assert request.receive is not None
        leaving = asyncio.get_running_loop().create_task(self._leave_with(listener, request.receive))
        try:
            head = Reply(200, b"", _STREAM_HEADERS).stream_head(request.id, secure=request.is_secure())
            await send({"type": "http.response.start", "status": 200, "headers": head})
            await self._send_initial_state(listener, event, caller, wanted)
            while (message := await listener.next()) is not None:
                await send({"type": "http.response.body", "body": message, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            leaving.cancel()
            self.hub.leave(listener)

    async def _leave_with(self, listener: Listener, receive: Receive) -> None:
        while (await receive())["type"] not in ("http.disconnect", "websocket.disconnect"):
            pass
        self.hub.leave(listener)

    # --- WebSocket ---------------------------------------------------------------------------------------------------

    async def socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the same frames as messages. Our own server closes the socket of a client that sends messages."""
        found = PATH.fullmatch(scope["path"])
        await receive()
        if found is None:
            await send({"type": "websocket.close", "code": 4404})
            return
        scheme = "https" if scope.get("scheme") == "wss" else "http"
        request = Request({**scope, "method": "GET", "scheme": scheme}, receive)
        thread_pool.set_client(client_address.address_from_scope(request.scope))
        ending = scope.get(SHUTDOWN_NOTICE)
        listener = QueuedListener("socket", attrgetter("text" if ending is None else "socket_frame"))
        try:
            _require_same_origin(request)
            self._check_rate_limit(request)
            self._require_room()
            wanted = _Subscriptions(request, self._authorize)
            event = await events.get_cached_event(found["slug"])
            caller = await self._check(request, event, wanted)
            await self.event_updates.follow_event(event)
            self._sections(event, wanted)
            listener.on_left = self._enter_cap(request)
        except Exception as error:  # noqa: BLE001 - Every error becomes a response.
            await _refuse_socket(_refusal(request, error), request, send)
            return
        leaving = asyncio.get_running_loop().create_task(self._leave_with(listener, receive))
        try:
            await send({"type": "websocket.accept"})
            if ending is not None:
                ending.tell = partial(self.hub.disconnect, listener)
            await self._send_initial_state(listener, event, caller, wanted)
            while (message := await listener.next()) is not None:
                await send({"type": "websocket.send", "text" if ending is None else SOCKET_FRAME: message})
            if listener.is_disconnected:
                await send({"type": "websocket.close", "code": 1001})
        finally:
            leaving.cancel()
            self.hub.leave(listener)


class _Subscriptions:
    """The subscriptions in a request, besides the public frames."""

    def __init__(self, request: Request, kinds: Iterable[str]) -> None:
        if len(request.scope["query_string"]) > QUERY_BYTES_MAX:
            raise problems.Invalid("the query is too long")
        query = QueryDict(request.scope["query_string"])
        self.sections = [slug for slug in dict.fromkeys(query.getlist("section")) if slug]
        if len(self.sections) > SECTIONS_MAX:
            raise problems.Invalid({"section": f"at most {SECTIONS_MAX}"})
        self.since = query.get("since") or request.headers.get("last-event-id", "")
        self.things: list[tuple[str, uuid.UUID]] = []
        for kind in kinds:
            if kind in query:
                self.things.append((kind, _parse_id(kind, query[kind])))

    @property
    def is_personal(self) -> bool:
        return bool(self.sections or self.things)


def _parse_id(kind: str, text: str) -> uuid.UUID:
    """Return the id. Only the form of our responses is accepted: Python also parses braces and missing hyphens. Raises
    Invalid."""
    try:
        if str(found := uuid.UUID(text)) == text.lower():
            return found
    except ValueError:
        pass
    raise problems.Invalid({kind: f"the id of {'an' if kind == 'order' else 'a'} {kind} is expected"})


def _require_same_origin(request: Request) -> None:
    """Refuse WebSockets that a foreign page opens with our visitors' cookies; clients other than browsers send none.
    Raises CrossOrigin, like writes (`apps.kernel.http.same_origin`), or Malformed for an unknown host."""
    if not request.has_allowed_host():
        raise problems.Malformed
    is_ours = same_origin.is_same_origin_request(request)
    if is_ours is False or (is_ours is None and request.COOKIES and request.bearer() is None):
        raise problems.CrossOrigin


async def _send_first_frame(listener: Listener, watched: Any) -> None:
    first = await watched
    if first is not None:
        listener.send_frame(first)


def _refusal(request: Request, error: BaseException) -> Reply:
    known = problems.from_exception(error)
    if known is None:
        logger.error("%s failed", request.path, exc_info=error)
    return response.problem_reply(known or problems.Fault())


def _parts(frames: Iterable[Frame], next_poll: int) -> list[bytes]:
    """Return the document of a poll. Large frames are parts of their own, which are not copied: however many clients do
    not read their responses, each frame is in memory once."""
    parts, small, separator = list[bytes](), [b'{"frames":['], b""
    for one in frames:
        small.append(separator)
        if len(one.item) > COPIED_BYTES_MAX:
            parts += [b"".join(small), one.item]
            small = []
        else:
            small.append(one.item)
        separator = b","
    small.append(b'],"next_poll":%d}' % next_poll)
    return [*parts, b"".join(small)]


async def _send(reply: Reply, request: Request, send: Send, parts: Sequence[bytes] = ()) -> None:
    """Send the reply, whose body may be in parts."""
    headers = reply.stream_head(request.id, secure=request.is_secure())
    body = parts or (reply.body,)
    if reply.status != 304:
        headers.append((b"content-length", b"%d" % sum(map(len, body))))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    if request.method == "HEAD":
        body = (b"",)
    for part in body[:-1]:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": body[-1]})


async def _refuse_socket(reply: Reply, request: Request, send: Send) -> None:
    """Answer the handshake with the refusal. A server that cannot gets a close code: 4000 plus the status, in the range
    for applications."""
    if "websocket.http.response" not in request.scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 4000 + reply.status})
        return
    headers = reply.head(request.id, secure=request.is_secure())
    await send({"type": "websocket.http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": reply.body})


live_endpoints = LiveEndpoints()
