"""`web` processes that are replaced or killed while many clients listen: each client ends with the counts in the
database, and the disconnections are counted. The clients are those of the simulator."""

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
"""Also run with 2,000, on a machine without other load."""
TICKETS = 10_000


class ListeningClients:
    """The listening clients, on an event loop in a thread of their own."""

    def __init__(self, server: Web, event: events.EventView) -> None:
        self._server, self._event = server, event
        self.figures = Figures()
        self.listeners: StreamListeners | None = None
        self._begun = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._listen()))

    def begin(self) -> None:
        self._thread.start()
        assert self._begun.wait(WAIT_SECONDS_MAX)

    def end(self) -> None:
        """Wait until every client has the server's last state, or is known not to have it."""
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(WAIT_SECONDS_MAX)
        assert not self._thread.is_alive()

    async def _listen(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        base, slug = f"http://127.0.0.1:{self._server.port}", self._event.slug
        async with open_session(4, anywhere=False) as session:
            context = VisitorContext(
                slug, Api(base, session, self.figures), self.figures, ObservedQueue(self.figures.breaches)
            )
            opens = open_streams(base, slug, anywhere=False)
            listeners = self.listeners = StreamListeners(context, random.Random(1), LISTENERS, "sse", opens)
            listeners.begin(1.0)
            self._begun.set()
            try:
                await self._ending.wait()
                await listeners.settle(asyncio.Event())
            finally:
                await listeners.close()


@contextmanager
def listening(server: Web, event: events.EventView) -> Iterator[StreamListeners]:
    clients = ListeningClients(server, event)
    clients.begin()
    assert clients.listeners is not None
    try:
        yield clients.listeners
    finally:
        clients.end()
    assert not clients.figures.breaches.counts, clients.figures.breaches


def until_all_receive(listeners: StreamListeners, event: events.EventView) -> None:
    """Wait until all clients have the count that the database has now."""
    floor = next(section.id for section in events.list_sections(event.id) if section.slug == "floor")
    free = (("floor", reservations.free_counts([floor])[floor]),)
    wait_until(
        lambda: all(listener.is_open and listener.counts == free for listener in listeners._all),
        f"all listeners receive {free}",
    )


@pytest.mark.parametrize("way", ["replaced", "killed"])
def test_listeners_of_a_process_that_ends_receive_current_counts_from_the_next(
    way: str, transactional_db: None, relays: Relays
) -> None:
    relays.start()
    event = make_event(f"event-{uuid.uuid4().hex[:12]}", rows=0, general_admission=TICKETS)
    with serving(RATE_LIMITS_EXEMPT="127.0.0.0/8") as server, listening(server, event) as listeners:
        hold(event, ga_section="floor", ga_quantity=4)
        until_all_receive(listeners, event)
        before = server.serving()
        if way == "replaced":
            server.replace_workers()
        else:
            for pid in before:
                psutil.Process(pid).kill()
        hold(event, ga_section="floor", ga_quantity=4)
        wait_until(lambda: listeners.results.came_back == LISTENERS, "all listeners reconnect")
        hold(event, ga_section="floor", ga_quantity=4)
        until_all_receive(listeners, event)
        assert not server.serving() & before
    results = listeners.results
    assert (results.sent_away, results.broke) == ((LISTENERS, 0) if way == "replaced" else (0, LISTENERS))
    assert (results.opened, results.wrong) == (2 * LISTENERS, 0)
    assert_audit_clean()
