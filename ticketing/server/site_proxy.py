"""Forwards requests that the fast path does not answer to the site, once their body has arrived.

The site never runs in this process: a single busy page thread would slow the event loop to a fiftieth of its speed. The
site is reached in no other way: only this module protects its few threads from slow clients, and only its X-Forwarded-*
headers are trusted there.
"""

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from time import monotonic
from urllib.parse import quote_from_bytes
from weakref import WeakValueDictionary

import aiohttp
from yarl import URL

from apps.kernel import rate_limits
from apps.kernel.fastpath.request import ClientDisconnected, Receive, Scope, Send
from apps.kernel.http import client_address
from apps.kernel.http.problems import CONTENT_TYPE, Busy, Malformed, Problem, RateLimited
from apps.kernel.observability import log_context
from apps.kernel.page_cache.cache import Saturated, SiteResponse
from apps.kernel.rate_limits import kinds
from apps.kernel.rate_limits.address_caps import factor_of
from ticketing.server import failure_limits, password_queue, site_turns
from ticketing.server.request_body import (
    BODY_BYTES_MAX,
    UPLOAD_BYTES_MAX,
    LargerBodies,
    RequestBody,
    Uploads,
    read_file,
    require_uploader,
)
from ticketing.server.site_turns import SiteTurns, Turn

Headers = list[tuple[bytes, bytes]]
Content = bytes | AsyncIterator[bytes] | None

RETRY_AFTER_SECONDS = 2
CONNECTIONS_MAX = 100
# Requests of one client address that have a connection to the site or wait for a turn (`site_turns`).
REQUESTS_PER_ADDRESS_MAX = 16
# Clients that do not read a response: each occupies a connection to the site. The others remain for clients that do.
UNREAD_MAX = CONNECTIONS_MAX // 2
# Shorter than the site's idle timeout (30 s), so that this side closes idle connections.
IDLE_SECONDS_MAX = 10
CONNECT_SECONDS_MAX = 2
WAIT_SECONDS_MAX = 5
SATURATED_REPEAT_SECONDS, SATURATED_REPEAT_SECONDS_MAX = 0.01, 0.1
SILENCE_SECONDS_MAX = 60
HEADER_BYTES_MAX = 64 * 1024
# Characters that are forwarded unchanged in a request's target. Others are percent-encoded.
_TARGET_SAFE = "!#$%&'()*+,/:;=?@[]~\"<>^`{|}\\"

# Headers of one connection, not of the request. Our own server has already handled `expect` and `upgrade`.
HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding"
    b" upgrade expect".split()
)
# These headers are dropped from the client's request; we add our own values.
OWN_REQUEST_HEADERS = frozenset(
    (b"content-length", b"forwarded", b"x-real-ip", b"x-request-id", client_address.FORWARDED_BY_HEADER.encode(),
     site_turns.REPEATS_HEADER.lower().encode())
)  # fmt: skip
# Our own server sets these on every response; the last two are the site's, for `web` only.
OWN_RESPONSE_HEADERS = frozenset(
    (b"date", b"server", password_queue.BUSY_HEADER, site_turns.SATURATED_HEADER.lower().encode())
)

UNAVAILABLE_PAGE = b"""<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="2">
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<title>One moment</title><h1>One moment</h1><p>The site is starting or busy. This page tries again by itself.</p>
"""


TOO_LARGE_PAGE = b"""<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<title>Too large</title><h1>This is too large</h1><p>What you sent is larger than %d KB, so none of it was kept.
Staff who are logged in can upload files of up to %d MB.</p>
""" % (BODY_BYTES_MAX // 1024, UPLOAD_BYTES_MAX // 1024 // 1024)


class Forwarder:
    """An ASGI application for HTTP. Connections are opened as needed; `close` closes them."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        password_slots: int = 1,
        turns_per_address: int = 1,
        is_signed: failure_limits.IsSigned | None = None,
    ) -> None:
        """`is_signed`: returns whether a provider has signed a webhook; None: none is signed."""
        self._origin = f"http://{host}:{port}"
        self._static_files = failure_limits.StaticFiles()
        self._webhooks = failure_limits.Webhooks(is_signed)
        self._passwords = password_queue.PasswordQueue(password_slots)
        self._session: aiohttp.ClientSession | None = None  # Created in the loop that uses it.
        self._fresh_session: aiohttp.ClientSession | None = None  # Each of its requests has a new connection.
        self._turns = SiteTurns(turns_per_address)
        self._uploads = Uploads()
        self._larger_bodies = LargerBodies()
        # Requests whose client is not reading the response, the longest wait first.
        self._unread: dict[RequestBody, None] = {}
        # Of each client address with forwarded requests. The requests hold the only references.
        self._slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the site's response or a problem. If the client goes away, nothing more is sent to it. A request that
        the site has received keeps its turn until the site begins its answer: it occupies a thread until then."""
        wait = self.wait_seconds(scope)
        if wait is not None:
            await self.refuse(scope, send, RateLimited(wait))
            return
        body = RequestBody(scope, receive, self._larger_bodies)
        try:
            await self._forward(scope, body, send)
        except ClientDisconnected:
            return
        except Problem as problem:
            await self.refuse(scope, send, problem)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            if body.is_gone:
                return
            await self.refuse(
                scope, send, Busy("The site cannot take this now.", retry_after_seconds=RETRY_AFTER_SECONDS)
            )
        except aiohttp.ClientError:
            if body.is_gone:
                return
            if body.is_answered:
                raise  # The server aborts the connection, so that a partial response does not look complete.
            # The request may have been executed: an idempotency key makes a retry safe.
            await self.refuse(scope, send, Busy("The site gave no answer.", retry_after_seconds=RETRY_AFTER_SECONDS))
        finally:
            body.close()

    def wait_seconds(self, scope: Scope) -> float | None:
        """Count the request unless it has been counted; return the seconds to wait if it exceeds its rate limit."""
        return None if self._static_files.has_served(scope) else _wait_seconds(scope)

    async def refuse(self, scope: Scope, send: Send, problem: Problem) -> None:
        """Send the problem as a page or as a document, as the client expects."""
        await _refuse(scope, send, problem)

    async def fetch(
        self, scope: Scope, path: str, host: str, language: str, bytes_max: int, *, is_repeated: bool
    ) -> SiteResponse | None:
        """Return the response to a request for this path that has nothing of the client's request but its scheme; None
        if it is larger than `bytes_max`. Call it in a `render_slot`. Raises Saturated if the request has reached a
        process of the site in which its client occupies all threads but one, and Busy."""
        headers = _shared_request_headers(scope, host, language)
        url = URL(self._origin + path, encoded=True)
        session = self._open_fresh() if is_repeated else self._open()
        try:
            async with session.request("GET", url, headers=headers, allow_redirects=False) as answer:
                if site_turns.SATURATED_HEADER in answer.headers:
                    raise Saturated
                self._static_files.note_response(scope, answer.status)
                parts, size = [], 0
                async for chunk in answer.content.iter_any():
                    parts.append(chunk)
                    size += len(chunk)
                    if size > bytes_max:
                        answer.close()
                        return None
        except aiohttp.ClientError:
            raise Busy("The site cannot take this now.", retry_after_seconds=RETRY_AFTER_SECONDS) from None
        return SiteResponse(answer.status, _response_headers(list(answer.raw_headers)), b"".join(parts))

    def pauses(self) -> Iterator[float]:
        """Yield, for WAIT_SECONDS_MAX, the seconds before each repetition of a request for which its client had no
        thread of the site."""
        until, pause = monotonic() + WAIT_SECONDS_MAX, SATURATED_REPEAT_SECONDS
        while monotonic() < until:
            yield pause
            pause = min(2 * pause, SATURATED_REPEAT_SECONDS_MAX)

    async def close(self) -> None:
        """Close the connections to the site."""
        for session in (self._session, self._fresh_session):
            if session is not None:
                await session.close()

    async def _forward(self, scope: Scope, body: RequestBody, send: Send) -> None:
        if not _target(scope).startswith("/"):
            # `*` or an absolute URL. Appended to the site's address, it would name another target.
            raise Malformed
        if scope.get("http_version") == "1.1" and not any(name == b"host" for name, _ in scope["headers"]):
            raise Malformed  # The site would receive our internal host name instead.
        if body.is_multipart and not body.is_large:
            await require_uploader(scope)
        if body.is_large:
            async with self._uploads.receive(scope, body) as file:
                await self._exchange(scope, body, read_file(file), send)
        else:
            content = await body.gather()
            self._webhooks.require_allowed(scope, content or b"")
            await self._exchange(scope, body, content, send)

    async def _exchange(self, scope: Scope, body: RequestBody, content: Content, send: Send) -> None:
        """Send the request and its response. Raises ClientDisconnected."""
        task = asyncio.current_task()
        assert task is not None
        body.watch(task.cancel)
        try:
            async with self.slot(scope):
                if password_queue.is_password_check(scope["method"], scope["path"]):
                    await self._request_in_turn(scope, body, content, send)
                    return
                async with self._turns.turn(client_address.address_from_scope(scope), scope["path"]) as turn:
                    await self._request_until_taken(scope, body, content, send, turn)
        except asyncio.CancelledError:
            if not body.is_gone or task.uncancel() > 0:
                raise  # This server is stopping; the client has not left.
            raise ClientDisconnected from None

    @asynccontextmanager
    async def render_slot(self, scope: Scope) -> AsyncIterator[None]:
        """Take a slot and a turn of the client's address for a page that all visitors share. Raises Busy."""
        async with self.slot(scope), self._turns.turn(client_address.address_from_scope(scope), scope["path"]):
            yield

    @asynccontextmanager
    async def slot(self, scope: Scope) -> AsyncIterator[None]:
        """Take one of the address's slots, waiting for it if necessary. Raises Busy."""
        address = client_address.address_from_scope(scope)
        subject = rate_limits.subject(address)
        slots = self._slots.get(subject)
        if slots is None:
            # Without a subject, the client is exempt from limits.
            most = REQUESTS_PER_ADDRESS_MAX * factor_of(address) if subject else CONNECTIONS_MAX
            slots = self._slots[subject] = asyncio.Semaphore(most)
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                await slots.acquire()
        except TimeoutError:
            raise Busy("Too many requests of your address are waiting.") from None
        try:
            yield
        finally:
            slots.release()

    async def _request_until_taken(
        self, scope: Scope, body: RequestBody, content: Content, send: Send, turn: Turn | None
    ) -> None:
        """Forward the request, and repeat it while it reaches processes of the site in which its client occupies all
        threads but one (`site_turns`). Raises Busy."""
        end_turn = None if turn is None else turn.end
        # A file is sent once.
        repeated = site_turns.SATURATED_HEADER if content is None or isinstance(content, bytes) else ""
        for pause, session in self._attempts():
            await asyncio.sleep(pause)
            if await self._request(scope, body, content, send, end_turn=end_turn, repeated=repeated, session=session):
                return
        raise Busy("Too many requests of your address are waiting.")

    def _attempts(self) -> Iterator[tuple[float, aiohttp.ClientSession]]:
        """Yield the seconds before each attempt and its session: a new connection for each repetition, since a kept one
        would reach the same process."""
        yield 0.0, self._open()
        for pause in self.pauses():
            yield pause, self._open_fresh()

    async def _request_in_turn(self, scope: Scope, body: RequestBody, content: Content, send: Send) -> None:
        """Forward a password check in its turn, and repeat it while the site is hashing too many passwords."""
        subject = rate_limits.subject(client_address.address_from_scope(scope))
        async with self._passwords.turn(subject) as end_turn:
            until = monotonic() + password_queue.WAIT_SECONDS_MAX
            while True:
                repeated = password_queue.BUSY_HEADER.decode() if monotonic() < until else ""
                if await self._request(scope, body, content, send, end_turn=end_turn, repeated=repeated):
                    return
                await asyncio.sleep(password_queue.REPEAT_SECONDS)

    async def _request(
        self,
        scope: Scope,
        body: RequestBody,
        content: Content,
        send: Send,
        *,
        end_turn: Callable[[], None] | None = None,
        repeated: str = "",
        session: aiohttp.ClientSession | None = None,
    ) -> bool:
        """Forward the request and send the response; the turn ends when the site begins its answer. Return False, with
        nothing sent, if the response has the header of refusals to be repeated."""
        size = len(content) if isinstance(content, bytes) else body.declared if body.is_large else None
        # aiohttp retries idempotent requests if a pooled connection turns out to be closed.
        request = (session or self._open()).request(
            scope["method"],
            URL(self._origin + _target(scope), encoded=True),
            headers=_request_headers(
                scope, size, is_last=body.is_large, may_repeat=repeated == site_turns.SATURATED_HEADER
            ),
            data=content,
            allow_redirects=False,
        )
        async with AsyncExitStack() as stack:
            with body.kept():
                answer = await stack.enter_async_context(request)
            if repeated and repeated in answer.headers:
                return False
            body.is_answered = True
            if end_turn is not None:
                end_turn()
            self._static_files.note_response(scope, answer.status)
            self._webhooks.note_response(scope, answer.status)
            headers = _response_headers(list(answer.raw_headers))
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            async for chunk in answer.content.iter_any():
                await self._send_chunk(body, send, chunk)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return True

    async def _send_chunk(self, body: RequestBody, send: Send, chunk: bytes) -> None:
        """Send a piece of the response, waiting while the client does not read. If too many clients do not read, the
        one that has not read for the longest time is disconnected."""
        if len(self._unread) >= UNREAD_MAX:
            longest = next(iter(self._unread))
            del self._unread[longest]
            longest.abandon()
        self._unread[body] = None
        try:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        finally:
            self._unread.pop(body, None)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = _new_session(
                aiohttp.TCPConnector(limit=CONNECTIONS_MAX, keepalive_timeout=IDLE_SECONDS_MAX)
            )
        return self._session

    def _open_fresh(self) -> aiohttp.ClientSession:
        if self._fresh_session is None:
            self._fresh_session = _new_session(aiohttp.TCPConnector(limit=CONNECTIONS_MAX, force_close=True))
        return self._fresh_session


def _new_session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(
            total=None,
            connect=WAIT_SECONDS_MAX,
            sock_connect=CONNECT_SECONDS_MAX,
            sock_read=SILENCE_SECONDS_MAX,
        ),
        # No added headers, redirects, decompression or cookies: each side sees what the other sent.
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        max_line_size=HEADER_BYTES_MAX,
        max_field_size=HEADER_BYTES_MAX,
    )


def _wait_seconds(scope: Scope) -> float | None:
    """Return the seconds to wait if the request exceeds its rate limit, else None."""
    if scope.get(rate_limits.COUNTED):
        return None
    kind = kinds.kind_of(scope["method"], scope["path"])
    if kind is None:
        return None
    headers: dict[bytes, bytes] = dict(scope["headers"])
    token = kinds.token_of(
        headers.get(b"authorization", b"").decode("latin-1"), headers.get(b"cookie", b"").decode("latin-1")
    )
    return rate_limits.check_request(kind, client_address.address_from_scope(scope), token)


def _target(scope: Scope) -> str:
    # The target is forwarded unchanged: the site must route and sign what the client requested.
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string", b"")
    return quote_from_bytes(path + b"?" + query if query else path, safe=_TARGET_SAFE)


def _request_headers(
    scope: Scope, size: int | None, *, is_last: bool = False, may_repeat: bool = False
) -> list[tuple[str, str]]:
    """Return the client's headers without those that we set, plus ours. `size`: the bytes of the body, None without
    one. `is_last`: the connection is not reused. `may_repeat`: the request is repeated if the site is saturated."""
    headers: Headers = scope["headers"]
    dropped = HOP_BY_HOP | _connection_header_names(headers)
    kept = [
        (name, value)
        for name, value in headers
        if name not in dropped
        and name not in OWN_REQUEST_HEADERS
        and not name.startswith(b"x-forwarded-")
        # WSGI turns `-` into `_`: such a name could pose as another header.
        and b"_" not in name
    ]
    if size is not None:
        kept.append((b"content-length", str(size).encode()))
    if is_last:
        # A site that responds before it has read such a body closes the connection, so it must not be reused.
        kept.append((b"connection", b"close"))
    if may_repeat:
        kept.append((site_turns.REPEATS_HEADER.lower().encode(), b""))
    given = next((value for name, value in headers if name == b"x-request-id"), b"")
    is_name = log_context.REQUEST_ID.fullmatch(given.decode("latin-1"))
    kept.append((b"x-request-id", given if is_name else uuid.uuid4().hex.encode()))
    kept.append((b"x-forwarded-proto", client_address.scheme_from_scope(scope).encode()))
    kept += [(b"x-forwarded-host", value) for name, value in headers if name == b"host"][:1]
    if address := client_address.address_from_scope(scope):
        kept.append((b"x-forwarded-for", address.encode()))
    kept.append((client_address.FORWARDED_BY_HEADER.encode(), client_address.forward_token().encode()))
    return [(name.decode("ascii", "replace"), value.decode("utf-8", "replace")) for name, value in kept]


def _shared_request_headers(scope: Scope, host: str, language: str) -> list[tuple[str, str]]:
    """Return the headers of a request for a page that all visitors share: none of them is the client's, except that it
    is counted for this client (`site_turns`)."""
    headers = [
        ("host", host),
        ("accept", "*/*"),
        ("accept-encoding", "identity"),
        ("x-request-id", uuid.uuid4().hex),
        ("x-forwarded-proto", client_address.scheme_from_scope(scope)),
        ("x-forwarded-host", host),
        (client_address.FORWARDED_BY_HEADER, client_address.forward_token()),
        (site_turns.REPEATS_HEADER.lower(), client_address.address_from_scope(scope)),
    ]
    return [*headers, ("accept-language", language)] if language else headers


def _response_headers(headers: Headers) -> Headers:
    lowered = [(name.lower(), value) for name, value in headers]
    dropped = HOP_BY_HOP | OWN_RESPONSE_HEADERS | _connection_header_names(lowered)
    return [(name, value) for name, value in lowered if name not in dropped]


def _connection_header_names(headers: Headers) -> frozenset[bytes]:
    named = (part.strip().lower() for name, value in headers if name == b"connection" for part in value.split(b","))
    # Without Host the site would receive our internal host name instead.
    return frozenset(named) - {b"host"}


async def _refuse(scope: Scope, send: Send, problem: Problem) -> None:
    accepts = next((value for name, value in scope["headers"] if name == b"accept"), b"")
    page = {503: UNAVAILABLE_PAGE, 413: TOO_LARGE_PAGE}.get(problem.status)
    if isinstance(problem, RateLimited):
        page = problem.page()
    as_page = page is not None and b"text/html" in accepts and not scope["path"].startswith("/api/")
    body = page if page is not None and as_page else json.dumps(problem.document()).encode()
    content_type = "text/html; charset=utf-8" if as_page else CONTENT_TYPE
    headers = {"Content-Type": content_type, "Cache-Control": "no-store", **problem.headers()}
    await send(
        {
            "type": "http.response.start",
            "status": problem.status,
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()]
            + [(b"content-length", str(len(body)).encode())],
        }
    )
    await send({"type": "http.response.body", "body": body})


def site_address() -> tuple[str, int]:
    """Return host and port of the site from SITE_ADDRESS, or SITE_PORT on this machine (8001)."""
    host, _, port = os.environ.get("SITE_ADDRESS", "").rpartition(":")
    return host or "127.0.0.1", int(port or os.environ.get("SITE_PORT", "8001"))
