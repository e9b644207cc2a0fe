"""Processes of `web` that are replaced or killed under many listeners: each of them ends with what the ledger says, and
is counted. The listeners are the simulated crowd's."""

import asyncio
import os
import random
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from apps.events import facade as events
from apps.reservations import facade as reservations
from tests.processes.live.conftest import Relays, serving
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.web_processes import WAIT_SECONDS_MAX, Web, wait_until
from ticketing.simulator.api import Api, open_session
from ticketing.simulator.queue_rules import ObservedQueue
from ticketing.simulator.stats import Figures
from ticketing.simulator.stream_listeners import StreamListeners
from ticketing.simulator.streams import open_streams
from ticketing.simulator.visitors import VisitorContext

pytestmark = pytest.mark.django_db(transaction=True)

LISTENERS = int(os.environ.get("LIVE_TEST_LISTENERS") or 200)
"""2,000 as well, where a machine has nothing else to do."""
PLACES = 10_000


class Crowd:
    """Who listens, on a loop of its own in a thread of its own."""

    def __init__(self, house: Web, event: events.EventView) -> None:
        self._house, self._event = house, event
        self.figures = Figures()
        self.ears: StreamListeners | None = None
        self._begun = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._listen()))

    def begin(self) -> None:
        self._thread.start()
        assert self._begun.wait(WAIT_SECONDS_MAX)

    def end(self) -> None:
        """Everybody has heard the house's last word, or it is known who has not."""
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(WAIT_SECONDS_MAX)
        assert not self._thread.is_alive()

    async def _listen(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        base, slug = f"http://127.0.0.1:{self._house.port}", self._event.slug
        async with open_session(4, anywhere=False) as session:
            door = VisitorContext(
                slug, Api(base, session, self.figures), self.figures, ObservedQueue(self.figures.breaches)
            )
            opens = open_streams(base, slug, anywhere=False)
            ears = self.ears = StreamListeners(door, random.Random(1), LISTENERS, "sse", opens)
            ears.begin(1.0)
            self._begun.set()
            try:
                await self._ending.wait()
                await ears.settle(asyncio.Event())
            finally:
                await ears.close()


@contextmanager
def listening(house: Web, event: events.EventView) -> Iterator[StreamListeners]:
    crowd = Crowd(house, event)
    crowd.begin()
    assert crowd.ears is not None
    try:
        yield crowd.ears
    finally:
        crowd.end()
    assert not crowd.figures.breaches.counts, crowd.figures.breaches


def until_all_hear(ears: StreamListeners, event: events.EventView) -> None:
    """What the ledger says, counted there and then."""
    floor = next(section.id for section in events.list_sections(event.id) if section.slug == "floor")
    free = (("floor", reservations.availability(event.id)[floor].available),)
    wait_until(lambda: all(ear.is_open and ear.counts == free for ear in ears._all), f"everybody hears {free}")


@pytest.mark.parametrize("way", ["replaced", "killed"])
def test_whoever_listens_to_a_process_that_ends_hears_the_truth_from_the_next(
    way: str, transactional_db: None, relays: Relays
) -> None:
    relays.start()
    event = make_event(f"event-{uuid.uuid4().hex[:12]}", rows=0, general_admission=PLACES)
    with serving(RATE_LIMITS_EXEMPT="127.0.0.0/8") as house, listening(house, event) as ears:
        hold(event, ga_section="floor", ga_quantity=4)
        until_all_hear(ears, event)
        before = house.serving()
        if way == "replaced":
            house.replace_workers()
        else:
            for pid in before:
                psutil.Process(pid).kill()
        hold(event, ga_section="floor", ga_quantity=4)
        wait_until(lambda: ears.results.came_back == LISTENERS, "everybody comes back")
        hold(event, ga_section="floor", ga_quantity=4)
        until_all_hear(ears, event)
        assert not house.serving() & before
    heard = ears.results
    assert (heard.sent_away, heard.broke) == ((LISTENERS, 0) if way == "replaced" else (0, LISTENERS))
    assert (heard.opened, heard.wrong) == (2 * LISTENERS, 0)
    assert_audit_clean()
