"""The access code that a browser keeps, from a link or typed in.

The cookie is sent to the selection page only; the code leaves the URL after one redirect. The cookie grants nothing:
the page fills its form field with it, and the submitted code is checked like any other.
"""

from urllib.parse import quote, unquote

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from apps.reservations.holds.requests import code_of

COOKIE = "access"
COOKIE_DAYS = 30
QUERY_PARAMETERS = ("access", "access_code")
"""The query parameter of a link, and that of the form that switches the section without JavaScript."""


def saved_code(request: HttpRequest) -> str:
    """Return the saved code in normal form; empty if there is none."""
    return code_of(unquote(request.COOKIES.get(COOKIE, ""))) or ""


def save_code(request: HttpRequest, response: HttpResponse, event_slug: str, code: str) -> None:
    """Save the code in the browser's cookie; an empty one deletes the cookie."""
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
    """Return the code in the URL, empty if it is malformed; None if the URL has no such parameter."""
    found = [request.GET[name] for name in QUERY_PARAMETERS if name in request.GET]
    return (code_of(found[0]) or "") if found else None


def url_without_code(request: HttpRequest) -> str:
    """Return the request's URL without the code."""
    query = request.GET.copy()
    for name in QUERY_PARAMETERS:
        query.pop(name, None)
    return f"{request.path}?{query.urlencode()}" if query else request.path
