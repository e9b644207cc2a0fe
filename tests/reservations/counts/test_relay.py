"""The relay: one recounted frame per event on sale, in PostgreSQL and in Redis, with or without Redis."""

import json
import logging
import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.db import OperationalError
from django.test import Client
from redis import Redis

from apps.events import facade as events
from apps.kernel import clock, redis
from apps.reservations import facade as reservations
from apps.reservations.counts import relay
from apps.reservations.inventory import availability
from apps.reservations.models import AvailabilityFrame
from tests.support.factories import close_sales, hold, make_event

pytestmark = pytest.mark.django_db(transaction=True)
KEPT_SECONDS = 60.0


@pytest.fixture(autouse=True)
def _long_lived_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep frames in Redis long enough for a slow machine to read them."""
    monkeypatch.setattr(relay, "FRESH_SECONDS_MIN", KEPT_SECONDS)
    monkeypatch.setattr(relay, "FRESH_SECONDS_MAX", KEPT_SECONDS)


def counts(frame: str) -> dict[str, int]:
    return {section["section_id"]: section["available_seats"] for section in json.loads(frame)["sections"]}


def test_a_frame_shows_the_current_free_tickets_of_every_section() -> None:
    event = make_event(general_admission=20)
    first = relay.Relay()
    assert first.run_once() == 1
    assert counts(AvailabilityFrame.objects.get().frame) == {"hall": 50, "floor": 20}
    view = hold(event, seats=["hall-A-1", "hall-A-2"], ga_section="floor", ga_quantity=3)
    first.run_once()
    assert counts(AvailabilityFrame.objects.get().frame) == {"hall": 48, "floor": 17}
    reservations.release(view.id, who="test")
    first.run_once()
    frame = AvailabilityFrame.objects.get()
    assert counts(frame.frame) == {"hall": 50, "floor": 20}
    assert json.loads(frame.frame)["timestamp"].endswith("Z")


def test_frames_of_one_relay_are_numbered_upward_and_another_relay_has_another_epoch() -> None:
    event = make_event(general_admission=20)
    first, second = relay.Relay(), relay.Relay()
    ids = []
    for one in (first, first, second):
        one.run_once()
        hold(event, ga_section="floor", ga_quantity=1)
        frame = AvailabilityFrame.objects.get()
        ids.append((frame.epoch, frame.sequence))
    assert ids[0][0] == ids[1][0] != ids[2][0]
    assert ids[0][1] < ids[1][1]


def test_an_unchanged_frame_is_written_again_only_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    make_event()
    moment = [1_000.0]
    monkeypatch.setattr(relay, "time", SimpleNamespace(monotonic=lambda: moment[0]))
    one = relay.Relay()
    one.run_once()
    before = AvailabilityFrame.objects.get()
    assert one.run_once() == 1
    assert AvailabilityFrame.objects.get().published_at == before.published_at
    moment[0] += relay.REWRITE_SECONDS
    one.run_once()
    after = AvailabilityFrame.objects.get()
    assert after.published_at > before.published_at
    assert after.sequence > before.sequence


def test_a_flushed_redis_has_every_frame_again_with_the_next_window(redis_client: Redis) -> None:
    event = make_event()
    one = relay.Relay()
    one.run_once()
    key = f"frame:{{{event.id}}}"
    before = redis_client.hgetall(key)
    redis_client.flushall()
    one.run_once()
    assert redis_client.hgetall(key) == before
    assert 0 < redis_client.ttl(key) <= KEPT_SECONDS


def test_a_window_takes_the_same_queries_for_any_number_of_events(django_assert_max_num_queries: Any) -> None:
    one = relay.Relay()
    make_event("first")
    one.run_once()
    with django_assert_max_num_queries(5):
        one.run_once()
    for number in range(3):
        make_event(f"another-{number}", venue=f"B{number}")
    one.run_once()
    with django_assert_max_num_queries(5):
        assert one.run_once() == 4


def test_redis_has_the_same_frame_under_the_events_key_for_a_limited_time(redis_client: Redis) -> None:
    event = make_event()
    relay.Relay().run_once()
    frame = AvailabilityFrame.objects.get()
    key = f"frame:{{{event.id}}}"
    assert redis_client.hgetall(key) == {"id": f"{frame.epoch}-{frame.sequence}", "frame": frame.frame}
    assert 0 < redis_client.ttl(key) <= KEPT_SECONDS


def test_without_redis_the_frame_is_still_in_postgresql(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_event()

    def unavailable() -> None:
        raise redis.RedisUnavailable("connection refused")

    monkeypatch.setattr(redis, "client", unavailable)
    with caplog.at_level(logging.WARNING):
        assert relay.Relay().run_once() == 1
    assert counts(AvailabilityFrame.objects.get().frame) == {"hall": 50}
    assert "Redis is unavailable" in caplog.text


def test_an_outage_of_redis_and_its_end_are_logged_once_each_for_any_number_of_events_and_windows(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_event("first")
    make_event("second", venue="B")

    def unavailable() -> None:
        raise redis.RedisUnavailable("connection refused")

    one = relay.Relay()
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        with monkeypatch.context() as without_redis:
            without_redis.setattr(redis, "client", unavailable)
            for _ in range(3):
                one.run_once()
        assert [record.message.split(" (")[0] for record in caplog.records] == ["relay: Redis is unavailable"]
        caplog.clear()
        for _ in range(3):
            one.run_once()
        assert [record.message for record in caplog.records] == ["relay: Redis answers again; frames are written to it"]


def test_an_outage_of_the_database_and_its_end_are_logged_once_each(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stopping, windows = threading.Event(), []

    def fail_twice(self: relay.Relay) -> int:
        windows.append(1)
        if len(windows) <= 2:
            raise OperationalError("connection refused\nis it running?") from psycopg.OperationalError("refused")
        stopping.set()
        return 0

    monkeypatch.setattr(relay.Relay, "run_once", fail_twice)
    monkeypatch.setattr(relay, "WINDOW_SECONDS", 0.01)
    with caplog.at_level(logging.WARNING):
        relay.loop(stopping)
    assert [record.message.split(" (")[0] for record in caplog.records] == [
        "relay: the database is unavailable",
        "relay: the database answers again",
    ]
    assert "Traceback" not in caplog.text


def test_between_two_windows_changes_go_to_redis_and_not_to_postgresql(redis_client: Redis) -> None:
    event = make_event(general_admission=20)
    key = f"frame:{{{event.id}}}"
    one = relay.Relay()
    one.run_once()
    stored = AvailabilityFrame.objects.get().frame
    hold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=3)
    one.update_redis()
    assert counts(redis_client.hget(key, "frame")) == {"hall": 49, "floor": 17}
    assert AvailabilityFrame.objects.get().frame == stored
    one.run_once()
    assert counts(AvailabilityFrame.objects.get().frame) == {"hall": 49, "floor": 17}


def test_of_two_relays_each_replaces_the_others_frame(redis_client: Redis) -> None:
    """Otherwise the frame of a relay that was delayed and wrote late would be used for as long as nothing changes."""
    event = make_event()
    key = f"frame:{{{event.id}}}"
    quick, late = relay.Relay(), relay.Relay()
    late.run_once()
    hold(event, seats=["hall-A-1"])
    quick.run_once()
    redis_client.hset(key, mapping={"id": f"{late.epoch}-1", "frame": late._last[event.id].text})
    quick.update_redis()
    assert counts(redis_client.hget(key, "frame")) == {"hall": 49}


def test_sections_come_from_the_relays_frame_and_are_counted_without_one(client: Client, redis_client: Redis) -> None:
    event = make_event(general_admission=20)
    address = f"/api/events/{event.slug}/sections"

    def counts_shown() -> list[int]:
        return [section["available_seats"] for section in client.get(address).json()["sections"]]

    one = relay.Relay()
    one.run_once()
    hold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=3)
    assert counts_shown() == [50, 20]
    etag = client.get(address)["ETag"]
    assert client.get(address, headers={"If-None-Match": etag}).status_code == 304
    one.update_redis()
    assert counts_shown() == [49, 17]
    assert client.get(address, headers={"If-None-Match": etag}).status_code == 200
    hold(event, seats=["hall-A-2"])
    redis_client.flushall()  # As after the relay died and its last frame expired.
    assert counts_shown() == [48, 17]
    one.update_redis()
    frame = redis_client.hget(f"frame:{{{event.id}}}", "frame")
    assert frame is not None
    redis_client.hset(f"frame:{{{event.id}}}", "frame", frame.replace('"hall"', '"balcony"'))
    hold(event, seats=["hall-A-3"])
    assert counts_shown() == [47, 17]  # A section that is not in the frame.
    redis_client.hset(f"frame:{{{event.id}}}", "frame", "no frame")
    assert counts_shown() == [47, 17]


def test_only_events_on_sale_have_frames() -> None:
    now = clock.now()
    make_event("on-sale")
    make_event("upcoming", venue="B", opens_at=now + timedelta(hours=1))
    make_event("closed", venue="C")
    close_sales("closed")
    assert relay.Relay().run_once() == 1
    assert AvailabilityFrame.objects.get().event.slug == "on-sale"


def test_pages_show_the_relays_recent_counts_and_recount_without_them() -> None:
    event, other = make_event(general_admission=20), make_event("other", venue="B")
    relay.Relay().run_once()
    hold(event, seats=["hall-A-1", "hall-A-2"], ga_section="floor", ga_quantity=3)
    AvailabilityFrame.objects.filter(event_id=other.id).delete()
    hold(other, seats=["hall-A-1"])

    def counts_shown() -> list[list[int]]:
        free = reservations.free_by_event(events.section_slugs([event.id, other.id]))
        return [list(free[one.id].values()) for one in (event, other)]

    assert counts_shown() == [[50, 20], [49]]
    long_ago = clock.now() - timedelta(seconds=availability.FRAME_SECONDS_MAX)
    AvailabilityFrame.objects.update(published_at=long_ago)
    assert counts_shown() == [[48, 17], [49]]


def test_sold_out_is_current_whatever_the_relay_has_counted() -> None:
    """A cache that is notified of the change fetches the page at once, and keeps what it gets."""
    event = make_event(rows=1, seats_per_row=2)
    one = relay.Relay()
    one.run_once()
    view = hold(event, seats=["hall-A-1", "hall-A-2"])
    assert list(reservations.free_by_event(events.section_slugs([event.id]))[event.id].values()) == [0]
    one.run_once()
    reservations.release(view.id, who="test")
    assert list(reservations.free_by_event(events.section_slugs([event.id]))[event.id].values()) == [2]


def test_a_section_missing_in_the_relays_frame_has_its_event_counted() -> None:
    event = make_event(general_admission=20)
    relay.Relay().run_once()
    frame = AvailabilityFrame.objects.get()
    frame.frame = frame.frame.replace('"hall"', '"balcony"')
    frame.save()
    hold(event, ga_section="floor", ga_quantity=3)
    assert list(reservations.free_by_event(events.section_slugs([event.id]))[event.id].values()) == [50, 17]


def test_the_loop_survives_a_failed_window_and_stops_on_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_event()
    stopping, windows = threading.Event(), []
    run_once = relay.Relay.run_once

    def fail_first(self: relay.Relay) -> int:
        windows.append(1)
        if len(windows) == 1:
            raise OperationalError("the database is restarting")
        stopping.set()
        return run_once(self)

    monkeypatch.setattr(relay.Relay, "run_once", fail_first)
    monkeypatch.setattr(relay, "WINDOW_SECONDS", 0.01)
    relay.loop(stopping)
    assert len(windows) == 2
    assert AvailabilityFrame.objects.count() == 1
    assert "this window failed" in caplog.text
