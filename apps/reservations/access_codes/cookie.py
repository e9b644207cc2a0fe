"""The access code that a browser has with it: brought by a link, or typed a moment ago.

In a cookie of the choosing page alone, so that it stands in no address for longer than the one request that brings it.
It opens nothing by itself: the page fills its field with it, and what is sent is judged like any other.
"""

from urllib.parse import quote, unquote

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from apps.reservations.holds.requests import code_of

COOKIE = "access"
COOKIE_DAYS = 30
QUERY_PARAMETERS = ("access", "access_code")
"""In addresses: a link's, and what a form without script sends along when another section is looked at."""


def saved_code(request: HttpRequest) -> str:
    """As codes are written; empty for none."""
    return code_of(unquote(request.COOKIES.get(COOKIE, ""))) or ""


def save_code(request: HttpRequest, response: HttpResponse, event_slug: str, code: str) -> None:
    """The browser has this code with it from now on; with an empty one it has none."""
    path = reverse("reservations:choose", args=[event_slug])
    if not code:
        response.delete_cookie(COOKIE, path=path, samesite="Lax")
        return
    response.set_cookie(
        COOKIE,
        quote(code),
        max_age=COOKIE_DAYS * 86_400,
        path=path,
        httponly=True,
        samesite="Lax",
        secure=request.is_secure(),
    )


def code_in_query(request: HttpRequest) -> str | None:
    """The code in the request's address, empty where it is none; None where the address has no such thing."""
    found = [request.GET[name] for name in QUERY_PARAMETERS if name in request.GET]
    return (code_of(found[0]) or "") if found else None


def url_without_code(request: HttpRequest) -> str:
    """The same address without the code."""
    query = request.GET.copy()
    for name in QUERY_PARAMETERS:
        query.pop(name, None)
    return f"{request.path}?{query.urlencode()}" if query else request.path
