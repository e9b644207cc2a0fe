"""No session of the house is without limits: Django's, the pools' beside it, the leaders', and that of psql."""

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
    """As after `migrate` in earnest, with limits that nothing else has."""
    settings.DATABASE_LIMITS_SESSIONS = True
    settings.DATABASE_LOCK_TIMEOUT_MS = 41_000
    settings.DATABASE_STATEMENT_TIMEOUT_MS = 42_000
    settings.DATABASE_IDLE_IN_TRANSACTION_TIMEOUT_MS = 43_000
    call_command("migrate", verbosity=0)
    connection.close()
    yield
    forget()


def of_django() -> Any:
    with connection.cursor() as cursor:
        cursor.execute(READ)
        return cursor.fetchone()


def of_a_pool() -> Any:
    pool = pools.create_pool("limits", size_max=1, connect_ms=10_000)
    pool.open()
    try:
        with pool.connection() as on:
            return on.execute(READ).fetchone()
    finally:
        pool.close()


def conninfo() -> str:
    told = connection.get_connection_params()
    return psycopg.conninfo.make_conninfo(
        **{name: told[name] for name in ("host", "port", "user", "password", "dbname")}
    )


def of_psql() -> Any:
    with psycopg.connect(conninfo()) as session:
        return session.execute(READ).fetchone()


def of_the_gatekeeper() -> Any:
    leader = Gatekeeper(conninfo())
    leader.run_once()
    try:
        assert leader.lead.session is not None
        return leader.lead.session.execute(READ).fetchone()
    finally:
        leader.resign()


def of_the_drawer() -> Any:
    drawer = DrawWorker(conninfo())
    try:
        assert drawer.lead.holds()
        assert drawer.lead.session is not None
        return drawer.lead.session.execute(READ).fetchone()
    finally:
        drawer.close()


def test_every_session_has_the_limits_of_its_role(limited: None) -> None:
    """Who leads says of itself that it is quicker: nobody else can lead while it waits."""
    paths: list[Callable[[], Any]] = [of_django, of_a_pool, of_psql, of_the_drawer]
    assert [path() for path in paths] == [("41s", "42s", "43s")] * len(paths)
    assert of_the_gatekeeper() == ("41s", "1500ms", "43s")


def test_a_page_s_read_ends_at_the_limit(settings: Any) -> None:
    """A plain read, outside any transaction of ours, is cut off; the migration that set the limit has none itself."""
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
        forget()


def forget() -> None:
    connection.close()
    reset = sql.SQL("ALTER ROLE CURRENT_USER IN DATABASE {} RESET ALL")
    with psycopg.connect(conninfo(), options="-c statement_timeout=0", autocommit=True) as session:
        session.execute(reset.format(sql.Identifier(connection.settings_dict["NAME"])))
