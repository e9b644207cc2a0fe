"""Connections beside Django's: a psycopg pool for threads that Django's end of a request never reaches.

Django checks and replaces its connections when a request begins or ends. In a thread of our own neither happens, so
after a restart of the database its connection would stay dead for ever.
"""

import select
from typing import Any

from django.conf import settings
from django.db import connections
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.array import ListDumper
from psycopg.types.datetime import TimestamptzLoader
from psycopg_pool import ConnectionPool

from apps.kernel.db import arrays, roundtrip

# A peer that vanished without a word (a lost network, a machine switched off) ends the wait within about 20 s.
_KEEPALIVE_OPTIONS = {
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


class _PlainLists(ListDumper):
    """Lists of one plain kind, written out at once; whatever is not plain is left to psycopg."""

    def dump(self, obj: list[Any]) -> Any:
        text = arrays.try_literal(obj)
        return super().dump(obj) if text is None else text.encode()


def create_pool(
    name: str, *, size_max: int, connect_ms: int, prepares: bool = False
) -> ConnectionPool[Connection[Any]]:
    """A pool to where `settings.DATABASES["default"]` points, not opened yet, its connections in autocommit.

    They are set up by Django's own hand, so a statement means the same on them as on Django's: parameters bound by
    the client, times in UTC, nothing prepared by psycopg (behind pgbouncer the next transaction is on another session).
    Each connection is looked at when it is lent, so a restarted database costs a reconnection and no error.

    `prepares`: they go past any pooler, to where DATABASE_DIRECT_URL points, and keep prepared statements.

    `connect_ms` is also how long the pool goes on trying by itself: its pauses double, and with a long limit it would
    still be asleep minutes after the database came back. Once it has given up, the next who asks makes it begin anew.
    """
    # Never connected: it only knows how Django would connect.
    django: Any = connections.create_connection("default")
    told = {**django.get_connection_params(), **(_direct_connection_options() if prepares else {})}
    called = f"{told.get('application_name', 'fairgate')} {name}"

    def configure(connection: Connection[Any]) -> None:
        django._configure_connection(connection)
        connection.adapters.register_dumper(list, _PlainLists)
        # psycopg's own, in C: the session is in UTC, so it gives the very moments that Django's loader gives.
        connection.adapters.register_loader("timestamptz", TimestamptzLoader)
        if prepares:
            roundtrip.prepare_all(connection)

    return ConnectionPool(
        kwargs={**_KEEPALIVE_OPTIONS, **told, "application_name": called, "autocommit": True},
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


def _check(connection: Connection[Any]) -> None:
    """Raises what is wrong with it. A server or a session that has ended has closed the line, which then has something
    to be read: only who finds that has to ask over it. Who vanished without a word would not answer either."""
    line = select.poll()
    line.register(connection.fileno(), select.POLLIN)
    if line.poll(0):
        ConnectionPool.check_connection(connection)


def _direct_connection_options() -> dict[str, Any]:
    """How PostgreSQL itself is reached, as far as that is another way than Django's."""
    usual, direct = map(conninfo_to_dict, (settings.DATABASE_URL, settings.DATABASE_DIRECT_URL))
    return {name: value for name, value in direct.items() if value != usual.get(name)}
