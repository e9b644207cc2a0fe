"""Redis, relays and workers that end during a sale: every listener ends with current counts."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from apps.events import facade as events
from apps.orders.cancellation import event_cancellation
from apps.reservations.live.queries import read_counts
from tests.processes.live.clients import Events
from tests.processes.live.conftest import Relays, serving
from tests.support.factories import hold, make_event
from tests.support.own_redis import OwnRedis
from tests.support.web_processes import Web, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def alone(own_redis: OwnRedis, transactional_db: None) -> Iterator[Web]:
    """A worker with a Redis of its own."""
    with serving(REDIS_URL=own_redis.server.url) as served:
        yield served


def an_event(**spec: Any) -> events.EventView:
    return make_event(f"event-{uuid.uuid4().hex[:12]}", **spec)


def test_listeners_receive_counts_during_and_after_a_redis_outage(
    alone: Web, relays: Relays, own_redis: OwnRedis
) -> None:
    relays.start()
    event = an_event()
    with Events(alone.port, event.slug) as one:
        one.until_counts({"hall": 50})
        own_redis.kill()
        hold(event, seats=["hall-A-1"])
        one.until_counts({"hall": 49})
        with Events(alone.port, event.slug) as late:
            late.until_counts({"hall": 49})
            own_redis.return_empty()
            hold(event, seats=["hall-A-2"])
            one.until_counts({"hall": 48})
            late.until_counts({"hall": 48})
        one.until(lambda one: one.last("state") == {"live": True}, "it is live")


def test_without_a_relay_listeners_receive_counts_and_are_notified_that_they_are_slower(
    alone: Web, relays: Relays
) -> None:
    event = an_event()
    with Events(alone.port, event.slug) as one:
        one.until_counts({"hall": 50})
        one.until(lambda one: one.last("state") == {"live": False}, "no relay counts for all processes")
        hold(event, seats=["hall-A-1"])
        one.until_counts({"hall": 49})
        stop = relays.start()
        one.until(lambda one: one.last("state") == {"live": True}, "a relay counts")
        stop()
        one.until(lambda one: one.last("state") == {"live": False}, "the relay has stopped")
        hold(event, seats=["hall-A-2"])
        one.until_counts({"hall": 48})


def test_a_canceled_event_without_a_relay_is_not_reported_as_late(transactional_db: None) -> None:
    event = an_event()
    counts = read_counts([event.id])[event.id]
    assert (counts.is_own, counts.is_late) == (True, True)
    event_cancellation.begin(event.id, "The singer is ill.", "test")
    counts = read_counts([event.id])[event.id]
    assert (counts.is_own, counts.is_late) == (True, False)


def test_of_two_relays_one_publishes_and_the_other_takes_over_when_it_ends(alone: Web, relays: Relays) -> None:
    event = an_event()
    first = relays.start()
    with Events(alone.port, event.slug) as one:
        one.until(lambda one: one.last("state") == {"live": True}, "the first counts")
        relays.start()
        for seat in ("hall-A-1", "hall-A-2", "hall-A-3"):
            hold(event, seats=[seat])
            one.until(lambda one, left=50 - int(seat[-1]): one.counts() == {"hall": left}, "counts are published")
        epochs = [each.id.partition("-")[0] for each in one.received if each.kind == "sections"]
        assert len(set(epochs[1:])) == 1, "all of one relay's epoch, except the counts read before a relay ran"
        first()
        hold(event, seats=["hall-B-1"])
        one.until_counts({"hall": 46})
        one.until(lambda one: one.last("state") == {"live": True}, "the second counts")


def test_a_replaced_worker_disconnects_its_listeners_and_the_next_sends_current_counts(
    transactional_db: None, relays: Relays
) -> None:
    relays.start()
    event = an_event()
    with serving() as server:
        listeners = [Events(server.port, event.slug) for _ in range(20)]
        for each in listeners:
            each.until_counts({"hall": 50})
        before = server.serving()
        server.replace_workers()
        for each in listeners:
            each.until_ended()
        assert {each.received[-1].kind for each in listeners} == {"bye"}
        assert len({each.received[-1].data["retry_ms"] for each in listeners}) > 10, "their reconnections are spread"
        hold(event, seats=["hall-A-1"])
        wait_until(lambda: bool(server.serving()) and not server.serving() & before, "another worker serves")
        for each in listeners:
            each.close()
            with Events(server.port, event.slug) as again:
                again.until_counts({"hall": 49})


def test_a_client_that_stops_reading_delays_no_other_and_resumes_with_current_counts(
    transactional_db: None, relays: Relays
) -> None:
    relays.start()
    event = an_event(rows=1, general_admission=2_000)
    with (
        serving() as server,
        Events(server.port, event.slug, reads=False) as asleep,
        Events(server.port, event.slug) as awake,
    ):
        awake.until_counts({"hall": 10, "floor": 2_000})
        for number in range(1, 21):
            hold(event, ga_section="floor", ga_quantity=5)
            awake.until_counts({"hall": 10, "floor": 2_000 - 5 * number})
        asleep.read()
        asleep.until_counts({"hall": 10, "floor": 1_900})
        assert server.healthy()
