"""The whole house in front of a browser: a process of `web`, behind it the test's own site, beside it a relay."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from tests.support.databases import database_url
from tests.support.web_processes import WAIT_SECONDS_MAX, Web, web


@pytest.fixture(scope="module")
def lane(django_db_setup: None, live_server: Any, django_db_blocker: Any) -> Iterator[Web]:
    """One worker for all tests of a module."""
    with django_db_blocker.unblock():
        url = database_url()
    with web(live_server.thread.port, DATABASE_URL=url, DATABASE_DIRECT_URL=url) as served:
        yield served


@pytest.fixture
def house(lane: Web, live_site: str, settings: Any) -> Iterator[str]:
    """The address of the site with everything that changes by itself; a relay counts meanwhile."""
    from apps.reservations.counts import relay

    stopping = threading.Event()

    def run() -> None:
        try:
            relay.loop(stopping)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    settings.SITE_URL = f"http://127.0.0.1:{lane.port}"
    yield settings.SITE_URL
    stopping.set()
    thread.join(WAIT_SECONDS_MAX)
    assert not thread.is_alive()
