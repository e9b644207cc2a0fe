"""What the organizer says comes over the stream, whatever is away, and whoever comes is told what was said last."""

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
    """A worker with a Redis that nobody else has."""
    with serving(REDIS_URL=own_redis.server.url) as served:
        yield served


def an_event() -> events.EventView:
    return make_event(f"event-{uuid.uuid4().hex[:12]}", rows=1, seats_per_row=2)


def say(event: events.EventView, text: str) -> int:
    return service.post(event.id, text, who="ann").announcement.announcement_id


def read_on(one: Events) -> dict[int, str]:
    """What a page shows that has taken in all that was heard."""
    shown: dict[int, tuple[int, str | None]] = {}
    for _, _, said in (each for each in one.heard if each.kind == "announcement"):
        if said["version"] > shown.get(said["announcement_id"], (0, None))[0]:
            shown[said["announcement_id"]] = (said["version"], said["text"])
    return {number: text for number, (_, text) in shown.items() if text is not None}


def until_read(one: Events, wanted: dict[int, str]) -> None:
    one.until(lambda one: read_on(one) == wanted, f"announcements {wanted}")


def test_everybody_hears_what_is_said_corrected_and_taken_back(house: Web, relays: Relays) -> None:
    relays.start()
    event = an_event()
    with Events(house.port, event.slug) as one, Events(house.port, event.slug) as other:
        for listener in (one, other):
            listener.until(lambda one: one.last("state"), "it listens")
        say(event, "Doors open at sven.")
        say(event, "The bar is open.")
        until_read(one, {1: "Doors open at sven.", 2: "The bar is open."})
        service.correct(event.id, 1, "Doors open at seven.", who="bob")
        service.retract(event.id, 2, who="bob")
        until_read(one, {1: "Doors open at seven."})
        until_read(other, {1: "Doors open at seven."})


def test_who_comes_is_told_the_newest_few_at_once(house: Web) -> None:
    event = an_event()
    for number in range(1, 6):
        say(event, f"Number {number}.")
    service.retract(event.id, 4, who="ann")
    with Events(house.port, event.slug) as one:
        until_read(one, {3: "Number 3.", 5: "Number 5."})
        assert [each.data["version"] for each in one.heard if each.kind == "announcement"] == [3, 5, 6]


def test_what_was_lost_on_the_way_is_heard_all_the_same(
    house: Web, relays: Relays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is told to nobody, the second is heard: what is read next has to bring the first."""
    relays.start()
    event = an_event()
    with Events(house.port, event.slug) as one:
        one.until(lambda one: one.last("state"), "it listens")
        with monkeypatch.context() as patched:
            patched.setattr(channel_layer, "send_to_group", lambda *_: False)
            say(event, "Lost.")
        say(event, "Heard.")
        until_read(one, {1: "Lost.", 2: "Heard."})


def test_while_redis_is_away_listeners_hear_what_is_said(alone: Web, own_redis: OwnRedis) -> None:
    event = an_event()
    with Events(alone.port, event.slug) as one:
        one.until(lambda one: one.last("state"), "it listens")
        own_redis.kill()
        say(event, "Without Redis.")
        until_read(one, {1: "Without Redis."})
        own_redis.return_empty()
        say(event, "With it.")
        until_read(one, {1: "Without Redis.", 2: "With it."})


def frame(version: int, announcement: int) -> Frame:
    said = b'{"announcement_id":%d,"version":%d,"text":"x"}' % (announcement, version)
    return Frame(Key("announcement", str(announcement)), said)


def test_what_comes_late_or_again_is_told_to_nobody() -> None:
    announced = AnnouncementLog()
    assert [announced.record_if_new(frame(*one)) for one in ((2, 2), (1, 1), (4, 2), (3, 2), (4, 2))] == [
        True, True, True, False, False
    ]  # fmt: skip
    assert [one.data for one in announced.latest_frames()] == [frame(1, 1).data, frame(4, 2).data]


def test_however_much_is_said_a_process_keeps_only_the_newest() -> None:
    announced = AnnouncementLog()
    for version in range(1, 500):
        assert announced.record_if_new(frame(version, version))
    assert len(announced._sent) == 60
    assert [one.key.about for one in announced.latest_frames()] == ["497", "498", "499"]


def test_from_a_database_that_has_gone_back_all_is_told_anew() -> None:
    announced = AnnouncementLog()
    announced.read_to = 9
    announced.record_if_new(frame(9, 9))
    said = events.Announcement(1, 1, "Again.", "2026-01-01T00:00:00.000Z", None)
    told: Any = announced.read(events.AnnouncementFeed(events.CurrentAnnouncements(1, (said,), has_older=False)))
    assert [one.key.about for one in told] == ["1"]
    assert announced.read_to == 1
