"""Responses of the fast path's handlers, and the headers that every response of the site carries."""

from collections.abc import Sequence
from functools import lru_cache
from http.cookies import SimpleCookie
from typing import Any

import msgspec
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.module_loading import import_string

from apps.kernel.http import problems

Headers = Sequence[tuple[bytes, bytes]]

_encode = msgspec.json.encode
NO_STORE = (b"cache-control", b"no-store")
JSON = (b"content-type", b"application/json")
PROBLEM = (b"content-type", problems.CONTENT_TYPE.encode())
# This middleware sets the same headers on every response. It runs once here, so that the fast path sets them too.
_HEADER_MIDDLEWARE = (
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
)


class Reply:
    """A status, a body and headers. Cookies are set as on Django's response."""

    __slots__ = ("_cookies", "body", "headers", "status")

    def __init__(self, status: int, body: bytes, headers: Headers) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self._cookies: SimpleCookie | None = None

    @property
    def cookies(self) -> SimpleCookie:
        if self._cookies is None:
            self._cookies = SimpleCookie()
        return self._cookies

    def set_cookie(self, key: str, value: str = "", **options: Any) -> None:
        # Django's method uses nothing of its response but `cookies`.
        HttpResponseBase.set_cookie(self, key, value, **options)  # type: ignore[arg-type]

    def delete_cookie(self, key: str, **options: Any) -> None:
        HttpResponseBase.delete_cookie(self, key, **options)  # type: ignore[arg-type]

    def with_body(self, value: Any) -> "Reply":
        """Set this value as the body and return the reply."""
        self.body = _encode(value)
        return self

    def lines(self, request_id: str, *, secure: bool) -> bytes:
        """Return all header lines in the form in which they are sent."""
        lines = self.stream_lines(request_id, secure=secure)
        return lines if self.status == 304 else b"%bcontent-length: %d\r\n" % (lines, len(self.body))

    def stream_lines(self, request_id: str, *, secure: bool) -> bytes:
        """Return the header lines of a response of unknown length."""
        own = self.headers
        lines = _constant_lines(own, secure) if type(own) is tuple else _lines(own) + _constant_lines((), secure)
        if self._cookies:
            lines += _lines(_cookie_headers(self._cookies))
        return b"%bx-request-id: %b\r\n" % (lines, request_id.encode("latin-1"))

    def head(self, request_id: str, *, secure: bool) -> Headers:
        """Return all headers."""
        headers = self.stream_head(request_id, secure=secure)
        if self.status != 304:
            headers.append((b"content-length", b"%d" % len(self.body)))
        return headers

    def stream_head(self, request_id: str, *, secure: bool) -> list[tuple[bytes, bytes]]:
        """Return the headers of a response of unknown length."""
        headers = [*self.headers, (b"x-request-id", request_id.encode("latin-1")), *site_headers(secure)]
        if self._cookies:
            headers += _cookie_headers(self._cookies)
        return headers


_PERSONAL = (JSON, NO_STORE)


def private_reply(value: Any, status: int = 200) -> Reply:
    """Return a JSON response that no cache may store."""
    return Reply(status, _encode(value), _PERSONAL)


def private_reply_of_json(body: bytes, status: int = 200) -> Reply:
    """Return such a response for JSON that is already encoded."""
    return Reply(status, body, _PERSONAL)


def problem_reply(problem: problems.Problem) -> Reply:
    """Return the problem as a response, the same as the site's except for whitespace."""
    if not problem.is_plain:
        return _refusal(problem)
    encoded = _plain_refusals.get(type(problem))
    if encoded is None:
        reply = _refusal(problem)
        encoded = _plain_refusals[type(problem)] = (reply.body, tuple(reply.headers))
    return Reply(problem.status, *encoded)


_plain_refusals: dict[type[problems.Problem], tuple[bytes, tuple[tuple[bytes, bytes], ...]]] = {}
"""The encoded body and headers of problem classes whose document never varies."""


def _refusal(problem: problems.Problem) -> Reply:
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in problem.headers().items()]
    return Reply(problem.status, _encode(problem.document()), [PROBLEM, *headers])


def _cookie_headers(cookies: SimpleCookie) -> list[tuple[bytes, bytes]]:
    return [(b"set-cookie", morsel.OutputString().encode("latin-1")) for morsel in cookies.values()]


def _lines(headers: Headers) -> bytes:
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    # A line break in a value would start another header, or another response.
    if lines.count(b"\n") != len(headers) or lines.count(b"\r") != len(headers):
        raise ValueError("a header contains a line break")
    return lines


@lru_cache(maxsize=256)
def _constant_lines(own: tuple[tuple[bytes, bytes], ...], secure: bool) -> bytes:
    return _lines(own) + _lines(site_headers(secure))


@lru_cache(maxsize=2)
def site_headers(secure: bool) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers that the site's middleware sets on each response; `secure`: over TLS."""
    request = HttpRequest()
    request.method, request.path, request.path_info = "GET", "/api/", "/api/"
    host = settings.ALLOWED_HOSTS[0].lstrip("*.") if settings.ALLOWED_HOSTS else "localhost"
    request.META = {"SERVER_NAME": host or "localhost", "SERVER_PORT": "443" if secure else "80"}
    if secure and settings.SECURE_PROXY_SSL_HEADER:
        name, value = settings.SECURE_PROXY_SSL_HEADER
        request.META[name] = value

    def answer(request: HttpRequest) -> HttpResponseBase:
        return HttpResponse(b"", content_type="application/json")

    for path in reversed([path for path in settings.MIDDLEWARE if path in _HEADER_MIDDLEWARE]):
        answer = import_string(path)(answer)
    site_response = answer(request)
    if site_response.status_code != 200:
        return ()  # Required TLS is not used: the site redirects such requests, and the fast path never answers them.
    return tuple(
        (name.lower().encode(), value.encode("latin-1"))
        for name, value in site_response.items()
        if name.lower() not in ("content-type", "content-length")
    )
