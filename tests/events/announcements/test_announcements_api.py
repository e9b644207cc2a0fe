"""What the organizer says, as strangers read it, through both doors."""

from typing import Any

import pytest

from apps.events.announcements import archive, redis_cache, service
from apps.events.facade import EventView
from tests.support.api_client import Api, assert_problem
from tests.support.own_redis import OwnRedis

ANNOUNCEMENTS = "/events/concert/announcements"
HISTORY = f"{ANNOUNCEMENTS}/history"


def say(event: EventView, text: str) -> None:
    service.post(event.id, text, who="ann")


def texts(answer: Any) -> list[tuple[int, str | None]]:
    assert answer.status_code == 200, answer.content
    return [(one["announcement_id"], one["text"]) for one in answer.json()["announcements"]]


def test_anybody_reads_what_stands_newest_first(api: Api, concert: EventView) -> None:
    say(concert, "First.")
    say(concert, "Second.")
    answer = api.get(ANNOUNCEMENTS)
    assert texts(answer) == [(2, "Second."), (1, "First.")]
    document = answer.json()
    assert (document["latest"], document["has_older"], document["next_poll"]) == (2, False, 5_000)
    assert set(document["announcements"][0]) == {"announcement_id", "version", "text", "posted_at", "changed_at"}
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Cache-Control"] == "public, max-age=3"
    assert "Cookie" not in answer.headers.get("Vary", "")
    assert api.get(ANNOUNCEMENTS, token="anything").status_code == 200


def test_since_tells_only_what_was_said_changed_or_taken_back(api: Api, concert: EventView) -> None:
    for text in ("First.", "Second.", "Third."):
        say(concert, text)
    latest = api.get(ANNOUNCEMENTS).json()["latest"]
    assert texts(api.get(f"{ANNOUNCEMENTS}?since={latest}")) == []
    service.correct(concert.id, 1, "First, corrected.", who="ann")
    service.retract(concert.id, 2, who="ann")
    answer = api.get(f"{ANNOUNCEMENTS}?since={latest}")
    assert texts(answer) == [(2, None), (1, "First, corrected.")]
    assert all(one["changed_at"] for one in answer.json()["announcements"])
    assert answer.json()["latest"] == 5
    assert texts(api.get(f"{ANNOUNCEMENTS}?since=4")) == [(2, None)]
    assert texts(api.get(f"{ANNOUNCEMENTS}?since=999999999")) == []
    assert texts(api.get(ANNOUNCEMENTS)) == [(3, "Third."), (1, "First, corrected.")]


def test_who_has_the_answer_is_told_so(api: Api, concert: EventView) -> None:
    say(concert, "First.")
    first = api.get(f"{ANNOUNCEMENTS}?since=1")
    unchanged = api.get(f"{ANNOUNCEMENTS}?since=1", if_none_match=first.headers["ETag"])
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert unchanged.headers["ETag"] == first.headers["ETag"]
    assert unchanged.headers["Cache-Control"] == first.headers["Cache-Control"]
    say(concert, "Second.")
    changed = api.get(f"{ANNOUNCEMENTS}?since=1", if_none_match=first.headers["ETag"])
    assert texts(changed) == [(2, "Second.")]


@pytest.mark.parametrize("query", ["", "?since=0", "?since=1", "?since=7", "?since="])
def test_both_doors_say_the_same_bytes(concert: EventView, query: str) -> None:
    say(concert, "Doors open at seven. ⏰ <b>")
    say(concert, "The bar is open.")
    site, lane = Api().get(f"{ANNOUNCEMENTS}{query}"), Api(by_lane=True).get(f"{ANNOUNCEMENTS}{query}")
    assert site.content == lane.content
    for name in ("ETag", "Cache-Control", "Content-Type"):
        assert site.headers[name] == lane.headers[name]


@pytest.mark.parametrize("since", ["x", "-1", "1.5", "1e3", "%D9%A1", "%00", "+1", "null", "9999999999", "1" * 5_000])
def test_a_number_that_is_none_of_ours_is_named(api: Api, concert: EventView, since: str) -> None:
    assert list(assert_problem(api.get(f"{ANNOUNCEMENTS}?since={since}"), 422, "invalid")["errors"]) == ["since"]
    assert list(assert_problem(api.get(f"{HISTORY}?before={since}"), 422, "invalid")["errors"]) == ["before"]


def test_an_event_that_nobody_knows_is_not_found(api: Api, db: None) -> None:
    assert_problem(api.get("/events/nowhere/announcements"), 404, "not-found")
    assert_problem(api.get("/events/nowhere/announcements?since=x"), 404, "not-found")
    assert_problem(api.get("/events/nowhere/announcements/history"), 404, "not-found")


def test_nothing_said_is_an_answer_too(api: Api, concert: EventView) -> None:
    answer = api.get(f"{ANNOUNCEMENTS}?since=0").json()
    assert answer == {"announcements": [], "latest": 0, "has_older": False, "next_poll": 5_000}
    assert api.get(HISTORY).json() == {"announcements": [], "next_before": None}


def test_announcements_are_only_read_here(api: Api, concert: EventView) -> None:
    assert_problem(api.post(ANNOUNCEMENTS, {"text": "Hello."}), 405, "method-not-allowed")


def test_without_redis_postgresql_answers_through_both_doors(api: Api, concert: EventView, own_redis: OwnRedis) -> None:
    own_redis.kill()
    say(concert, "While it is away.")
    assert texts(api.get(ANNOUNCEMENTS)) == [(1, "While it is away.")]


def test_who_was_away_for_more_than_is_at_hand_is_told_that_there_are_older_ones(api: Api, concert: EventView) -> None:
    for number in range(1, 34):
        service.post(concert.id, f"Number {number}.", who=f"author {number}")
    every = api.get(ANNOUNCEMENTS)
    assert [number for number, _ in texts(every)] == list(range(33, 3, -1))
    assert every.json()["has_older"]
    assert api.get(f"{ANNOUNCEMENTS}?since=2").json()["has_older"]
    assert not api.get(f"{ANNOUNCEMENTS}?since=4").json()["has_older"]
    page = api.get(HISTORY)
    assert (len(texts(page)), page.json()["next_before"]) == (33, None)
    assert [number for number, _ in texts(api.get(f"{HISTORY}?before=3"))] == [2, 1]
    assert archive.PAGE_SIZE == 50
    assert redis_cache.read(concert.id) is not None
