"""What a handler answers with, and what every answer of the house carries."""

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
# They say the same about every answer of the site, whatever it is; asked once, so that the lane says it too.
_HEADER_MIDDLEWARE = (
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
)


class Reply:
    """A status, a body and its headers. Cookies are set as on Django's response."""

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
        # All that Django's method touches of its response is `cookies`.
        HttpResponseBase.set_cookie(self, key, value, **options)  # type: ignore[arg-type]

    def delete_cookie(self, key: str, **options: Any) -> None:
        HttpResponseBase.delete_cookie(self, key, **options)  # type: ignore[arg-type]

    def with_body(self, value: Any) -> "Reply":
        """The same with this for a body."""
        self.body = _encode(value)
        return self

    def lines(self, request_id: str, *, secure: bool) -> bytes:
        """The same headers as they travel."""
        lines = self.stream_lines(request_id, secure=secure)
        return lines if self.status == 304 else b"%bcontent-length: %d\r\n" % (lines, len(self.body))

    def stream_lines(self, request_id: str, *, secure: bool) -> bytes:
        """The same of an answer whose end nobody knows."""
        own = self.headers
        lines = _constant_lines(own, secure) if type(own) is tuple else _lines(own) + _constant_lines((), secure)
        if self._cookies:
            lines += _lines(_cookie_headers(self._cookies))
        return b"%bx-request-id: %b\r\n" % (lines, request_id.encode("latin-1"))

    def head(self, request_id: str, *, secure: bool) -> Headers:
        """All headers of the answer."""
        headers = self.stream_head(request_id, secure=secure)
        if self.status != 304:
            headers.append((b"content-length", b"%d" % len(self.body)))
        return headers

    def stream_head(self, request_id: str, *, secure: bool) -> list[tuple[bytes, bytes]]:
        """The same of an answer whose end nobody knows."""
        headers = [*self.headers, (b"x-request-id", request_id.encode("latin-1")), *site_headers(secure)]
        if self._cookies:
            headers += _cookie_headers(self._cookies)
        return headers


_PERSONAL = (JSON, NO_STORE)


def private_reply(value: Any, status: int = 200) -> Reply:
    """An answer in JSON that is for this caller and this moment only."""
    return Reply(status, _encode(value), _PERSONAL)


def private_reply_of_json(body: bytes, status: int = 200) -> Reply:
    """The same of JSON that is text already."""
    return Reply(status, body, _PERSONAL)


def problem_reply(problem: problems.Problem) -> Reply:
    """The problem as a document, the same bytes from lane and site but for their spaces."""
    if not problem.is_plain:
        return _refusal(problem)
    said = _plain_refusals.get(type(problem))
    if said is None:
        reply = _refusal(problem)
        said = _plain_refusals[type(problem)] = (reply.body, tuple(reply.headers))
    return Reply(problem.status, *said)


_plain_refusals: dict[type[problems.Problem], tuple[bytes, tuple[tuple[bytes, bytes], ...]]] = {}
"""Of those that say nothing but what their kind says, written once."""


def _refusal(problem: problems.Problem) -> Reply:
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in problem.headers().items()]
    return Reply(problem.status, _encode(problem.document()), [PROBLEM, *headers])


def _cookie_headers(cookies: SimpleCookie) -> list[tuple[bytes, bytes]]:
    return [(b"set-cookie", morsel.OutputString().encode("latin-1")) for morsel in cookies.values()]


def _lines(headers: Headers) -> bytes:
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    # What a line's end in a value would begin is another header, or another answer.
    if lines.count(b"\n") != len(headers) or lines.count(b"\r") != len(headers):
        raise ValueError("a header holds the end of a line")
    return lines


@lru_cache(maxsize=256)
def _constant_lines(own: tuple[tuple[bytes, bytes], ...], secure: bool) -> bytes:
    return _lines(own) + _lines(site_headers(secure))


@lru_cache(maxsize=2)
def site_headers(secure: bool) -> tuple[tuple[bytes, bytes], ...]:
    """What the site's own middleware says on each of its answers, over TLS or not."""
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
    said = answer(request)
    if said.status_code != 200:
        return ()  # Not over TLS in a house that wants it: the site sends such requests on, the lane never answers.
    return tuple(
        (name.lower().encode(), value.encode("latin-1"))
        for name, value in said.items()
        if name.lower() not in ("content-type", "content-length")
    )
