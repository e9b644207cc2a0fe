"""A request on the fast path. Headers, cookies and body are parsed only when they are needed. The attributes that
services and checks use have the names of Django's request, so that fast path and site run the same code."""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import cache, lru_cache
from typing import Any

from django.conf import settings
from django.http import QueryDict
from django.http.cookie import parse_cookie
from django.http.request import split_domain_port, validate_host

from apps.kernel.fastpath.server_extensions import CLIENT, HEADERS_BY_NAME, Client
from apps.kernel.http import client_address, json_body, problems

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

QUERY_BYTES_MAX = 1024
"""Requests with a longer query go to the site: queries are parsed on the event loop here."""
BODY_SECONDS_MAX = 10.0
"""The longest time for a body to arrive. These bodies fit into one packet, so a client that takes longer is refused."""
_JSON_ACCEPTED = ("*/*", "application/json", "application/*")
_REFUSES = re.compile(r"q\s*=\s*0(\.0*)?")
_CONTENT_LENGTH = re.compile(rb"[0-9]{1,12}")


class ForwardToSite(Exception):
    """The site must answer this request. Raised only before the body is read, or after `gather`."""


class ClientDisconnected(Exception):
    """The client has disconnected, so no response can be sent."""


@lru_cache(maxsize=256)
def _plain(name: str) -> bytes:
    return name.lower().encode("latin-1", "replace")


class Headers:
    """A request's headers by case-insensitive name."""

    __slots__ = ("_values",)

    def __init__(self, pairs: list[tuple[bytes, bytes]], by_name: dict[bytes, bytes] | None = None) -> None:
        """`by_name`: the same headers, if the server knows that each name occurs once."""
        if by_name is not None:
            self._values = by_name
            return
        values = dict(pairs)
        if len(values) != len(pairs):
            # Repeated headers are joined into one list, as in WSGI; cookies have their own separator.
            values = {}
            for name, value in pairs:
                between = b"; " if name == b"cookie" else b","
                values[name] = values[name] + between + value if name in values else value
        self._values = values

    def get(self, name: str, default: Any = None) -> Any:
        value = self._values.get(_plain(name))
        return default if value is None else value.decode("latin-1")

    def __contains__(self, name: str) -> bool:
        return _plain(name) in self._values

    def plain(self, name: bytes) -> bytes | None:
        """Return the raw value of this lower-case name."""
        return self._values.get(name)

    def has_any(self, names: frozenset[bytes]) -> bool:
        """Return whether the request has one of these lower-case names."""
        return not names.isdisjoint(self._values)


class Request:
    __slots__ = (
        "_bad_body",
        "_cookies",
        "_gathered",
        "headers",
        "id",
        "method",
        "path",
        "receive",
        "scope",
        "whole_body",
    )

    def __init__(self, scope: Scope, receive: Receive | None = None) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers = Headers(scope["headers"], scope.get(HEADERS_BY_NAME))
        self.id = ""
        """The request id in logs and in the response."""
        self.receive = receive
        """The ASGI callable that receives the body, unless `whole_body` is set."""
        self.whole_body: bytes | bytearray | None = None
        """The body, if the server has received all of it."""
        self._bad_body: problems.Problem | None = None
        """The problem that `gather` found with the body."""
        self._gathered: Callable[[], Receive] | None = None
        """After `gather`: returns an ASGI callable that receives the body from its beginning."""
        self._cookies: Mapping[str, str] | None = None

    @property
    def scheme(self) -> str:
        return client_address.scheme_from_scope(self.scope)

    def is_secure(self) -> bool:
        return self.scheme == "https"

    def get_host(self) -> str:
        return self.headers.get("host", "")

    @property
    def COOKIES(self) -> Mapping[str, str]:  # noqa: N802 - As Django calls it.
        if self._cookies is None:
            given = self.headers.get("cookie")
            self._cookies = parse_cookie(given) if given else {}
        return self._cookies

    @property
    def GET(self) -> Mapping[str, str]:  # noqa: N802 - As Django calls it.
        """The query's parameters; of a repeated one, the last value."""
        return QueryDict(self.scope["query_string"]).dict()

    @property
    def content_type(self) -> str:
        """The media type without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def bearer(self) -> str | None:
        """Return the bearer token if the header has its usual form."""
        given = self.headers.plain(b"authorization")
        return given[7:].decode("latin-1") if given is not None and given[:7] == b"Bearer " else None

    def is_plain(self) -> bool:
        """Return whether the fast path may answer: the host is ours, TLS is used if required, the client accepts JSON
        and requests no other format, and the query is short. Other requests go to the site, which answers or refuses
        them."""
        query = self.scope["query_string"]
        if query and (b"format=" in query or len(query) > QUERY_BYTES_MAX):
            return False
        if not self.has_allowed_host():
            return False
        accept = self.headers.plain(b"accept")
        return accept is None or accept == b"*/*" or _accepts_json(accept)

    def has_allowed_host(self) -> bool:
        """Return whether the host is ours, and TLS is used if required."""
        if _requires_tls() and not self.is_secure():
            return False
        return _is_allowed_host(self.headers.plain(b"host"))

    def accepts_event_stream(self) -> bool:
        """Return whether the client accepts server-sent events."""
        accept = self.headers.plain(b"accept")
        return accept is not None and _accepts_event_stream(accept)

    def has_disconnected(self) -> bool:
        """Return whether the client is known to have disconnected. Only our own server reports this."""
        client: Client | None = self.scope.get(CLIENT)
        return client is not None and client.has_disconnected

    def is_last(self) -> bool:
        """Return whether the connection ends with this request, because the process is shutting down."""
        client: Client | None = self.scope.get(CLIENT)
        return client is not None and client.is_ending

    async def gather(self) -> None:
        """Receive the whole body now; the handler and the site read it later, each from its beginning. A problem with
        the body is raised later by `json_object`. Raises ClientDisconnected."""
        if self.whole_body is not None:
            return
        assert self.receive is not None
        receive, received = self.receive, list[Message]()

        async def record() -> Message:
            received.append(await receive())
            return received[-1]

        def from_beginning() -> Receive:
            left = deque(received)

            async def replay() -> Message:
                return left.popleft() if left else await receive()

            return replay

        self.receive = record
        try:
            await self._body(_body_bytes_max())
        except (problems.TooLarge, problems.TimedOut) as problem:
            self._bad_body = problem
        finally:
            self._gathered = from_beginning
            self.receive = from_beginning()

    def receive_for_site(self) -> Receive:
        """Return the ASGI callable from which the site receives the body, also if the handler has read it after
        `gather`."""
        receive = self.receive if self._gathered is None else self._gathered()
        assert receive is not None
        return receive

    async def json_object(self) -> dict[str, Any]:
        """Return the body, which must be a JSON object; an empty one if there is no body. Raises Invalid,
        MalformedBody, WrongContentType, TooLarge, TimedOut, ClientDisconnected."""
        raw = await self.body()
        if not raw:
            return {}
        # Comparing the usual spelling first is quicker.
        if self.headers.plain(b"content-type") != b"application/json" and self.content_type != "application/json":
            raise problems.WrongContentType
        value = json_body.read_json(raw, values_max=json_body.FEW_VALUES_MAX)
        if not isinstance(value, dict):
            raise problems.Invalid("a JSON object is expected")
        return value

    async def body(self) -> bytes:
        """Return the body; empty if there is none. Raises TooLarge, TimedOut, ClientDisconnected."""
        if self._bad_body is not None:
            raise self._bad_body
        return await self._body(_body_bytes_max())

    async def _body(self, bytes_max: int) -> bytes:
        body = self.whole_body
        if body is not None and self.headers.plain(b"content-length") == b"%d" % len(body):
            return _check_size(bytes(body), bytes_max)
        if not self._has_body(bytes_max):
            return b""
        if body is not None:
            return _check_size(bytes(body), bytes_max)
        # Nearly always the first message has the whole body. Our own server closes the connection if none arrives
        # (ticketing.server.http_protocol).
        message = await self._next()
        if not message.get("more_body", False):
            return _check_size(message.get("body", b""), bytes_max)
        try:
            async with asyncio.timeout(BODY_SECONDS_MAX):
                parts, size = [message.get("body", b"")], len(message.get("body", b""))
                while message.get("more_body", False):
                    message = await self._next()
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > bytes_max:
                        raise problems.TooLarge
        except TimeoutError as error:
            raise problems.TimedOut from error
        return _check_size(b"".join(parts), bytes_max)

    def _has_body(self, bytes_max: int) -> bool:
        """Return whether the headers declare a body. Raises TooLarge."""
        declared = self.headers.plain(b"content-length")
        if declared is None:
            return self.headers.plain(b"transfer-encoding") is not None
        if not _CONTENT_LENGTH.fullmatch(declared) or int(declared) > bytes_max:
            raise problems.TooLarge
        return True

    async def _next(self) -> Message:
        assert self.receive is not None
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        return message


def _check_size(body: bytes, bytes_max: int) -> bytes:
    if len(body) > bytes_max:
        raise problems.TooLarge
    return body


# Cached, like the functions below: reading Django's settings is expensive compared with the rest of a poll.
@cache
def _body_bytes_max() -> int:
    return settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0


@cache
def _requires_tls() -> bool:
    return bool(settings.SECURE_SSL_REDIRECT)


@lru_cache(maxsize=256)
def _is_allowed_host(host: bytes | None) -> bool:
    try:
        domain, _ = split_domain_port((host or b"").decode("ascii"))
    except UnicodeDecodeError:
        return False
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)


@lru_cache(maxsize=256)
def _accepts_event_stream(accept: bytes) -> bool:
    for part in accept.decode("latin-1").lower().split(","):
        kind, *terms = (word.strip() for word in part.split(";"))
        if kind == "text/event-stream":
            return not any(_REFUSES.fullmatch(term) for term in terms)
    return False


@lru_cache(maxsize=256)
def _accepts_json(accept: bytes) -> bool:
    kinds = (part.partition(";")[0].strip().lower() for part in accept.decode("latin-1").split(","))
    return any(kind in _JSON_ACCEPTED for kind in kinds)
