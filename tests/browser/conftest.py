"""Fixtures for browser tests of live pages: a `web` process in front of the test's site, and a relay."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from tests.support.databases import database_url
from tests.support.web_processes import WAIT_SECONDS_MAX, Web, web


@pytest.fixture(scope="module")
def web_process(django_db_setup: None, live_server: Any, django_db_blocker: Any) -> Iterator[Web]:
    """One web process for all tests of a module."""
    with django_db_blocker.unblock():
        url = database_url()
    with web(live_server.thread.port, DATABASE_URL=url, DATABASE_DIRECT_URL=url) as served:
        yield served


@pytest.fixture
def full_site(web_process: Web, live_site: str, settings: Any) -> Iterator[str]:
    """The URL of the site with live updates, while a relay publishes the counts."""
    from apps.reservations.counts import relay

    stopping = threading.Event()

    def run() -> None:
        try:
            relay.loop(stopping)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    settings.SITE_URL = f"http://127.0.0.1:{web_process.port}"
    yield settings.SITE_URL
    stopping.set()
    thread.join(WAIT_SECONDS_MAX)
    assert not thread.is_alive()
