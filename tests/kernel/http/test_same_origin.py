"""Writes that send a cookie come from our own pages, or are refused."""

import pytest
from django.test import Client, RequestFactory

from apps.events import facade as events
from apps.kernel.http import problems
from apps.kernel.http.same_origin import find_problem, is_same_origin
from apps.queue.models import QueueEntry
from tests.support import factories

OWN = "https://tickets.example"
TRUSTED = "https://www.tickets.example"
ELSEWHERE = "https://evil.example"


@pytest.mark.parametrize(
    ("origin", "fetch_site", "is_own"),
    [
        (None, None, None),
        (OWN, None, True),
        (ELSEWHERE, None, False),
        ("null", None, False),
        ("", None, False),
        (TRUSTED, None, True),
        (OWN.replace("https", "http"), None, False),
        (f"{OWN}:444", None, False),
        (f"{OWN}.evil.example", None, False),
        (OWN.upper(), None, False),
        (None, "same-origin", True),
        (OWN, "same-origin", True),
        ("null", "same-origin", True),
        (None, "same-site", False),
        (ELSEWHERE, "same-site", False),
        (TRUSTED, "same-site", True),
        (None, "cross-site", False),
        (OWN, "cross-site", False),
        (TRUSTED, "cross-site", False),
        (None, "none", None),
        (OWN, "none", True),
        (ELSEWHERE, "none", False),
        (None, "", False),
        (None, "nonsense", False),
        (None, "Same-Origin", False),
    ],
)
def test_the_headers_show_the_origin(settings, origin: str | None, fetch_site: str | None, is_own: bool | None) -> None:
    settings.CSRF_TRUSTED_ORIGINS = [TRUSTED]
    assert is_same_origin(origin, fetch_site, OWN) is is_own


def refused(path: str, *, cookie: bool, content_type: str = "", body: bytes = b"", **headers: str) -> str:
    """Return the type of the problem that refuses a POST; empty if it is allowed."""
    request = RequestFactory(headers={name.replace("_", "-"): value for name, value in headers.items()}).generic(
        "POST", path, body, content_type=content_type or "application/octet-stream", secure=True
    )
    request.META["HTTP_HOST"] = "testserver"
    if cookie:
        request.COOKIES["visitor"] = "whatever"
    problem = find_problem(request)
    return "" if problem is None else problem.type


API, PAGE = "/api/events/concert/queue", "/events/concert/join"


@pytest.mark.parametrize("path", [API, PAGE])
def test_a_write_with_a_cookie_needs_proof_of_its_origin(path: str) -> None:
    assert refused(path, cookie=True) == "cross-origin"
    assert refused(path, cookie=True, sec_fetch_site="none") == "cross-origin"
    assert refused(path, cookie=True, sec_fetch_site="cross-site") == "cross-origin"
    assert refused(path, cookie=True, origin=ELSEWHERE) == "cross-origin"
    assert refused(path, cookie=True, origin="https://[") == "cross-origin"
    assert refused(path, cookie=True, origin="https://testserver") == ""
    assert refused(path, cookie=True, sec_fetch_site="same-origin") == ""


def test_a_bearer_token_is_proof_enough() -> None:
    assert refused(API, cookie=True, authorization="Bearer x") == ""
    assert refused(API, cookie=True, authorization="bearer x", sec_fetch_site="cross-site") == ""


@pytest.mark.parametrize("scheme", ["Basic dXNlcjpwYXNz", "Negotiate x", "Bearer"])
def test_headers_that_a_browser_adds_by_itself_are_no_proof(scheme: str) -> None:
    assert refused(PAGE, cookie=True, authorization=scheme) == "cross-origin"


def test_without_a_cookie_there_is_nothing_to_protect() -> None:
    assert refused(API, cookie=False) == ""
    assert refused(PAGE, cookie=False) == ""
    assert refused(API, cookie=False, origin=ELSEWHERE, sec_fetch_site="cross-site") == ""


def test_a_foreign_form_is_refused_even_if_the_browser_withheld_its_cookies() -> None:
    assert refused(PAGE, cookie=False, origin=ELSEWHERE) == "cross-origin"
    assert refused(PAGE, cookie=False, sec_fetch_site="cross-site") == "cross-origin"


@pytest.mark.parametrize(
    ("path", "content_type", "kind"),
    [
        (API, "application/json", ""),
        (API, "application/json; charset=utf-8", ""),
        (API, "text/plain", "unsupported-media-type"),
        (API, "application/x-www-form-urlencoded", "unsupported-media-type"),
        (API, "application/jsonp", "unsupported-media-type"),
        (PAGE, "application/x-www-form-urlencoded", ""),
        (PAGE, "multipart/form-data; boundary=x", ""),
        (PAGE, "text/plain", "unsupported-media-type"),
        (PAGE, "application/json", "unsupported-media-type"),
    ],
)
def test_a_write_with_a_cookie_has_exactly_the_content_type_of_its_address(
    path: str, content_type: str, kind: str
) -> None:
    assert refused(path, cookie=True, sec_fetch_site="same-origin", content_type=content_type, body=b"{}") == kind


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_reading_is_always_allowed(client: Client, db: None, method: str) -> None:
    client.cookies["visitor"] = "whatever"
    response = client.generic(method, "/events/", headers={"sec-fetch-site": "cross-site"})
    assert response.status_code == 404


def test_a_refused_write_changes_nothing_and_gives_the_reason(client: Client, concert: events.EventView) -> None:
    client.cookies["visitor"] = "whatever"
    page = client.post(PAGE, headers={"sec-fetch-site": "cross-site"})
    assert page.status_code == 403
    assert problems.CrossOrigin.title in page.content.decode()
    document = client.post(API, content_type="application/json", headers={"sec-fetch-site": "cross-site"})
    assert (document.status_code, document.json()["type"]) == (403, "cross-origin")
    assert not QueueEntry.objects.exists()


def test_a_foreign_form_cannot_end_a_visitors_entry(concert: events.EventView) -> None:
    browser = Client(headers={"sec-fetch-site": "same-origin"})
    browser.post(PAGE, follow=True)
    foreign = Client(headers={"sec-fetch-site": "cross-site"})  # SameSite=Lax: the cookie is not sent.
    answer = foreign.post(PAGE)
    assert answer.status_code == 403
    assert not answer.cookies
    assert QueueEntry.objects.count() == 1
    factories.assert_audit_clean()
