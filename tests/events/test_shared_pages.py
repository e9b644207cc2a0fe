"""The catalog and event pages are the same bytes for every visitor; the signed-in user is fetched separately."""

from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest
from django.http import HttpResponse
from django.test import Client

from apps.accounts.models import User
from apps.events import selectors
from apps.events.facade import EventView
from apps.events.models import Event, OnSale
from apps.kernel import clock
from apps.kernel.db import sql

pytestmark = pytest.mark.django_db
PAGES = ["/", "/?q=a", "/events/concert/", "/events/concert/plan.json", "/events/concert/poster.svg"]


def _headers(response: HttpResponse) -> dict[str, str]:
    # Each response has its own id; a cache keeps the first one's.
    return {name: value for name, value in response.headers.items() if name != "X-Request-Id"}


def test_public_pages_are_the_same_for_every_visitor_and_do_not_touch_the_session(
    concert: EventView, shopper: Client
) -> None:
    """A shopper with a visitor cookie, held seats, an account, and a pending message."""
    shopper.force_login(User.objects.create_user("ann@example.org"))
    assert shopper.post("/events/concert/join").status_code == 303
    form = {"seats": "hall-A-1", "idempotency_key": "first"}
    assert shopper.post("/events/concert/choose", form).status_code == 303
    assert shopper.get("/events/concert/choose").status_code == 302, "the redirect leaves a message"
    cookies = dict(shopper.cookies)
    assert {"visitor", "sessionid", "messages"} <= set(cookies)
    for path in PAGES:
        shared = shopper.get(path)
        assert shared.status_code == 200
        assert dict(shopper.cookies) == cookies
        assert not shared.cookies
        assert not shared.wsgi_request.session.accessed
        assert "Cookie" not in shared.headers.get("Vary", "")
        anonymous = Client(headers={"Cookie": "sessionid=none"}).get(path)
        assert (shared.content, _headers(shared)) == (anonymous.content, _headers(anonymous))
    header = shopper.get("/api/me/header?shared=1").json()
    assert "You already have these tickets reserved" in header["messages"][0]["text"]


def test_the_signed_in_user_is_shown_only_to_that_user(browser: Client, db: None) -> None:
    anonymous = browser.get("/api/me/header?shared=1")
    assert (anonymous.status_code, anonymous.json()["account"]) == (200, None)
    browser.force_login(User.objects.create_user("ann@example.org"))
    account = browser.get("/api/me/header?shared=1")
    assert account.headers["Cache-Control"] == "private, no-store"
    assert account.json()["account"]["name"] == "ann@example.org"


def test_a_hint_without_a_session_is_deleted_and_a_session_without_a_hint_gets_one(browser: Client, db: None) -> None:
    browser.cookies["signed_in"] = "1"
    browser.get("/api/me/header")
    assert browser.cookies["signed_in"]["max-age"] == 0
    browser.force_login(User.objects.create_user("ann@example.org"))
    assert browser.get("/accounts/log-in").status_code == 302
    assert browser.cookies["signed_in"].value == "1"


def test_responses_without_cache_control_are_marked_no_store(browser: Client, db: None) -> None:
    for path in ("/events/nothing/", "/tickets/", "/accounts/log-in", "/nowhere", "/events/concert"):
        assert "no-store" in browser.get(path).headers["Cache-Control"]


def _directives(response: HttpResponse) -> dict[str, int]:
    words = response.headers["Cache-Control"].removeprefix("public, ").split(", ")
    return {name: int(value) for name, _, value in (word.partition("=") for word in words)}


def _cached_at(moment: datetime, path: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int, int]:
    page = sql.load("apps.events", "event_page")

    def at_that_moment(cursor: sql.Cursor, **parameters: str) -> list[tuple[object, ...]]:
        return [(*row[:-1], moment) for row in page.rows(cursor, **parameters)]

    monkeypatch.setattr(clock, "now", lambda: moment)
    monkeypatch.setattr(selectors, "_event_page", SimpleNamespace(rows=at_that_moment))
    directives = _directives(Client().get(path))
    return directives["s-maxage"], directives["stale-while-revalidate"], directives["max-age"]


LIFETIMES_BEFORE_A_MOMENT = {
    3_600: (300, 60, 10),
    430: (300, 60, 10),
    425: (300, 60, 5),
    360: (300, 30, 0),
    300: (300, 0, 0),
    30: (30, 0, 0),
    1.5: (1, 0, 0),
    0.5: (0, 0, 0),
    0: (300, 60, 10),
}


@pytest.mark.parametrize("moment", ["lobby", "opening", "closing", "start"])
def test_no_page_is_cached_past_the_moment_at_which_time_changes_it(
    moment: str, concert: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that is cached half a minute before the opening must not hide the button afterwards."""
    begin = clock.now() + timedelta(days=1)
    moments = {name: begin + timedelta(days=day) for day, name in enumerate(("lobby", "opening", "closing", "start"))}
    OnSale.objects.update(
        opens_at=moments["opening"], closes_at=moments["closing"], room_lobby_opens_at=moments["lobby"],
        room_rate_per_second=1, room_active_max=1,
    )  # fmt: skip
    Event.objects.update(starts_at=moments["start"])
    for seconds, lifetimes in LIFETIMES_BEFORE_A_MOMENT.items():
        at = moments[moment] - timedelta(seconds=seconds)
        assert _cached_at(at, "/events/concert/", monkeypatch) == lifetimes
        if at < moments["opening"]:
            assert _cached_at(at, "/", monkeypatch) == lifetimes


def test_sold_out_pages_and_pages_with_counts_are_cached_briefly(
    concert: EventView, shopper: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.now()
    assert _cached_at(now, "/events/concert/", monkeypatch) == (300, 60, 10)
    assert _cached_at(now, "/", monkeypatch) == _cached_at(now, "/?q=x", monkeypatch) == (30, 30, 10)
    monkeypatch.setattr("apps.events.registries._availability_providers", [lambda ids: {pk: {1: 0} for pk in ids}])
    assert _cached_at(now, "/events/concert/", monkeypatch) == (30, 30, 10)


def test_an_unchanged_page_is_304(concert: EventView) -> None:
    for path in PAGES:
        first = Client().get(path)
        again = Client().get(path, headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["Cache-Control"] == first.headers["Cache-Control"]
