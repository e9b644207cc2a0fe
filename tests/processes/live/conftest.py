"""A `web` process whose relay runs in the process of the test."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections

from tests.support.databases import database_url
from tests.support.web_processes import WAIT_SECONDS_MAX, Web, web
from ticketing.devserver.ports import free_port


@contextlib.contextmanager
def serving(**more: str) -> Iterator[Web]:
    """Run one worker in front of a site that is not running."""
    url = database_url()
    with web(free_port(), DATABASE_URL=url, DATABASE_DIRECT_URL=url, **more) as served:
        yield served


@pytest.fixture(scope="module")
def server(django_db_setup: None, django_db_blocker: Any) -> Iterator[Web]:
    with django_db_blocker.unblock(), serving() as served:
        yield served


class Relays:
    """Relays that run in threads of the test process."""

    def __init__(self) -> None:
        self._running: list[tuple[threading.Event, threading.Thread]] = []

    def start(self) -> Callable[[], None]:
        """Start one more relay, and return a function that stops it."""
        stopping = threading.Event()
        thread = threading.Thread(target=self._run, args=(stopping,))
        thread.start()
        self._running.append((stopping, thread))

        def stop() -> None:
            stopping.set()
            thread.join(WAIT_SECONDS_MAX)
            assert not thread.is_alive()

        return stop

    def _run(self, stopping: threading.Event) -> None:
        from apps.reservations.counts import relay

        try:
            relay.loop(stopping)
        finally:
            connections.close_all()

    def end(self) -> None:
        for stopping, thread in self._running:
            stopping.set()
            thread.join(WAIT_SECONDS_MAX)


@pytest.fixture
def relays(transactional_db: None) -> Iterator[Relays]:
    running = Relays()
    yield running
    running.end()
