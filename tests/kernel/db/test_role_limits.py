"""Every session has time limits: Django's, those of the pools, of the leaders, and of psql."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection
from psycopg import errors, sql

from apps.kernel.db import pools, role_limits
from apps.queue.lobby.draw import DrawWorker
from apps.queue.room.gatekeeper import Gatekeeper

pytestmark = pytest.mark.django_db(transaction=True)

NAMES = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
READ = "SELECT " + ", ".join(f"current_setting('{name}')" for name in NAMES)


@pytest.fixture
def limited(settings: Any) -> Iterator[None]:
    """Set limits that occur nowhere else, as `migrate` does in production."""
    settings.DATABASE_LIMITS_SESSIONS = True
    settings.DATABASE_LOCK_TIMEOUT_MS = 41_000
    settings.DATABASE_STATEMENT_TIMEOUT_MS = 42_000
    settings.DATABASE_IDLE_IN_TRANSACTION_TIMEOUT_MS = 43_000
    call_command("migrate", verbosity=0)
    connection.close()
    yield
    reset_limits()


def read_from_django() -> Any:
    with connection.cursor() as cursor:
        cursor.execute(READ)
        return cursor.fetchone()


def read_from_a_pool() -> Any:
    pool = pools.create_pool("limits", size_max=1, connect_ms=10_000)
    pool.open()
    try:
        with pool.connection() as pooled:
            return pooled.execute(READ).fetchone()
    finally:
        pool.close()


def conninfo() -> str:
    params = connection.get_connection_params()
    return psycopg.conninfo.make_conninfo(
        **{name: params[name] for name in ("host", "port", "user", "password", "dbname")}
    )


def read_from_psql() -> Any:
    with psycopg.connect(conninfo()) as session:
        return session.execute(READ).fetchone()


def read_from_the_gatekeeper() -> Any:
    leader = Gatekeeper(conninfo())
    leader.run_once()
    try:
        assert leader.lead.session is not None
        return leader.lead.session.execute(READ).fetchone()
    finally:
        leader.resign()


def read_from_the_draw_worker() -> Any:
    drawer = DrawWorker(conninfo())
    try:
        assert drawer.lead.holds()
        assert drawer.lead.session is not None
        return drawer.lead.session.execute(READ).fetchone()
    finally:
        drawer.close()


def test_every_session_has_the_limits_of_its_role(limited: None) -> None:
    """The gatekeeper sets a shorter statement timeout itself: no other process can lead while it waits."""
    readers: list[Callable[[], Any]] = [read_from_django, read_from_a_pool, read_from_psql, read_from_the_draw_worker]
    assert [read() for read in readers] == [("41s", "42s", "43s")] * len(readers)
    assert read_from_the_gatekeeper() == ("41s", "1500ms", "43s")


def test_a_read_of_a_page_is_canceled_at_the_limit(settings: Any) -> None:
    """PostgreSQL cancels a plain read outside any transaction; the migration that sets the limit runs without one."""
    with connection.cursor() as cursor:
        role_limits.lift_while_migrating()
        cursor.execute("SELECT current_setting('statement_timeout')")
        assert cursor.fetchone() == ("0",)
    settings.DATABASE_STATEMENT_TIMEOUT_MS = 50
    role_limits.apply()
    try:
        with psycopg.connect(conninfo()) as session, pytest.raises(errors.QueryCanceled):
            session.execute("SELECT pg_sleep(60)")
    finally:
        reset_limits()


def reset_limits() -> None:
    connection.close()
    reset = sql.SQL("ALTER ROLE CURRENT_USER IN DATABASE {} RESET ALL")
    with psycopg.connect(conninfo(), options="-c statement_timeout=0", autocommit=True) as session:
        session.execute(reset.format(sql.Identifier(connection.settings_dict["NAME"])))
