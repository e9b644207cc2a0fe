"""The public announcements API, through the Django view and the fast path."""

from typing import Any

import pytest

from apps.events.announcements import archive, redis_cache, service
from apps.events.facade import EventView
from tests.support.api_client import Api, assert_problem
from tests.support.own_redis import OwnRedis

ANNOUNCEMENTS = "/events/concert/announcements"
HISTORY = f"{ANNOUNCEMENTS}/history"


def post(event: EventView, text: str) -> None:
    service.post(event.id, text, author="ann")


def texts(response: Any) -> list[tuple[int, str | None]]:
    assert response.status_code == 200, response.content
    return [(one["announcement_id"], one["text"]) for one in response.json()["announcements"]]


def test_current_announcements_are_public_and_newest_first(api: Api, concert: EventView) -> None:
    post(concert, "First.")
    post(concert, "Second.")
    response = api.get(ANNOUNCEMENTS)
    assert texts(response) == [(2, "Second."), (1, "First.")]
    document = response.json()
    assert (document["latest"], document["has_older"], document["next_poll"]) == (2, False, 5_000)
    assert set(document["announcements"][0]) == {"announcement_id", "version", "text", "posted_at", "changed_at"}
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["Cache-Control"] == "public, max-age=3"
    assert "Cookie" not in response.headers.get("Vary", "")
    assert api.get(ANNOUNCEMENTS, token="anything").status_code == 200


def test_since_returns_only_new_corrected_and_retracted_announcements(api: Api, concert: EventView) -> None:
    for text in ("First.", "Second.", "Third."):
        post(concert, text)
    latest = api.get(ANNOUNCEMENTS).json()["latest"]
    assert texts(api.get(f"{ANNOUNCEMENTS}?since={latest}")) == []
    service.correct(concert.id, 1, "First, corrected.", author="ann")
    service.retract(concert.id, 2, author="ann")
    response = api.get(f"{ANNOUNCEMENTS}?since={latest}")
    assert texts(response) == [(2, None), (1, "First, corrected.")]
    assert all(one["changed_at"] for one in response.json()["announcements"])
    assert response.json()["latest"] == 5
    assert texts(api.get(f"{ANNOUNCEMENTS}?since=4")) == [(2, None)]
    assert texts(api.get(f"{ANNOUNCEMENTS}?since=999999999")) == []
    assert texts(api.get(ANNOUNCEMENTS)) == [(3, "Third."), (1, "First, corrected.")]


def test_an_unchanged_response_is_304(api: Api, concert: EventView) -> None:
    post(concert, "First.")
    first = api.get(f"{ANNOUNCEMENTS}?since=1")
    unchanged = api.get(f"{ANNOUNCEMENTS}?since=1", if_none_match=first.headers["ETag"])
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert unchanged.headers["ETag"] == first.headers["ETag"]
    assert unchanged.headers["Cache-Control"] == first.headers["Cache-Control"]
    post(concert, "Second.")
    changed = api.get(f"{ANNOUNCEMENTS}?since=1", if_none_match=first.headers["ETag"])
    assert texts(changed) == [(2, "Second.")]


@pytest.mark.parametrize("query", ["", "?since=0", "?since=1", "?since=7"])
def test_the_view_and_the_fast_path_return_the_same_bytes(concert: EventView, query: str) -> None:
    post(concert, "Doors open at seven. ⏰ <b>")
    post(concert, "The bar is open.")
    view, fast = Api().get(f"{ANNOUNCEMENTS}{query}"), Api(through_fast_path=True).get(f"{ANNOUNCEMENTS}{query}")
    assert view.content == fast.content
    for name in ("ETag", "Cache-Control", "Content-Type"):
        assert view.headers[name] == fast.headers[name]


@pytest.mark.parametrize(
    "since", ["", "x", "-1", "1.5", "1e3", "%D9%A1", "%00", "+1", "null", "9999999999", "1" * 5_000]
)
def test_an_invalid_number_is_refused_and_the_error_names_its_field(api: Api, concert: EventView, since: str) -> None:
    assert list(assert_problem(api.get(f"{ANNOUNCEMENTS}?since={since}"), 422, "invalid")["errors"]) == ["since"]
    assert list(assert_problem(api.get(f"{HISTORY}?before={since}"), 422, "invalid")["errors"]) == ["before"]


def test_an_unknown_event_is_not_found(api: Api, db: None) -> None:
    assert_problem(api.get("/events/nowhere/announcements"), 404, "not-found")
    assert_problem(api.get("/events/nowhere/announcements?since=x"), 404, "not-found")
    assert_problem(api.get("/events/nowhere/announcements/history"), 404, "not-found")


def test_an_event_without_announcements_has_an_empty_list(api: Api, concert: EventView) -> None:
    response = api.get(f"{ANNOUNCEMENTS}?since=0").json()
    assert response == {"announcements": [], "latest": 0, "has_older": False, "next_poll": 5_000}
    assert api.get(HISTORY).json() == {"announcements": [], "next_before": None}


def test_the_api_of_announcements_is_read_only(api: Api, concert: EventView) -> None:
    assert_problem(api.post(ANNOUNCEMENTS, {"text": "Hello."}), 405, "method-not-allowed")


def test_without_redis_the_view_and_the_fast_path_read_postgresql(
    api: Api, concert: EventView, own_redis: OwnRedis
) -> None:
    own_redis.kill()
    post(concert, "While it is away.")
    assert texts(api.get(ANNOUNCEMENTS)) == [(1, "While it is away.")]


def test_has_older_is_true_if_only_the_history_has_all_announcements(api: Api, concert: EventView) -> None:
    for number in range(1, 34):
        service.post(concert.id, f"Number {number}.", author=f"author {number}")
    feed = api.get(ANNOUNCEMENTS)
    assert [number for number, _ in texts(feed)] == list(range(33, 3, -1))
    assert feed.json()["has_older"]
    assert api.get(f"{ANNOUNCEMENTS}?since=2").json()["has_older"]
    assert not api.get(f"{ANNOUNCEMENTS}?since=4").json()["has_older"]
    page = api.get(HISTORY)
    assert (len(texts(page)), page.json()["next_before"]) == (33, None)
    assert [number for number, _ in texts(api.get(f"{HISTORY}?before=3"))] == [2, 1]
    assert archive.PAGE_SIZE == 50
    assert redis_cache.read(concert.id) is not None
