"""PostgreSQL is lost during joins: every join that was answered keeps its position, and any other can be retried."""

import itertools
import subprocess
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connections

from apps.kernel.db import sql
from apps.kernel.group_commit.batcher import Batcher, OutcomeUnknown
from apps.kernel.http import problems
from apps.queue import facade
from apps.queue.entries import join, positions
from apps.queue.models import QueueEntry, WaitingRoom
from tests.support.batches import SECONDS_MAX, TIMEOUT_MS, BackgroundCall, Breakpoint, wait_until
from tests.support.databases import database_url
from tests.support.factories import assert_audit_clean
from tests.support.queue.rooms import join_waiting_entries, make_room
from tests.support.queue.snapshots import poll_status
from tests.support.races import in_another_connection
from tests.support.servers import temporary_server_folder
from ticketing.devserver import postgres
from ticketing.devserver.ports import free_port
from ticketing.devserver.servers import new_password

pytestmark = pytest.mark.django_db(transaction=True)


class OwnPostgres:
    """A PostgreSQL server for one test, with the tables of the project, that can be stopped and restarted at its
    port."""

    def __init__(self) -> None:
        self._folder, self.end = temporary_server_folder()
        self._passwords = {"password": new_password(), "superuser_password": new_password()}
        self._cluster: postgres.Postgres | None = None
        self.start()

    def start(self) -> None:
        port = None if self._cluster is None else self._cluster.port
        self._cluster = postgres.start(
            self._folder, **self._passwords, settings=postgres.DISPOSABLE, preferred_port=port
        )
        assert port in (None, self._cluster.port)

    def copy_tables(self, url: str) -> None:
        """Create the tables of that database here, empty, in a tenth of the time of migrating."""
        assert self._cluster is not None
        programs = self._folder.postgres_bin
        dump = subprocess.run(
            [programs / "pg_dump", "--schema-only", "--no-owner", url], check=True, capture_output=True, env={}
        )
        subprocess.run(
            [programs / "psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", self._cluster.url()],
            input=dump.stdout, check=True, capture_output=True, env={},
        )  # fmt: skip

    def stop(self) -> None:
        postgres.stop(self._folder)

    @property
    def address(self) -> dict[str, Any]:
        assert self._cluster is not None
        database = {"HOST": "127.0.0.1", "PORT": self._cluster.port, "USER": postgres.OWNER, "NAME": postgres.OWNER}
        return {**database, "PASSWORD": self._cluster.password}


@pytest.fixture
def own_postgres(monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnPostgres]:
    """New connections of all other threads go to this server. The thread of the test keeps its own connection."""
    server = OwnPostgres()
    server.copy_tables(database_url())
    monkeypatch.setitem(connections.settings, "default", {**connections.settings["default"], **server.address})
    yield server
    server.end()


@pytest.fixture
def _redis_away(settings: Any) -> None:
    (default,) = settings.CACHES.values()
    settings.CACHES = {"default": {**default, "LOCATION": f"redis://127.0.0.1:{free_port()}/0"}}


def visitor(number: int) -> facade.Caller:
    return facade.Caller(visitor_id=f"visitor-{number:04}")


@pytest.mark.usefixtures("_redis_away")
def test_postgresql_restarts_and_then_stops_during_a_storm_of_joins(
    own_postgres: OwnPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty-four visitors join, at most ten to a transaction, while Redis is away.

    Batch 1: is held until all the others are queued
    Batch 2: commits; the server restarts before the reply arrives: its rows are looked up and found, all are answered
    Batch 3: has written everything, and the server restarts before the COMMIT: it is decided again, all are answered
    Batch 4: has written everything, and the server goes away: its outcome is unknown
    The rest waits behind it and is refused because the database is unavailable; nothing was begun for it
    The server is back, and all join again. A visitor with an answer keeps that entry; any other now has one entry.
    """
    event = in_another_connection(lambda: make_room(rate=1_000, active=5))
    in_another_connection(lambda: join_waiting_entries(event, 5))
    gate, attempts = Breakpoint(), itertools.count(1)

    def decide(connection: psycopg.Connection[Any], requests: list[facade.JoinRequest]) -> list[Any]:
        attempt = next(attempts)
        if attempt == 1:
            gate.arrive_and_wait()

        def meddle(name: str, when: str) -> None:
            if (name, when) == ("save_room", "after"):
                own_postgres.stop()
                if attempt == 3:
                    own_postgres.start()
                else:
                    set_pool_timeout(0.1)

        if attempt in (3, 5):
            with sql.observe(meddle):
                return list(join._decide(connection, requests))
        outcomes = list(join._decide(connection, requests))
        if attempt == 2:
            own_postgres.stop()
            own_postgres.start()
            connection.execute("SELECT 1")
        return outcomes

    joins: Batcher[Any, Any] = Batcher(
        "stormy joins", decide, find_committed=join._find_committed, batch_max=10, connect_ms=TIMEOUT_MS
    )
    monkeypatch.setattr(join, "joins", joins)
    monkeypatch.setattr(join, "JOIN_TIMEOUT_MS", 10 * TIMEOUT_MS)

    def set_pool_timeout(seconds: float) -> None:
        """Set how long a batch waits for a connection."""
        assert joins._pool is not None
        joins._pool.timeout = seconds

    try:
        callers = []
        for number in range(44):
            callers.append(BackgroundCall(lambda number=number: positions.join(event, visitor(number))))
            if number == 0:
                gate.wait_until_reached()
            wait_until(lambda number=number: joins.waiting_count == number, f"{number} wait")
        gate.open()
        results = [caller.result() for caller in callers[:21]]
        assert [entry.number for entry in results] == list(range(6, 27))
        assert {type(caller.error()) for caller in callers[21:31]} == {OutcomeUnknown}
        assert {type(caller.error()) for caller in callers[31:]} == {problems.DatabaseUnavailable}
        own_postgres.start()
        set_pool_timeout(SECONDS_MAX)
        again = [_join_until_answered(event, visitor(number)) for number in range(44)]
    finally:
        joins.close()
    assert again[:21] == results

    def check() -> None:
        assert sorted(QueueEntry.objects.values_list("number", flat=True)) == list(range(1, 50))
        assert QueueEntry.objects.values("visitor_id").distinct().count() == 49
        assert WaitingRoom.objects.get().next_number == 50
        assert poll_status(event, again[43]).estimate.ahead == 49
        assert_audit_clean()

    in_another_connection(check)


def _join_until_answered(event: Any, caller: facade.Caller) -> facade.EntryView:
    """Join as a client that retries when asked to."""
    for _ in range(20):
        try:
            return positions.join(event, caller)
        except (problems.Busy, problems.DatabaseUnavailable):
            continue
    raise AssertionError("never answered")
