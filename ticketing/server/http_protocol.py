"""One client connection: uvicorn's protocol, with the limits it lacks and a shutdown that loses no request.

uvicorn (0.54, httptools) leaves these limits to a proxy in front of it. Alone, it lets headers and bodies trickle in
forever, accepts headers of any size and any number of pipelined requests, and keeps a connection whose client does not
read the response. A worker that shuts down closes idle connections while the next request may be on its way.

For a request that arrives in one piece, these limits cost a comparison: timers run only while a part is missing.
"""

import asyncio
import os
import resource
from collections.abc import Callable
from functools import partial
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from apps.kernel.fastpath.server_extensions import (
    BODY_CAP,
    CLIENT,
    CONNECTION_CAP,
    DEFERRED,
    HEADERS_BY_NAME,
    RESPOND_SYNC,
    SEND_RESPONSE,
    START_STREAM,
    Client,
    RawResponse,
)
from apps.kernel.http import client_address
from ticketing.server import fast_parser
from ticketing.server.event_stream import StreamListener
from ticketing.server.header_limits import has_repeated, has_too_long
from ticketing.server.response_writer import (
    BufferedRequestCycle,
    encode_refusal,
    run_without_chunks,
    send_response,
    write_response,
    write_to,
)
from ticketing.server.websocket_protocol import WebSocketProtocol

# Longest time from the connection, or the first byte of a later request, to the end of the headers.
HEADER_SECONDS_MAX = 10.0
HEADER_BYTES_MAX = 32 * 1024
HEADERS_MAX = 100
URL_BYTES_MAX = 8 * 1024
# A body may take this long, and longer only while it keeps coming at this rate. A hold is a few hundred bytes.
BODY_SECONDS_MAX = 10.0
BODY_BYTES_PER_SECOND_MIN = 8 * 1024
# The longest time for any body, also of an upload of 72 MB.
BODY_TOTAL_SECONDS_MAX = 120.0
# Bodies of all clients of a process that have arrived in part, each of at most 256 KiB (`request_body`).
UNFINISHED_BODIES_MAX = 1_000
# A body that has come in more parts than this must have so many bytes in each of them, on average: a chunk of one byte
# takes as much of the processor as one of 64 KiB.
BODY_PARTS_MAX = 256
PART_BYTES_MIN = 256
# If the response was sent before the body was complete (a refusal, for example), this much of the body is still read
# and discarded: a client whose connection is closed while it sends never sees the response.
DISCARDED_BYTES_MAX = 16 * 1024 * 1024
# The limit of every body of undeclared length, discarded or not.
UNDECLARED_BYTES_MAX = 2 * 1024 * 1024
# Longest time without progress in sending the response.
UNREAD_SECONDS_MAX = 20.0
REQUESTS_AHEAD_MAX = 16
# Files of a process that are not client connections: of the site, PostgreSQL, Redis, metrics.
FILES_RESERVED = 256
# A worker that shuts down responds on open connections for this long. Idle ones close by their own timer.
SHUTDOWN_GRACE_SECONDS = float(os.environ.get("WEB_FAREWELL_SECONDS") or 5)
SECONDS_UNTIL_RETRY = 5
KEEP_ALIVE_SLACK_SECONDS = 0.05


def _connections_max() -> int:
    """Return WEB_CONNECTIONS_MAX, or fewer if the process may not open as many files: without a free file it could not
    accept a connection to refuse it, and could not reach PostgreSQL, Redis or the site."""
    most = int(os.environ.get("WEB_CONNECTIONS_MAX") or 20_000)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if files == resource.RLIM_INFINITY else max(min(most, files - FILES_RESERVED), 1)


CONNECTIONS_MAX = _connections_max()
MALFORMED = encode_refusal("400 Bad Request", "malformed", "The request cannot be read.")
TOO_LARGE = encode_refusal("413 Content Too Large", "too-large", "The request is too large.")
TOO_SLOW = encode_refusal("408 Request Timeout", "request-timeout", "The request did not arrive in time.")
HEADERS_TOO_LARGE = encode_refusal(
    "431 Request Header Fields Too Large", "headers-too-large", "The headers are too large."
)
BODY_WITH_GET = encode_refusal("400 Bad Request", "malformed", "A GET or HEAD request must have no body.")
FULL = encode_refusal(
    "503 Service Unavailable", "busy", "Too many connections are open; try again.", SECONDS_UNTIL_RETRY
)
TOO_MANY_CONNECTIONS = encode_refusal(
    "429 Too Many Requests", "rate-limited", "Too many connections are open from your address.", SECONDS_UNTIL_RETRY
)
TOO_MANY_BODIES = encode_refusal(
    "429 Too Many Requests", "rate-limited", "Too many requests from your address are incomplete.", SECONDS_UNTIL_RETRY
)


class HttpProtocol(HttpToolsProtocol):
    """One HTTP/1.1 connection. If the client is too slow, sends too much, or does not speak HTTP, it gets an error
    response, unless another response is being sent, and the connection is closed."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        # Runs while a request is incomplete. `_awaited` is the scope whose headers are missing (None: the first
        # request's) or the cycle whose body is missing.
        self._clock: asyncio.TimerHandle | None = None
        self._awaited: object = None
        self._since = 0.0
        self._bytes = 0
        self._received_bytes = 0
        self._unread_clock: asyncio.TimerHandle | None = None
        self._is_websocket = False
        self._answering: Any = None
        self._respond_sync = getattr(self.app, RESPOND_SYNC, None)
        self._can_fast_parse = not config.root_path and config.limit_concurrency is None
        self._idle_since = 0.0
        self._client = Client()
        # The first request found in the bytes that are being parsed. It starts once all of them are parsed.
        self._received_request: tuple[Any, Any] | None = None
        self._is_reading = False
        # Whether the headers of the request that is being parsed are complete, and the parts of its body.
        self._has_head = False
        self._body_parts = self._body_bytes = 0
        self._listener: StreamListener | None = None
        # What this connection counts against its client's caps; called to end it.
        self._leave_connection_cap: Callable[[], object] | None = None
        self._leave_body_cap: Callable[[], object] | None = None

    # --- called by the transport -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_clock(None, HEADER_SECONDS_MAX)
        if len(self.connections) > CONNECTIONS_MAX:
            self._cut(FULL)
        elif not self._enter_connection_cap():
            self._cut(TOO_MANY_CONNECTIONS)
        elif _is_shutting_down(self.server_state):
            self.shutdown()  # Accepted just as the worker stopped listening.

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._received_bytes = len(data)
        if self._listener is not None:
            self.transport.abort()  # A client that listens to a stream must not send anything more.
            return
        if (
            self._can_fast_parse
            and self._is_between_requests()
            and (parsed := fast_parser.parse_request(data)) is not None
        ):
            self._handle_parsed(parsed)
            return
        self._is_reading = True
        try:
            super().data_received(data)
        finally:
            self._is_reading = False
        if self._received_request is not None:
            (cycle, app), self._received_request = self._received_request, None
            self._begin_request(cycle, app)
        cycle = self.cycle
        if cycle is not None and not cycle.more_body and cycle.scope is self.scope:
            if self._clock is not None:
                self._stop_clock()
            if cycle.response_complete and self.timeout_keep_alive_task is None:
                # The rest of a discarded body has arrived. uvicorn starts this timer only after a response.
                self._start_keep_alive_timer()
        elif not self._is_websocket and not self.transport.is_closing():
            self._track_incomplete(len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.has_disconnected = True
        if self._leave_connection_cap is not None:
            self._leave_connection_cap()
        if self._listener is not None:
            self._listener.client_disconnected()
        self._stop_clock()
        self._stop_unread_clock()
        self._unset_keepalive_if_required()  # uvicorn leaves it running after an error.
        self._discard_responses()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_unread_clock()
        if self._listener is not None:
            self._listener.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_unread_clock()
        if self._listener is not None:
            self._listener.resume()

    # --- called by uvicorn -------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._has_head = False
        self._body_parts = self._body_bytes = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # httptools reports the trailers of a chunked body in the same way. They would be headers that nothing has
        # checked, so they are discarded; `_track_incomplete` limits their bytes.
        if not self._has_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._has_head = True
        if len(self.pipeline) >= REQUESTS_AHEAD_MAX:
            self._abort()
        elif len(self.headers) > HEADERS_MAX or len(self.url) > URL_BYTES_MAX or self._has_large_headers():
            self._cut(HEADERS_TOO_LARGE)
        elif has_repeated(self.headers):
            self._cut(MALFORMED)
        elif not self.url.isascii():
            self._cut(MALFORMED)  # uvicorn checks it too, except for a WebSocket, where it fails.
        elif self.parser.get_method() in (b"GET", b"HEAD") and self._declares_body():
            self._cut(BODY_WITH_GET)
        if self.transport.is_closing():
            return
        if self.parser.get_http_version() < "1.1":
            self.expect_100_continue = False  # The client does not know interim responses.
        super().on_headers_complete()
        if self.cycle is not None and _is_shutting_down(self.server_state):
            self.cycle.keep_alive = False  # Its response announces that the connection closes.

    def _declares_body(self) -> bool:
        return any(
            (name == b"content-length" and value != b"0") or name == b"transfer-encoding"
            for name, value in self.headers
        )

    def _has_large_headers(self) -> bool:
        if has_too_long(self.headers):
            return True
        # They are measured together only if all bytes received, body included, exceed the limit.
        if self._bytes + self._received_bytes <= HEADER_BYTES_MAX:
            return False
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > HEADER_BYTES_MAX

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answering = cycle  # With pipelining this may not be the latest request; uvicorn keeps only that one.
        if self._is_reading and self._received_request is None:
            self._received_request = cycle, app
        else:
            self._begin_request(cycle, app)

    def _begin_request(self, cycle: Any, app: Any) -> None:
        """Answer the request synchronously if it is complete and the application can; otherwise start a task for it."""
        # If the client does not read its responses, the request waits in a task: at most one response is buffered.
        if (
            self._respond_sync is None
            or cycle.more_body
            or cycle.disconnected
            or cycle.flow.write_paused
            or app is not self.app
            or self.transport.is_closing()
        ):
            self._begin_task(cycle, app)
            return
        cycle.scope[CLIENT] = self._client
        answer = self._respond_sync(cycle.scope, cycle.body, self._on_deferred_response)
        if answer is not DEFERRED:
            self._respond(cycle, answer)

    def _on_deferred_response(self, answer: RawResponse | None) -> None:
        """Respond to the request that this connection is answering; there is only one at a time."""
        self._respond(self._answering, answer)

    def _respond(self, cycle: Any, answer: RawResponse | None) -> None:
        if answer is None:
            self._begin_task(cycle, self.app)
        elif not cycle.disconnected:
            write_response(cycle, *answer)

    def _begin_task(self, cycle: Any, app: Any) -> None:
        cycle.scope[SEND_RESPONSE] = partial(send_response, cycle)
        cycle.scope[START_STREAM] = partial(self._start_stream, cycle)
        if cycle.scope["http_version"] < "1.1":
            app = partial(run_without_chunks, cycle, app)
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._body_parts += 1
        self._body_bytes += len(body)
        if self._body_parts > BODY_PARTS_MAX and self._body_bytes < self._body_parts * PART_BYTES_MIN:
            # Ends the parsing; uvicorn then calls `send_400_response`.
            raise httptools.HttpParserError("the body comes in too many parts")
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self.cycle is not None:
            self.cycle.more_body = False  # uvicorn leaves it set if the response came before the end of the body.

    def on_response_complete(self) -> None:
        if self._answering is not None:
            # Both refer back to their own scope, so each request would stay in memory until garbage collection.
            self._answering.scope.pop(SEND_RESPONSE, None)
            self._answering.scope.pop(START_STREAM, None)
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._unset_keepalive_if_required()
                self._start_asgi_task(*self.pipeline.pop())
            else:
                self._start_keep_alive_timer()
        if self._has_unsent():
            self._start_unread_clock()

    def handle_websocket_upgrade(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._abort()  # Its response would be written between the frames.
        if self.transport.is_closing():
            return  # `on_headers_complete` has refused the request.
        self._is_websocket = True
        self._stop_clock()
        super().handle_websocket_upgrade()
        protocol = self.transport.get_protocol()
        if isinstance(protocol, WebSocketProtocol):
            protocol.on_lost, self._leave_connection_cap = self._leave_connection_cap, None

    def send_400_response(self, msg: str) -> None:
        self._cut(MALFORMED)

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            return  # Its response starts the timer again.
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > KEEP_ALIVE_SLACK_SECONDS:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        else:
            self._cut(b"")

    def _start_keep_alive_timer(self) -> None:
        """Close the connection if no request arrives in time."""
        # One timer that checks `_idle_since` when it fires, instead of one for each request.
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def shutdown(self) -> None:
        """Make the next request the last on this connection: its response announces that the connection closes.

        uvicorn closes an idle connection at once. The client's next request may be on its way by then and would get no
        response, so the connection stays open until its idle timeout.
        """
        self._client.is_ending = True
        if self._listener is not None:
            self._listener.server_shutting_down()
            return
        if SHUTDOWN_GRACE_SECONDS <= 0:
            super().shutdown()
            return
        self.server_state.ends = True  # type: ignore[attr-defined]
        cycle: Any = self.cycle  # None before the first request, contrary to uvicorn's types.
        scope: Any = self.scope
        if cycle is None and scope is None:
            self._start_clock(None, SHUTDOWN_GRACE_SECONDS)
        elif cycle is not None and not cycle.response_started:
            cycle.keep_alive = False

    # --- streams -----------------------------------------------------------------------------------------------------

    def _start_stream(self, cycle: Any, head: bytes) -> StreamListener | None:
        """Start an endless response and hand the connection over to a listener. Return None if the client has
        disconnected, or has pipelined another request, which would wait forever."""
        if cycle.disconnected or self.transport.is_closing():
            return None
        if self.pipeline or cycle.more_body or cycle is not self._answering:
            self._abort()
            return None
        self._stop_clock()
        self._unset_keepalive_if_required()
        cycle.response_started = cycle.response_complete = True  # So that uvicorn does not wait for its end.
        self.server_state.total_requests += 1
        header_lines = head + b"transfer-encoding: chunked\r\n"
        write_to(self.transport, self.server_state.default_headers, 200, header_lines)
        self._listener = listener = StreamListener(self.transport)
        # Free the request's objects: there may be ten thousand of these connections.
        cycle.scope.pop(SEND_RESPONSE, None)
        cycle.scope.pop(START_STREAM, None)
        self.cycle = self.scope = self._answering = self.parser = None  # type: ignore[assignment]
        self.headers = []
        return listener

    # --- requests that arrive in one piece ---------------------------------------------------------------------------

    def _is_between_requests(self) -> bool:
        """Return whether the next bytes begin a request, with all earlier requests answered and none half-parsed by
        httptools."""
        cycle: Any = self.cycle
        if cycle is None:
            is_between = self.scope is None
        else:
            is_between = cycle.response_complete and not cycle.more_body and cycle.scope is self.scope
        return is_between and not self._is_websocket and not self.pipeline and not _is_shutting_down(self.server_state)

    def _handle_parsed(self, parsed: fast_parser.ParsedRequest) -> None:
        """Handle the request like httptools and uvicorn, but without them if it is answered synchronously."""
        if self._clock is not None:
            self._stop_clock()
        path = parsed.path
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": "",
            "headers": parsed.headers,
            "state": self.app_state.copy(),
            "method": parsed.method,
            "path": path.decode("ascii"),
            "raw_path": path,
            "query_string": parsed.query,
            HEADERS_BY_NAME: parsed.by_name,
            CLIENT: self._client,
        }
        answer: RawResponse | None = None
        # The same conditions as in `_begin_request`.
        if self._respond_sync is not None and not self.flow.write_paused:
            answer = self._respond_sync(scope, parsed.body, self._on_deferred_response)
        if answer is None or answer is DEFERRED:
            self.headers, self.expect_100_continue = parsed.headers, False
            self.scope = scope  # type: ignore[assignment]
            self.cycle = self._answering = cycle = BufferedRequestCycle(self, scope, parsed.body)
            if answer is None:
                self._begin_task(cycle, self.app)
            return
        write_to(self.transport, self.server_state.default_headers, *answer)
        self.server_state.total_requests += 1
        self._start_keep_alive_timer()
        if self._has_unsent():
            self._start_unread_clock()

    # --- incomplete requests -----------------------------------------------------------------------------------------

    def _track_incomplete(self, size: int) -> None:
        """Run the timer of an incomplete request and limit its size, after data has arrived."""
        cycle: Any = self.cycle
        if cycle is None or cycle.scope is not self.scope:
            if self._clock is None or (self._awaited is not None and self._awaited is not self.scope):
                self._start_clock(self.scope, HEADER_SECONDS_MAX)
            self._awaited = self.scope
            self._bytes += size
            if self._bytes > HEADER_BYTES_MAX:
                self._cut(HEADERS_TOO_LARGE)
            return
        if self._clock is None or self._awaited is not cycle:
            self._start_clock(cycle, BODY_SECONDS_MAX)
            if not self._enter_body_cap():
                return
        self._bytes += size
        is_declared = any(name == b"content-length" for name, _ in self.headers[:HEADERS_MAX])
        # Without a length, chunk extensions and trailers could go on forever, and uvicorn keeps them.
        if self._bytes > (DISCARDED_BYTES_MAX if is_declared else UNDECLARED_BYTES_MAX) and (
            cycle.response_complete or not is_declared
        ):
            self._cut(TOO_LARGE)

    def _start_clock(self, awaited: object, seconds: float) -> None:
        self._stop_clock()
        self._awaited, self._since, self._bytes = awaited, self.loop.time(), 0
        self._clock = self.loop.call_later(seconds, self._check_timeout)

    def _check_timeout(self) -> None:
        self._clock = None
        cycle = self.cycle
        if cycle is not None and self._awaited is cycle and not cycle.response_complete:
            now = self.loop.time()
            until = self._since + BODY_SECONDS_MAX + self._bytes / BODY_BYTES_PER_SECOND_MIN
            if self.flow.read_paused:  # We have paused reading.
                until = max(until, now + BODY_SECONDS_MAX)
            until = min(until, self._since + BODY_TOTAL_SECONDS_MAX)
            if now < until:
                self._clock = self.loop.call_later(until - now, self._check_timeout)
                return
        self._cut(b"" if self._awaited is None else TOO_SLOW)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
        if self._leave_body_cap is not None:
            self._leave_body_cap()
            self._leave_body_cap = None

    # --- caps of the client's address --------------------------------------------------------------------------------

    def _enter_connection_cap(self) -> bool:
        """Count this connection for its client; return False if the client is at its cap."""
        cap = getattr(self.app, CONNECTION_CAP, None)
        if cap is None or self.client is None:
            return True
        address = self.client[0]
        if client_address.is_proxy(address):
            return True  # It carries requests of many clients.
        if not cap.enter(address):
            return False
        self._leave_connection_cap = partial(cap.leave, address)
        return True

    def _enter_body_cap(self) -> bool:
        """Count the unfinished body for its client; cut the connection and return False if there are too many."""
        cap = getattr(self.app, BODY_CAP, None)
        if cap is None:
            return True
        address = client_address.address_from_scope(self.scope)
        if cap.total >= UNFINISHED_BODIES_MAX:
            self._cut(FULL)
        elif not cap.enter(address):
            self._cut(TOO_MANY_BODIES)
        else:
            self._leave_body_cap = partial(cap.leave, address)
            return True
        return False

    # --- closing -----------------------------------------------------------------------------------------------------

    def _cut(self, answer: bytes) -> None:
        """Stop reading and close the connection, sending this response first unless another one has begun."""
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if cycle is not None and cycle.scope is self.scope and cycle.response_complete:
            answer = b""  # This request already has its response.
        elif cycle is not None and not cycle.response_complete:
            if self.pipeline or cycle.scope is not self.scope or cycle.response_started:
                self._abort()
                return
            self._discard_responses()
        if answer:
            self.transport.write(answer)
        self.transport.close()
        if self._has_unsent():
            self._start_unread_clock()

    def _abort(self) -> None:
        self._discard_responses()
        self.transport.abort()

    def _discard_responses(self) -> None:
        """Discard responses that are still to come, and wake the applications that wait for this client."""
        for cycle in (self._answering, self.cycle):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def _start_unread_clock(self) -> None:
        if self._unread_clock is None:
            self._unread_clock = self.loop.call_later(UNREAD_SECONDS_MAX, self._cut_if_unread)

    def _stop_unread_clock(self) -> None:
        if self._unread_clock is not None:
            self._unread_clock.cancel()
            self._unread_clock = None

    def _cut_if_unread(self) -> None:
        self._unread_clock = None
        if self._has_unsent():
            self._abort()

    def _has_unsent(self) -> bool:
        try:
            return bool(self.transport.get_write_buffer_size())
        except RuntimeError:
            return False  # uvloop raises it for a closed connection.


def _is_shutting_down(server_state: ServerState) -> bool:
    return hasattr(server_state, "ends")
