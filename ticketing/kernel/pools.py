"""Connections beside Django's: a psycopg pool for threads that Django's end of a request never reaches.

Django checks and replaces its connections when a request begins or ends. In a thread of our own neither happens, so
after a restart of the database its connection would stay dead for ever.
"""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connections
from psycopg import Connection
from psycopg.types.array import ListDumper
from psycopg_pool import ConnectionPool

# A peer that vanished without a word (a lost network, a machine switched off) ends the wait within about 20 s.
_NOTICE_A_LOST_PEER = {
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
# What an array takes without quotation marks; a word that could be read as the absence of one is not among it.
_PLAIN = re.compile(r"[A-Za-z0-9:_,-]+")


class _PlainLists(ListDumper):
    """Lists of one kind, written out at once. psycopg looks at every element by itself: of a batch of 128 holds that
    was a quarter of the processor time of its thread. Whatever is not plain is left to it."""

    def dump(self, obj: list[Any]) -> Any:
        kinds = set(map(type, obj))
        write = _WRITERS.get(kinds.pop()) if len(kinds) == 1 else None
        return super().dump(obj) if write is None or (text := write(obj)) is None else text.encode()


def _words(values: list[str]) -> str | None:
    joined = ",".join(values)
    is_plain = _PLAIN.fullmatch(joined) and joined.count(",") == len(values) - 1
    return f"{{{joined}}}" if is_plain and "" not in values and "null" not in joined.lower() else None


_WRITERS: dict[type, Callable[[Any], str | None]] = {
    str: _words,
    int: lambda values: f"{{{','.join(map(str, values))}}}",
    UUID: lambda values: f"{{{','.join([value.hex for value in values])}}}",
    datetime: lambda values: '{"' + '","'.join(map(str, values)) + '"}',
}


def beside_django(name: str, *, size_max: int, connect_ms: int) -> ConnectionPool[Connection[Any]]:
    """A pool to where `settings.DATABASES["default"]` points, not opened yet, its connections in autocommit.

    They are set up by Django's own hand, so a statement means the same on them as on Django's: parameters bound by
    the client, times in UTC, no prepared statements (behind pgbouncer the next transaction is on another session).
    Each connection is checked when it is lent, so a restarted database costs a reconnection and no error.

    `connect_ms` is also how long the pool goes on trying by itself: its pauses double, and with a long limit it would
    still be asleep minutes after the database came back. Once it has given up, the next who asks makes it begin anew.
    """
    # Never connected: it only knows how Django would connect.
    django: Any = connections.create_connection("default")
    told = django.get_connection_params()
    called = f"{told.get('application_name', 'fairgate')} {name}"

    def configure(connection: Connection[Any]) -> None:
        django._configure_connection(connection)
        connection.adapters.register_dumper(list, _PlainLists)

    return ConnectionPool(
        kwargs={**_NOTICE_A_LOST_PEER, **told, "application_name": called, "autocommit": True},
        open=False,
        configure=configure,
        check=ConnectionPool.check_connection,
        name=name,
        min_size=1,
        max_size=size_max,
        timeout=connect_ms / 1_000,
        reconnect_timeout=connect_ms / 1_000,
        num_workers=1,
    )
