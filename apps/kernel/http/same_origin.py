"""Checks that writes with a cookie come from our own pages. The same check serves pages and API. It uses no CSRF token,
because a page that a cache serves to all visitors cannot contain one."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from apps.kernel.http import problems
from apps.kernel.http.middleware import problem_response
from apps.kernel.http.request_types import AnyRequest

_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_FORMS = frozenset({"application/x-www-form-urlencoded", "multipart/form-data"})


def is_same_origin(origin: str | None, fetch_site: str | None, own: str) -> bool | None:
    """Return whether the headers show a request of our own pages: True, False, or None if neither header is conclusive.

    `own` is scheme://host. Sec-Fetch-Site is trusted: the browser sets it, and no page can forge it.
    """
    if fetch_site is not None and fetch_site != "none":
        return fetch_site == "same-origin" or (fetch_site == "same-site" and origin in settings.CSRF_TRUSTED_ORIGINS)
    if origin is not None:
        return origin == own or origin in settings.CSRF_TRUSTED_ORIGINS
    # `none` is a direct navigation (an address typed in). No form sends it, so it does not prove the origin.
    return None


def is_same_origin_request(request: AnyRequest) -> bool | None:
    """Return the result of `is_same_origin` for this request."""
    origin, fetch_site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
    if origin is None and fetch_site is None:
        return None  # The usual case for API clients.
    return is_same_origin(origin, fetch_site, f"{request.scheme}://{request.get_host()}")


def find_problem(request: AnyRequest) -> problems.Problem | None:
    """Return the problem with which this request is refused; None if it is allowed."""
    if request.method in _SAFE or request.headers.get("Authorization", "").lower().startswith("bearer "):
        return None
    is_ours = is_same_origin_request(request)
    is_api = problems.is_api(request)
    if not request.COOKIES:
        return problems.CrossOrigin() if is_ours is False and not is_api else None
    if not is_ours:
        return problems.CrossOrigin()
    has_body = request.headers.get("Content-Length", "0") not in ("", "0") or "Transfer-Encoding" in request.headers
    if has_body and is_api and request.content_type != "application/json":
        return problems.WrongContentType()
    if has_body and not is_api and request.content_type not in _FORMS:
        return problems.WrongContentType("Send the form as the page does.")
    return None


class SameOriginWrites(MiddlewareMixin):
    """Refuses a write with cookies unless it provably came from this site. A request with a bearer token or without
    cookies is allowed, because no cookie authenticates it.

    A form that provably comes from another site is refused even without a cookie: the browser withheld its cookies
    (SameSite=Lax), and a response would replace the visitor's identity with a new one.
    """

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        problem = find_problem(request)
        return None if problem is None else problem_response(request, problem)
