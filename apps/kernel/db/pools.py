"""Connections of threads outside Django's request cycle.

Django checks and replaces its connections when a request begins or ends. Neither happens in a thread of our own, so its
connection would stay dead after a restart of the database. Such a thread either takes connections from a psycopg pool,
or calls `renew_django_connections` before each piece of work.
"""

import select
import threading
from typing import Any

from django.conf import settings
from django.db import close_old_connections, connections
from django.db.backends.signals import connection_created
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.array import ListDumper
from psycopg.types.datetime import TimestamptzLoader
from psycopg_pool import ConnectionPool

from apps.kernel.db import arrays, roundtrip, sql

# A peer that vanished silently (a lost network, a machine switched off) is detected within about 20 s.
_KEEPALIVE_OPTIONS = {
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_avoid_sequential_scans = sql.load("apps.kernel", "avoid_sequential_scans")
_use_generic_plans = sql.load("apps.kernel", "use_generic_plans")
_threads = threading.local()
"""`prepares`: whether the thread's next default connection keeps prepared statements."""


class _PlainLists(ListDumper):
    """Writes lists of one plain type directly; psycopg writes all others."""

    def dump(self, obj: list[Any]) -> Any:
        text = arrays.try_literal(obj)
        return super().dump(obj) if text is None else text.encode()


def create_pool(
    name: str, *, size_max: int, connect_ms: int, prepares: bool = False
) -> ConnectionPool[Connection[Any]]:
    """Return an unopened pool of autocommit connections to `settings.DATABASES["default"]`.

    Django configures them, so a statement means the same as on Django's connections: parameters bound by the client,
    times in UTC, nothing prepared by psycopg (behind pgbouncer the next transaction runs on another session). Each
    connection is checked when it is lent, so that a restart of the database causes a reconnection but no error.

    `prepares`: connect to DATABASE_DIRECT_URL, past any pooler, and keep prepared statements, which use indexes
    whatever the statistics of a table say.

    `connect_ms` also limits how long the pool itself tries to reconnect. Its pauses double, so with a long limit it
    could still be pausing minutes after the database came back. Once it has given up, the next request for a connection
    starts it again."""
    django = _unconnected_wrapper()

    def configure(connection: Connection[Any]) -> None:
        _configure(django, connection)
        if prepares:
            roundtrip.prepare_all(connection)
            with connection.cursor() as cursor:
                _avoid_sequential_scans.rows(cursor)

    return ConnectionPool(
        kwargs=_options(django, name, is_direct=prepares),
        open=False,
        configure=configure,
        check=_check,
        name=name,
        min_size=1,
        max_size=size_max,
        timeout=connect_ms / 1_000,
        reconnect_timeout=connect_ms / 1_000,
        num_workers=1,
    )


def connect(name: str) -> Connection[Any]:
    """Return a connection like those of a pool with prepared statements, which the caller closes. Blocks. Raises
    psycopg.Error."""
    django = _unconnected_wrapper()
    connection: Connection[Any] = Connection.connect(**_options(django, name, is_direct=True))
    _configure(django, connection)
    _prepare(connection)
    return connection


def _unconnected_wrapper() -> Any:
    """Return Django's wrapper of a connection. It is never connected; it supplies options and configures others."""
    return connections.create_connection("default")


def _options(django: Any, name: str, *, is_direct: bool) -> dict[str, Any]:
    options = django.get_connection_params()
    if is_direct:
        default, direct = map(conninfo_to_dict, (settings.DATABASE_URL, settings.DATABASE_DIRECT_URL))
        options |= {name: value for name, value in direct.items() if value != default.get(name)}
    application_name = f"{options.get('application_name', 'fairgate')} {name}"
    return {**_KEEPALIVE_OPTIONS, **options, "application_name": application_name, "autocommit": True}


def _configure(django: Any, connection: Connection[Any]) -> None:
    django._configure_connection(connection)
    connection.adapters.register_dumper(list, _PlainLists)
    # psycopg's own loader is in C. The session is in UTC, so it returns the same values as Django's loader.
    connection.adapters.register_loader("timestamptz", TimestamptzLoader)


def _prepare(connection: Connection[Any]) -> None:
    roundtrip.prepare_all(connection)
    with connection.cursor() as cursor:
        _use_generic_plans.rows(cursor)


def renew_django_connections(*, prepares: bool = False) -> None:
    """Close those of this thread's Django connections that are dead, broken or too old, as Django does before a
    request: the next statement opens a new one. A connection that is alive needs no query for that, unlike Django's own
    check (CONN_HEALTH_CHECKS).

    `prepares`: the default connection keeps prepared statements if it is opened from now on, unless it may lead through
    a pooler."""
    close_old_connections()
    _threads.prepares = prepares and settings.DATABASE_DIRECT_URL == settings.DATABASE_URL
    for one in connections.all(initialized_only=True):
        if one.connection is not None and not one.connection.closed and _is_silent(one.connection):
            one.health_check_done = True  # type: ignore[attr-defined]


def _prepare_if_wanted(connection: Any, **kwargs: Any) -> None:
    if connection.alias == "default" and getattr(_threads, "prepares", False):
        _prepare(connection.connection)


connection_created.connect(_prepare_if_wanted)


def _check(connection: Connection[Any]) -> None:
    """Raise if the connection is dead."""
    if not _is_silent(connection):
        ConnectionPool.check_connection(connection)


def _is_silent(connection: Connection[Any]) -> bool:
    """Return whether the idle connection's socket has nothing to read. A server or session that has ended has closed
    the socket, which is then readable. So only a readable socket needs a query. A peer that vanished silently would not
    answer it either."""
    poller = select.poll()
    poller.register(connection.fileno(), select.POLLIN)
    return not poller.poll(0)
