"""Any form input gets an HTML page: never a 500, never bare text."""

from typing import Any

import pytest
from django.test import Client

from apps.events import facade as events
from apps.reservations.models import Reservation

FORM = "application/x-www-form-urlencoded"
NASTY: dict[str, tuple[str, bytes, int]] = {
    "bytes that are no text": (FORM, b"seats=%ff%fe&view=list", 422),
    "nul everywhere": (FORM, b"seats=%00&view=%00&ga_section=%00&ga_quantity=%00&idempotency_key=%00", 422),
    "half a surrogate pair": (FORM, b"seats=%ed%a0%80", 422),
    "another charset": (f"{FORM}; charset=utf-7", b"seats=hall-A-1", 400),
    "thousands of fields": (FORM, b"a=1&" * 5_000, 400),
    "thousands of seats": (FORM, b"seats=x&" * 900, 422),
    "a seat of a hundred thousand letters": (FORM, b"seats=" + b"x" * 100_000, 422),
    "more than fits": (FORM, b"seats=" + b"x" * 300_000, 413),
    "parts without a boundary": ("multipart/form-data", b"abc", 400),
    "parts cut off": ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data; name=", 422),
    "another type": ("text/plain", b"seats=hall-A-1", 415),
    "everything at once, too many": (
        FORM, b"seats=hall-A-1&ga_section=floor&ga_quantity=8&best_section=hall&best_quantity=8", 422,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NASTY)
def test_an_invalid_form_gets_a_page(shopper: Client, case: str) -> None:
    content_type, body, status = NASTY[case]
    response: Any = shopper.generic("POST", "/events/concert/choose", body, content_type=content_type)
    assert response.status_code == status, response.content[:500]
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert b"</html>" in response.content
    assert not Reservation.objects.exists()


@pytest.mark.parametrize(
    "path",
    ["/events/%00/", "/events/%ff%fe/", "/events/concert/choose%00", "/reservations/7/", "/reservations/%00/release",
     "/nowhere", "/accounts/nowhere", "/events/concert/choose/"],
)  # fmt: skip
def test_an_unknown_url_gets_the_sites_404_page(shopper: Client, path: str) -> None:
    response = shopper.get(path)
    assert response.status_code == 404
    assert "Page not found" in response.content.decode()


@pytest.mark.parametrize("cookie", ["", "x", "a:b:c", '"\\000"', "é" * 3, "x" * 3_000, "a-browser-of-mine:1:forged"])
@pytest.mark.parametrize("name", ["visitor", "sessionid", "csrftoken", "messages", "orders"])
def test_a_forged_cookie_identifies_no_visitor_and_causes_no_error(
    browser: Client, concert: events.EventView, name: str, cookie: str
) -> None:
    browser.cookies[name] = cookie
    assert browser.get("/").status_code == 200
    assert "press “Get tickets”" in browser.get("/events/concert/choose").content.decode()
    assert browser.get("/tickets/").status_code == 200
    assert browser.post("/events/concert/join").status_code == 307


def test_a_server_error_gets_a_page_without_details(shopper: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(event_id: int) -> None:
        raise RuntimeError("a secret detail")

    monkeypatch.setattr("apps.reservations.views.events.list_sections", break_down)
    shopper.raise_request_exception = False
    response = shopper.get("/events/concert/choose")
    assert response.status_code == 500
    assert "Something went wrong" in response.content.decode()
    assert b"secret" not in response.content
