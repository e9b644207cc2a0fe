"""Announcements of the organizer reach every stream, even during outages, and a new listener receives the latest."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from apps.events import facade as events
from apps.events.announcements import service
from apps.kernel.push import channel_layer
from apps.kernel.push.frames import Frame, Key
from apps.reservations.live.announcement_log import AnnouncementLog
from tests.processes.live.clients import Events
from tests.processes.live.conftest import Relays, serving
from tests.support.factories import make_event
from tests.support.own_redis import OwnRedis
from tests.support.web_processes import Web

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def alone(own_redis: OwnRedis, transactional_db: None) -> Iterator[Web]:
    """A worker with a Redis of its own."""
    with serving(REDIS_URL=own_redis.server.url) as served:
        yield served


def an_event() -> events.EventView:
    return make_event(f"event-{uuid.uuid4().hex[:12]}", rows=1, seats_per_row=2)


def post(event: events.EventView, text: str) -> int:
    return service.post(event.id, text, author="ann").announcement.announcement_id


def read_on(one: Events) -> dict[int, str]:
    """Return the announcements that a page shows after all received messages."""
    shown: dict[int, tuple[int, str | None]] = {}
    for _, _, data in (each for each in one.received if each.kind == "announcement"):
        if data["version"] > shown.get(data["announcement_id"], (0, None))[0]:
            shown[data["announcement_id"]] = (data["version"], data["text"])
    return {number: text for number, (_, text) in shown.items() if text is not None}


def until_read(one: Events, wanted: dict[int, str]) -> None:
    one.until(lambda one: read_on(one) == wanted, f"announcements {wanted}")


def test_all_listeners_receive_posted_corrected_and_retracted_announcements(server: Web, relays: Relays) -> None:
    relays.start()
    event = an_event()
    with Events(server.port, event.slug) as one, Events(server.port, event.slug) as other:
        for listener in (one, other):
            listener.until(lambda one: one.last("state"), "it listens")
        post(event, "Doors open at sven.")
        post(event, "The bar is open.")
        until_read(one, {1: "Doors open at sven.", 2: "The bar is open."})
        service.correct(event.id, 1, "Doors open at seven.", author="bob")
        service.retract(event.id, 2, author="bob")
        until_read(one, {1: "Doors open at seven."})
        until_read(other, {1: "Doors open at seven."})


def test_a_new_listener_receives_the_latest_few_at_once(server: Web) -> None:
    event = an_event()
    for number in range(1, 6):
        post(event, f"Number {number}.")
    service.retract(event.id, 4, author="ann")
    with Events(server.port, event.slug) as one:
        until_read(one, {3: "Number 3.", 5: "Number 5."})
        assert [each.data["version"] for each in one.received if each.kind == "announcement"] == [3, 5, 6]


def test_an_announcement_lost_in_transit_is_delivered_with_the_next(
    server: Web, relays: Relays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is not published, the second is: the read that follows has to return the first too."""
    relays.start()
    event = an_event()
    with Events(server.port, event.slug) as one:
        one.until(lambda one: one.last("state"), "it listens")
        with monkeypatch.context() as patched:
            patched.setattr(channel_layer, "send_to_group", lambda *_: False)
            post(event, "Lost.")
        post(event, "Received.")
        until_read(one, {1: "Lost.", 2: "Received."})


def test_listeners_receive_announcements_during_a_redis_outage(alone: Web, own_redis: OwnRedis) -> None:
    event = an_event()
    with Events(alone.port, event.slug) as one:
        one.until(lambda one: one.last("state"), "it listens")
        own_redis.kill()
        post(event, "Without Redis.")
        until_read(one, {1: "Without Redis."})
        own_redis.return_empty()
        post(event, "With it.")
        until_read(one, {1: "Without Redis.", 2: "With it."})


def frame(version: int, announcement: int) -> Frame:
    data = b'{"announcement_id":%d,"version":%d,"text":"x"}' % (announcement, version)
    return Frame(Key("announcement", str(announcement)), data)


def test_a_late_or_repeated_announcement_is_not_sent() -> None:
    announced = AnnouncementLog()
    assert [announced.record_if_new(frame(*one)) for one in ((2, 2), (1, 1), (4, 2), (3, 2), (4, 2))] == [
        True, True, True, False, False
    ]  # fmt: skip
    assert [one.data for one in announced.latest_frames()] == [frame(1, 1).data, frame(4, 2).data]


def test_a_process_keeps_only_the_latest_of_many_announcements() -> None:
    announced = AnnouncementLog()
    for version in range(1, 500):
        assert announced.record_if_new(frame(version, version))
    assert len(announced._sent) == 60
    assert [one.key.about for one in announced.latest_frames()] == ["497", "498", "499"]


def test_after_the_database_is_restored_to_an_older_state_all_announcements_are_sent_again() -> None:
    announced = AnnouncementLog()
    announced.read_to = 9
    announced.record_if_new(frame(9, 9))
    announcement = events.Announcement(1, 1, "Again.", "2026-01-01T00:00:00.000Z", None)
    current = events.CurrentAnnouncements(1, (announcement,), has_older=False)
    frames: Any = announced.read(events.AnnouncementFeed(current))
    assert [one.key.about for one in frames] == ["1"]
    assert announced.read_to == 1
