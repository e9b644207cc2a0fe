"""Access codes on the pages for choosing tickets: typed, tried out, or set by a link; errors are explained."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from apps.events import facade as events
from apps.kernel import clock, rate_limits
from apps.reservations.models import Reservation
from tests.support import factories

CHOOSE = "/events/concert/choose"
BOX = {"view": "list", "seats": ["hall-A-1"]}


@pytest.fixture
def presale(db: None) -> events.EventView:
    """The hall needs a code; the floor does not."""
    return factories.make_event("concert", general_admission=20, needs_access=("hall",))


@pytest.fixture
def fan(browser: Client, presale: events.EventView) -> Client:
    browser.post("/events/concert/join", follow=True)
    return browser


def hold(browser: Client, **fields: Any) -> Any:
    return browser.post(CHOOSE, {"idempotency_key": uuid.uuid4().hex, **fields})


def page_text(response: Any) -> str:
    return " ".join(response.context["form_errors"])


@pytest.mark.parametrize("view", ["map", "list", "best", "quantity"])
def test_each_way_to_choose_has_one_field_for_the_code(fan: Client, view: str) -> None:
    page = fan.get(f"{CHOOSE}?view={view}").content.decode()
    assert page.count('name="access_code"') == 1
    assert page.count('id="choose-form"') == 1
    assert 'id="access-heading"' in page


def test_an_event_without_codes_shows_no_field_for_them(shopper: Client) -> None:
    for view in ("map", "list", "best", "quantity"):
        page = shopper.get(f"{CHOOSE}?view={view}").content.decode()
        assert "access_code" not in page
        assert "with-code" not in page


def test_the_events_page_and_the_seating_plan_show_where_a_code_is_needed(
    client: Client, presale: events.EventView
) -> None:
    page = client.get("/events/concert/").content.decode()
    assert page.count("Code required</span>") == 1
    assert "need an access code" in page
    plan = client.get("/events/concert/plan.json").json()
    assert [section["needs_access"] for section in plan["sections"]] == [True, False]


def test_the_plans_version_changes_with_the_sections_that_need_a_code(presale: events.EventView) -> None:
    from apps.reservations.staff.access_restrictions import guard

    before = events.plan_version(presale.id)
    guard(presale, "hall", needs_access=False, who="staff", why="")
    assert events.plan_version(presale.id) != before


def test_without_a_code_the_choice_is_kept_and_the_field_is_marked(fan: Client) -> None:
    response = hold(fan, **BOX)
    assert response.status_code == 403
    assert "access code" in page_text(response)
    assert response.context["selected"] == ["hall-A-1"]


def test_with_the_code_the_seats_are_held_and_the_browser_keeps_the_code(
    fan: Client, presale: events.EventView
) -> None:
    factories.make_access_code(presale)
    response = hold(fan, **BOX, access_code="fan club")
    assert response.status_code == 303
    assert Reservation.objects.get().access_code_id is not None
    cookie = response.cookies["access"]
    assert (cookie.value, cookie["path"], cookie["httponly"], cookie["samesite"]) == ("FANCLUB", CHOOSE, True, "Lax")
    page = fan.get(f"{CHOOSE}?change=1&view=list")
    assert page.context["access_code"] == "FANCLUB"
    assert "The tickets you reserved stay unlocked" in page.content.decode()
    held = Reservation.objects.get()
    again = hold(fan, view="list", seats=["hall-A-2"], replace=str(held.pk))
    assert again.status_code == 303


@pytest.mark.parametrize(
    ("values", "typed", "status", "words"),
    [
        ({}, "NONSENSE", 403, "is not valid for your selection"),
        ({"is_active": False}, "FANCLUB", 403, "is not valid for your selection"),
        ({"valid_from": timedelta(hours=1)}, "FANCLUB", 409, "not valid yet"),
        ({"valid_until": timedelta(hours=-1)}, "FANCLUB", 409, "no longer valid"),
        ({"uses_max": 1}, "FANCLUB", 409, "reached its usage limit"),
    ],
)
def test_an_invalid_code_is_explained_whether_it_is_tried_or_used(
    fan: Client, presale: events.EventView, values: dict[str, Any], typed: str, status: int, words: str
) -> None:
    times = {name: clock.now() + value for name, value in values.items() if isinstance(value, timedelta)}
    factories.make_access_code(presale, **values | times)
    if "uses_max" in values:
        factories.hold(presale, seats=["hall-B-1"], access_code="FANCLUB")
    for button in ({}, {"use_code": "1"}):
        response = hold(fan, **BOX, access_code=typed, **button)
        assert response.status_code == status
        assert words in page_text(response)
        assert response.context["selected"] == ["hall-A-1"]
        assert response.context["access_code"] == typed
        assert "access" not in response.cookies


def test_trying_a_code_shows_what_it_opens_and_holds_nothing(fan: Client, presale: events.EventView) -> None:
    code = factories.make_access_code(presale, uses_max=1, uses_per_buyer_max=1)
    response = hold(fan, view="best", access_code="fanclub", use_code="1", best_section="hall", best_quantity="3")
    assert response.status_code == 200
    assert response.context["opened"] == ["Hall"]
    assert "Your code unlocks Hall." in response.content.decode()
    assert 'value="3"' in response.content.decode()
    assert response.cookies["access"].value == "FANCLUB"
    assert code.reservations.count() == 0
    forgotten = hold(fan, view="best", access_code="", use_code="1")
    assert forgotten.status_code == 200
    assert forgotten.cookies["access"].value == ""


def test_attempts_with_codes_are_limited(fan: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "check_request", lambda kind, *_: 4.0 if kind == "code" else None)
    for button in ({}, {"use_code": "1"}):
        response = hold(fan, **BOX, access_code="GUESS", **button)
        assert response.status_code == 429
        assert int(response.headers["Retry-After"]) >= 4
    assert fan.get(CHOOSE).status_code == 200


def test_a_link_stores_the_code_and_removes_it_from_the_address(browser: Client, presale: events.EventView) -> None:
    response = browser.get(f"{CHOOSE}?access=fan+club&view=list")
    assert (response.status_code, response.url) == (302, f"{CHOOSE}?view=list")
    assert response.cookies["access"].value == "FANCLUB"
    assert "no-store" in response.headers["Cache-Control"]
    browser.post("/events/concert/join", follow=True)
    page = browser.get(f"{CHOOSE}?view=list")
    assert page.context["access_code"] == "FANCLUB"
    assert 'value="FANCLUB"' in page.content.decode()


def test_viewing_another_section_without_script_keeps_the_typed_code(fan: Client) -> None:
    response = fan.get(f"{CHOOSE}?view=list&section=hall&access_code=typed&seats=hall-A-1")
    assert response.status_code == 302
    assert "access" not in response.url
    assert "seats=hall-A-1" in response.url
    assert response.cookies["access"].value == "TYPED"


@pytest.mark.parametrize(
    "query", ["access=%00", "access=" + "x" * 300, "access=", "access=%F0%9F%8E%AB", "access=a%0Ab"]
)
def test_no_link_can_break_the_page(fan: Client, query: str) -> None:
    response = fan.get(f"{CHOOSE}?{query}", follow=True)
    assert response.status_code == 200


def test_a_made_up_cookie_is_only_text(fan: Client) -> None:
    fan.cookies["access"] = "%00%FF<script>"
    page = fan.get(CHOOSE)
    assert page.status_code == 200
    assert '<script>"' not in page.content.decode()
