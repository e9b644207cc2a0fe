"""The databases of a test run: one migrated template, a clone of it per parallel worker, emptied between tests.

Migrating takes seconds and cloning a fraction of one, so the first worker migrates and the others copy. Emptying
deletes from the tables that have rows: TRUNCATE makes new files for each table it names and its indexes, also for empty
tables.
"""

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import LiteralString

import django
import psycopg
from django.core.management import call_command
from django.db import DatabaseError, connection
from psycopg import sql

from tests.support.servers import CHECKOUT, DATABASE_OF_RUN

TEMPLATE = "test_template"
TEMPLATE_LOCK = 7_316_402
"""The key of the advisory lock under which databases are created from the template."""
TRANSACTIONS_SECONDS_MAX = 20.0
OPEN_TRANSACTIONS = """
    SELECT pid, application_name, state, query FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND xact_start IS NOT NULL
        AND pid <> pg_backend_pid()
"""
FILLED_BY_MIGRATIONS = {"auth_permission", "django_content_type"}


def start_migrating() -> subprocess.Popen[bytes]:
    """Start a process that creates the template while the workers collect their tests, and return it."""
    return subprocess.Popen([sys.executable, "-m", "tests.support.databases"], cwd=CHECKOUT)


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "ticketing.settings"
    django.setup()
    # Migrations render the models again and again; what has been imported is no garbage meanwhile.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    with _server_with_template():
        pass


def create_database() -> None:
    """Create a migrated, empty database for this process, and connect Django's default connection to it."""
    connection.close()
    name = f"test_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
    with _server_with_template() as server:
        _execute(server, "CREATE DATABASE {} TEMPLATE {}", name, TEMPLATE)
    connection.settings_dict["NAME"] = name


def close_database() -> None:
    """Close this module's sessions. The database is removed with the run's server."""
    connection.close()
    _cleaner().close()


def _make_template(server: psycopg.Connection) -> None:
    """Create the template. It is migrated under another name first, so that a failed migration leaves no template."""
    unfinished, settings = f"{TEMPLATE}_unfinished", connection.settings_dict
    original = settings["NAME"]
    _execute(server, "DROP DATABASE IF EXISTS {}", unfinished)
    _execute(server, "CREATE DATABASE {}", unfinished)
    settings["NAME"] = unfinished
    try:
        call_command("migrate", verbosity=0, interactive=False)
    finally:
        connection.close()
        settings["NAME"] = original
    _execute(server, "ALTER DATABASE {} RENAME TO {}", unfinished, TEMPLATE)


def database_url() -> str:
    """Return the URL of this test's database, for processes that it starts."""
    return "postgres://{USER}:{PASSWORD}@{HOST}:{PORT}/{NAME}".format(**connection.settings_dict)


def empty_tables() -> None:
    """Delete all rows except those that migrations insert. Raises AssertionError if a transaction stays open.

    Foreign keys and the triggers that keep the ledgers append-only do not fire: every row that refers to a deleted one
    is deleted too.
    """
    if _cleaner().closed:
        _cleaner.cache_clear()
    cleaner = _cleaner()
    try:
        _wait_for_transactions(cleaner)
    finally:
        if tables := [name for (name,) in cleaner.execute(_search())]:
            deletions = "; ".join(f'DELETE FROM "{name}"' for name in tables)
            cleaner.execute(f"SET LOCAL session_replication_role = replica; {deletions}".encode(), prepare=False)


def _wait_for_transactions(cleaner: psycopg.Connection) -> None:
    """Wait until no other session has a transaction open: its rows would appear after the deletion. End those
    that stay open, so that only this test fails, and raises AssertionError."""
    deadline, pause = time.monotonic() + TRANSACTIONS_SECONDS_MAX, threading.Event()
    while still_open := cleaner.execute(OPEN_TRANSACTIONS).fetchall():
        if time.monotonic() > deadline:
            connection.close()
            for pid, *_ in still_open:
                cleaner.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
            raise AssertionError(f"transactions that this test left open: {still_open}")
        pause.wait(0.005)


def renew_connection() -> None:
    """Reset the session of Django's default connection. A new session would be slower: PostgreSQL reads the catalog the
    first time that a session uses a table."""
    if connection.connection is None:
        return
    if connection.in_atomic_block or not connection.get_autocommit() or not connection.is_usable():
        connection.close()
    else:
        connection.connection.execute("DISCARD ALL")


@cache
def _search() -> bytes:
    """Return the statement that lists the tables with rows."""
    names = sorted(set(connection.introspection.django_table_names(include_views=False)) - FILLED_BY_MIGRATIONS)
    return " UNION ALL ".join(f"""SELECT '{name}' WHERE EXISTS (SELECT FROM "{name}")""" for name in names).encode()


@cache
def _cleaner() -> psycopg.Connection:
    """Return this process's session for emptying tables, which keeps the plan of the search."""
    return psycopg.connect(database_url(), autocommit=True, prepare_threshold=0)


@contextmanager
def _server_with_template() -> Iterator[psycopg.Connection]:
    """Yield a session that can create databases, once the template exists. The first process creates the template, the
    others wait for it."""
    with _server() as server:
        server.execute("SELECT pg_advisory_lock(%s)", [TEMPLATE_LOCK])
        if not server.execute("SELECT 1 FROM pg_database WHERE datname = %s", [TEMPLATE]).fetchone():
            _make_template(server)
        yield server


@contextmanager
def _server() -> Iterator[psycopg.Connection]:
    """Yield a session in which databases can be created and dropped."""
    with psycopg.connect(os.environ[DATABASE_OF_RUN], autocommit=True) as server:
        yield server


def _execute(server: psycopg.Connection, statement: LiteralString, *names: str) -> None:
    server.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


if __name__ == "__main__":
    main()


def lose_the_database() -> None:
    """End this thread's session, as a crash of the server does, and raise the error of the next statement."""
    with connection.cursor() as cursor:
        with suppress(DatabaseError):
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        cursor.execute("SELECT 1")
