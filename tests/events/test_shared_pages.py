"""The catalogue and an event's page are the same bytes for everybody; who is logged in is asked for beside them."""

from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client

from apps.events import selectors
from apps.events.facade import EventView
from apps.events.models import Event, OnSale
from apps.kernel import clock
from apps.kernel.db import sql

pytestmark = pytest.mark.django_db
PAGES = ["/", "/?q=a", "/events/concert/", "/events/concert/plan.json", "/events/concert/poster.svg"]


def _headers(response: HttpResponse) -> dict[str, str]:
    # An answer has an id of its own; a cache keeps the first one's.
    return {name: value for name, value in response.headers.items() if name != "X-Request-Id"}


def test_a_public_page_says_the_same_to_everybody_and_leaves_the_session_alone(
    concert: EventView, shopper: Client
) -> None:
    """A shopper with a visitor's cookie, places, an account, and a message that waits."""
    shopper.force_login(User.objects.create_user("ann@example.org"))
    assert shopper.post("/events/concert/join").status_code == 303
    form = {"seats": "hall-A-1", "idempotency_key": "first"}
    assert shopper.post("/events/concert/choose", form).status_code == 303
    assert shopper.get("/events/concert/choose").status_code == 302, "which leaves a message"
    cookies = dict(shopper.cookies)
    assert {"visitor", "sessionid", "messages"} <= set(cookies)
    for path in PAGES:
        somebody = shopper.get(path)
        assert somebody.status_code == 200
        assert dict(shopper.cookies) == cookies
        assert not somebody.cookies
        assert not somebody.wsgi_request.session.accessed
        assert "Cookie" not in somebody.headers.get("Vary", "")
        nobody = Client(headers={"Cookie": "sessionid=none"}).get(path)
        assert (somebody.content, _headers(somebody)) == (nobody.content, _headers(nobody))
    said = shopper.get("/accounts/who")
    assert "You already hold these places" in said.content.decode()


def test_who_is_logged_in_is_told_to_nobody_but_them(browser: Client, db: None) -> None:
    nobody = browser.get("/accounts/who")
    assert (nobody.status_code, nobody.content, nobody.headers["Cache-Control"]) == (204, b"", "no-store")
    browser.force_login(User.objects.create_user("ann@example.org"))
    said = browser.get("/accounts/who")
    assert (said.status_code, said.headers["Cache-Control"]) == (200, "no-store")
    assert "ann@example.org" in said.content.decode()
    assert "csrfmiddlewaretoken" in said.content.decode()


def test_a_hint_without_a_session_goes_and_a_session_without_a_hint_gets_one(browser: Client, db: None) -> None:
    browser.cookies["signed_in"] = "1"
    browser.get("/accounts/who")
    assert browser.cookies["signed_in"]["max-age"] == 0
    browser.force_login(User.objects.create_user("ann@example.org"))
    assert browser.get("/accounts/log-in").status_code == 302
    assert browser.cookies["signed_in"].value == "1"


def test_whatever_does_not_say_how_it_may_be_kept_is_kept_by_nobody(browser: Client, db: None) -> None:
    for path in ("/events/nothing/", "/tickets/", "/accounts/log-in", "/nowhere", "/events/concert"):
        assert "no-store" in browser.get(path).headers["Cache-Control"]


def _directives(response: HttpResponse) -> dict[str, int]:
    words = response.headers["Cache-Control"].removeprefix("public, ").split(", ")
    return {name: int(value) for name, _, value in (word.partition("=") for word in words)}


def _cached_at(moment: datetime, path: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int, int]:
    page = sql.load("apps.events", "event_page")

    def at_that_moment(cursor: sql.Cursor, **asked: str) -> list[tuple[object, ...]]:
        return [(*row[:-1], moment) for row in page.rows(cursor, **asked)]

    monkeypatch.setattr(clock, "now", lambda: moment)
    monkeypatch.setattr(selectors, "_event_page", SimpleNamespace(rows=at_that_moment))
    said = _directives(Client().get(path))
    return said["s-maxage"], said["stale-while-revalidate"], said["max-age"]


KEPT_BEFORE_A_MOMENT = {
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
def test_no_page_is_kept_past_the_moment_at_which_the_clock_changes_it(
    moment: str, concert: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that is cached half a minute before the opening must not hide the button after it."""
    begin = clock.now() + timedelta(days=1)
    moments = {name: begin + timedelta(days=day) for day, name in enumerate(("lobby", "opening", "closing", "start"))}
    OnSale.objects.update(
        opens_at=moments["opening"], closes_at=moments["closing"], room_lobby_opens_at=moments["lobby"],
        room_rate_per_second=1, room_active_max=1,
    )  # fmt: skip
    Event.objects.update(starts_at=moments["start"])
    for seconds, kept in KEPT_BEFORE_A_MOMENT.items():
        at = moments[moment] - timedelta(seconds=seconds)
        assert _cached_at(at, "/events/concert/", monkeypatch) == kept
        if at < moments["opening"]:
            assert _cached_at(at, "/", monkeypatch) == kept


def test_what_is_sold_out_and_what_counts_is_kept_briefly(
    concert: EventView, shopper: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.now()
    assert _cached_at(now, "/events/concert/", monkeypatch) == (300, 60, 10)
    assert _cached_at(now, "/", monkeypatch) == _cached_at(now, "/?q=x", monkeypatch) == (30, 30, 10)
    monkeypatch.setattr("apps.events.registries._availability_providers", [lambda ids: {pk: {1: 0} for pk in ids}])
    assert _cached_at(now, "/events/concert/", monkeypatch) == (30, 30, 10)


def test_who_has_these_bytes_is_told_so(concert: EventView) -> None:
    for path in PAGES:
        first = Client().get(path)
        again = Client().get(path, headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["Cache-Control"] == first.headers["Cache-Control"]
