"""The test harness: servers for each run, and the fixtures of all tests."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.databases import start_migrating
from tests.support.programs import CHROMIUM, absent, is_in_ci
from tests.support.servers import start_for_run
from tests.support.tiers import Tiers
from ticketing.devserver.data_folder import ServersFailed

if TYPE_CHECKING:
    from django.test import Client
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page
    from redis import Redis

    from apps.events.facade import EventView
    from tests.support.api_client import Api
    from tests.support.own_redis import OwnRedis

CHROMIUM_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
BROWSER_TIMEOUT_MS = 60_000
DATABASE_FIXTURES = {"db", "transactional_db", "live_server"}


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # Before Django's settings are first read, which pytest-django does at the end of this hook.
    if config.option.help or config.option.version:
        return
    if "ticketing.settings" in sys.modules:
        raise pytest.UsageError("the settings were read before the test servers started: unset DJANGO_SETTINGS_MODULE")
    config.pluginmanager.register(Tiers(workers=len(getattr(config.option, "tx", None) or ())))
    is_worker = hasattr(config, "workerinput")
    if not is_worker:
        if is_in_ci() and (programs := absent()):
            raise pytest.UsageError("; ".join(f"{each.tests}: {each.why_absent()}" for each in programs))
        # A terminated run ends in order; xdist's workers end when their channel closes.
        signal.signal(signal.SIGTERM, _interrupt)
    distributes = not is_worker and bool(getattr(config.option, "tx", None))
    try:
        config.add_cleanup(start_for_run(distributes=distributes))
    except ServersFailed as error:
        raise pytest.UsageError(f"the test servers did not start: {error}") from error
    if distributes:
        # Clean-ups run in reverse order: this one before that of the servers.
        config.add_cleanup(start_migrating().wait)
        return
    # Reading a setting imports the module; pytest-django notices that and sets up Django.
    from django.conf import settings

    # The real hasher takes about 0.2 s of processor time per account and log-in, by design.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    # Tests log staff in without a password, so they have never authenticated.
    settings.REAUTHENTICATION_SECONDS = 0
    # Otherwise WhiteNoise reads all static files for each test client.
    settings.WHITENOISE_AUTOREFRESH = True


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    markers = [program.marker for program in absent()]
    left_out = [item for item in items if any(map(item.get_closest_marker, markers))]
    if not left_out:
        return
    left = set(left_out)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left]


def pytest_collection() -> None:
    # Next to nothing is garbage while modules are imported and tests collected, but each collection looks at more of
    # them: it took a third of this time.
    gc.disable()


def pytest_collection_finish() -> None:
    # Tests and their imports live to the end: exclude them from garbage collection.
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 20)  # As in `web` (ticketing/asgi.py).


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Before a test that may not use the database, close the connections that the fast path's threads have kept: each
    of their calls looks whether they are still usable."""
    from apps.kernel.fastpath import thread_pool

    if _uses_database(item) and nextitem is not None and not _uses_database(nextitem):
        thread_pool.close()


def _uses_database(item: pytest.Item) -> bool:
    return item.get_closest_marker("django_db") is not None or not DATABASE_FIXTURES.isdisjoint(item.fixturenames)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for program in absent():
        terminalreporter.write_line(f"Left out: {program.tests}: {program.why_absent()}.")


@pytest.fixture(autouse=True)
def _empty_redis() -> None:
    """Empty Redis before every test, so that no data of an earlier one remains."""
    _redis_connection().flushall()


@cache
def _redis_connection() -> "Redis":
    from redis import Redis

    return Redis.from_url(os.environ["REDIS_URL"])


@pytest.fixture(autouse=True)
def _empty_sandbox() -> None:
    """Empty the sandbox's books before every test: they are in no database that is emptied or rolled back."""
    from tests.support.orders.sandbox_rows import empty_books

    empty_books()


@pytest.fixture(scope="session")
def django_db_setup(django_test_environment: None, django_db_blocker: Any) -> Iterator[None]:
    """A migrated database of this process. At the end, all threads' connections to it are closed."""
    from django.test import TransactionTestCase

    from tests.support.databases import close_database, create_database, empty_tables, renew_connection

    with django_db_blocker.unblock():
        create_database()
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(TransactionTestCase, "_fixture_teardown", lambda case: empty_tables())
        patches.setattr(TransactionTestCase, "_should_reload_connections", lambda case: renew_connection())
        yield
    _close_connections_of_threads()
    with django_db_blocker.unblock():
        close_database()


def _close_connections_of_threads() -> None:
    from apps.kernel.fastpath import thread_pool
    from apps.kernel.group_commit import batcher as group_commit
    from apps.kernel.outbox import delivery
    from apps.kernel.tokens import keys

    delivery.close(20)
    if (reader := keys._copy.reader) is not None:
        reader.join()
    thread_pool.close()
    for batcher in list(group_commit._batchers):
        batcher.close()


@pytest.fixture(autouse=True)
def _group_commit_sees_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Group commit and the fast path's threads have their own connections, which cannot see a transaction around a
    test. In such a test, all requests are decided in the test's own thread; in a transactional test, the real path is
    used."""
    from apps.kernel.db import transactions
    from apps.kernel.fastpath import thread_pool
    from apps.orders.checkout import checkout_lists
    from apps.orders.provider_sync import event_storage
    from apps.queue.entries import join
    from apps.reservations.holds import service
    from tests.support.event_loops import outside_event_loop

    def in_this_thread(batcher: Any, decide: Callable[[list[Any]], list[Any]]) -> None:
        submit_by_group_commit, submit_on_loop = batcher.submit_sync, batcher.submit

        def submit_sync(request: Any, timeout_ms: int) -> Any:
            if not transactions._inside_test_transaction():
                return submit_by_group_commit(request, timeout_ms)
            (outcome,) = decide([request])
            return outcome

        async def submit(request: Any) -> Any:
            with outside_event_loop():
                if transactions._inside_test_transaction():
                    (outcome,) = decide([request])
                    return outcome
            return await submit_on_loop(request)

        monkeypatch.setattr(batcher, "submit_sync", submit_sync)
        monkeypatch.setattr(batcher, "submit", submit)

    in_this_thread(join.joins, join.join_many)
    in_this_thread(service.holds, service.hold)
    in_this_thread(
        checkout_lists.checkouts, lambda requests: [settled[0] for settled in checkout_lists.decide(requests)]
    )
    in_this_thread(event_storage.webhooks, event_storage.receive_all)

    def run_here(name: str) -> None:
        run_in_thread = getattr(thread_pool, name)

        async def run_here_or_in_thread(act: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            with outside_event_loop():
                if transactions._inside_test_transaction():
                    return act(*args, **kwargs)
            return await run_in_thread(act, *args, **kwargs)

        monkeypatch.setattr(thread_pool, name, run_here_or_in_thread)

    run_here("run_in_thread")
    run_here("run_for_client")
    run_if_first = thread_pool.run_if_first

    async def run_here_if_first(begin: Callable[[], bool], act: Callable[[], Any]) -> Any:
        with outside_event_loop():
            if transactions._inside_test_transaction():
                return act() if begin() else None
        return await run_if_first(begin, act)

    monkeypatch.setattr(thread_pool, "run_if_first", run_here_if_first)


@pytest.fixture(autouse=True)
def _clear_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear and disable caches, so that a poll shows what is committed. Tests of the caches enable them again with
    `tests.support.queue.snapshots.keep_caches_fresh`."""
    import ticketing.fastpath_routes  # noqa: F401 - Loads every module that has a cache.
    from apps.kernel import rate_limits, redis
    from apps.kernel.fastpath import cache
    from apps.kernel.heavy_work import duty_cycle
    from apps.kernel.outbox import delivery
    from apps.queue.room import health
    from apps.queue.snapshot import exceptions, room_snapshot
    from ticketing.operations import health as readiness

    monkeypatch.setattr(readiness, "KEPT_SECONDS", 0.0)
    monkeypatch.setattr(delivery, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(duty_cycle, "PAUSE_FACTOR", 0.0)
    cache.clear_all()
    for each in cache.refreshing_caches():
        monkeypatch.setattr(each, "fresh_seconds", 0.0)
        monkeypatch.setattr(each, "stale_seconds", 0.0)
    rate_limits.forget_everything()
    health.hold_seconds.forget()
    health.payment_faults.forget()
    redis.forget_outage()
    monkeypatch.setattr(room_snapshot, "CACHE_SECONDS", 0.0)
    monkeypatch.setattr(room_snapshot, "COPY_FRESH_SECONDS", 0.0)
    monkeypatch.setattr(exceptions, "FEED_SECONDS", 0.0)


@pytest.fixture
def redis_client() -> "Iterator[Redis]":
    """A client of this test worker's own Redis, empty."""
    from redis import Redis

    with Redis.from_url(os.environ["REDIS_URL"], decode_responses=True) as client:
        yield client


@pytest.fixture
def own_redis(settings: Any) -> "Iterator[OwnRedis]":
    """A Redis server for one test that kills or changes it; all processes of the test use it."""
    from tests.support.own_redis import OwnRedis

    server = OwnRedis(settings)
    yield server
    server.end()


@pytest.fixture
def second_connection(transactional_db: None) -> "Iterator[Any]":
    """A Django connection besides the default one, which sees only committed data, like another process."""
    from tests.support.races import rival_connection

    with rival_connection() as connection:
        yield connection


@pytest.fixture
def live_site(live_server: Any, settings: Any) -> str:
    """The URL of the served site, with committed data. For pages and the API, without WebSockets."""
    settings.SITE_URL = live_server.url
    return str(live_server.url)


@pytest.fixture(params=["fast", pytest.param("site", marks=pytest.mark.slow)])
def api(request: pytest.FixtureRequest) -> "Api":
    """Calls the API through the fast path, which forwards other calls to the site. A second test, which is slow, calls
    the site directly."""
    # Imported here and below, because this file is imported before Django is set up.
    from tests.support.api_client import Api

    return Api(through_fast_path=request.param == "fast")


@pytest.fixture
def concert(db: None) -> "EventView":
    """An event on sale: 5 rows of 10 seats in `hall`, and 20 tickets for the `floor`."""
    from tests.support import factories

    return factories.make_event("concert", general_admission=20)


@pytest.fixture
def browser(db: None) -> "Client":
    """A browser on our pages with its own cookies: Django's test client, without scripts."""
    from django.test import Client

    return Client(headers={"sec-fetch-site": "same-origin"})


@pytest.fixture
def shopper(browser: "Client", concert: "EventView") -> "Client":
    """A browser that is admitted to the concert."""
    response = browser.post("/events/concert/join", follow=True)
    assert response.status_code == 200
    return browser


@pytest.fixture(scope="module")
def chromium() -> "Iterator[Browser]":
    """Chromium, for the tests of one module."""
    from playwright.sync_api import sync_playwright

    with pytest.MonkeyPatch.context() as environment, sync_playwright() as playwright:
        # Playwright runs an event loop in this thread, in which Django would refuse to use its database.
        environment.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        browser = playwright.chromium.launch(executable_path=CHROMIUM.find(), args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@dataclass
class Pages:
    """Opens pages, each with its own cookies; `errors` collects the errors of their scripts as text."""

    browser: "Browser"
    contexts: "list[BrowserContext]" = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __call__(
        self, width: int = 1440, height: int = 900, *, dark: bool = False, javascript: bool = True, zone: str = "UTC"
    ) -> "Page":
        context = self.browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            java_script_enabled=javascript,
            has_touch=width < 600,
            locale="en-US",
            timezone_id=zone,
        )
        self.contexts.append(context)
        context.set_default_timeout(BROWSER_TIMEOUT_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._note_blocked)
        return page

    def _note_blocked(self, message: "ConsoleMessage") -> None:
        if "Content Security Policy" in message.text:
            self.errors.append(message.text)


@pytest.fixture
def browser_page(chromium: "Browser") -> Iterator[Pages]:
    """Opens pages: `browser_page(width, height, dark=False, javascript=True, zone="UTC")`.

    A script error on any page, or a resource blocked by the page's own policy, fails the test at its end.
    """
    pages = Pages(chromium)
    yield pages
    for context in pages.contexts:
        context.close()
    assert not pages.errors, f"the page's scripts failed: {pages.errors}"
