"""Writes that carry a cookie must come from our own pages. One check for pages and API alike, because a page that a
cache serves to everyone cannot carry a token of its own."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from apps.kernel.http import problems
from apps.kernel.http.middleware import problem_response
from apps.kernel.http.request_types import AnyRequest

_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_FORMS = frozenset({"application/x-www-form-urlencoded", "multipart/form-data"})


def is_same_origin(origin: str | None, fetch_site: str | None, own: str) -> bool | None:
    """Whether the headers show a request of our own pages: True, False, or None if neither header is conclusive.

    `own` is scheme://host. A browser that sends Sec-Fetch-Site is believed: no page can forge it.
    """
    if fetch_site is not None and fetch_site != "none":
        return fetch_site == "same-origin" or (fetch_site == "same-site" and origin in settings.CSRF_TRUSTED_ORIGINS)
    if origin is not None:
        return origin == own or origin in settings.CSRF_TRUSTED_ORIGINS
    # `none` is a direct navigation (an address typed in). No form sends it, so it proves nothing.
    return None


def is_same_origin_request(request: AnyRequest) -> bool | None:
    """`is_same_origin` of this request."""
    origin, fetch_site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
    if origin is None and fetch_site is None:
        return None  # The usual case for API clients.
    return is_same_origin(origin, fetch_site, f"{request.scheme}://{request.get_host()}")


def find_problem(request: AnyRequest) -> problems.Problem | None:
    """Return why this request is refused, None if it is allowed."""
    if request.method in _SAFE or request.headers.get("Authorization", "").lower().startswith("bearer "):
        return None
    ours = is_same_origin_request(request)
    is_api = problems.is_api(request)
    if not request.COOKIES:
        return problems.CrossOrigin() if ours is False and not is_api else None
    if not ours:
        return problems.CrossOrigin()
    has_body = request.headers.get("Content-Length", "0") not in ("", "0") or "Transfer-Encoding" in request.headers
    if has_body and is_api and request.content_type != "application/json":
        return problems.WrongContentType()
    if has_body and not is_api and request.content_type not in _FORMS:
        return problems.WrongContentType("Send the form as the page does.")
    return None


class SameOriginWrites:
    """Refuses a write that carries cookies unless it provably came from this site. A request with a bearer token, or
    with no cookie at all, is not authenticated by a cookie and is not concerned.

    A form that provably comes from another site is refused even without a cookie: the browser withheld its cookies
    (SameSite=Lax), and answering would replace the visitor's identity with a new one.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        problem = find_problem(request)
        return self.get_response(request) if problem is None else problem_response(request, problem)
