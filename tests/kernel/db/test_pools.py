"""Connections of the pools: a list written as an array literal is read back unchanged."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections
from psycopg import Connection

from apps.kernel.db import pools
from tests.support.races import rival_connection

pytestmark = pytest.mark.django_db(transaction=True)

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
LISTS: dict[str, tuple[str, list[Any]]] = {
    "plain words": ("text[]", ["visitor:visitor-1", "a_b", "00"]),
    "words that need quotation marks": ("text[]", ['a"b', "a\\b", "{a}", "a b", "it's", "ä\U0001f3ab", "line\nfeed"]),
    "words with commas": ("text[]", ["a,b", "c", ",", "d,"]),
    "an empty word": ("text[]", ["a", "", "b"]),
    "only an empty word": ("text[]", [""]),
    "words that spell NULL": ("text[]", ["null", "NULL", "a"]),
    "words and NULL": ("text[]", ["a", None, "b"]),
    "NULL twice": ("bigint[]", [None, None]),
    "an empty list": ("bigint[]", []),
    "numbers": ("bigint[]", [1, -1, 0, 2**62]),
    "numbers and NULL": ("bigint[]", [1, None]),
    "booleans": ("boolean[]", [True, False]),
    "ids": ("uuid[]", [uuid.UUID(int=0), uuid.uuid4()]),
    "moments": ("timestamptz[]", [NOON, NOON + timedelta(microseconds=1)]),
    "moments and NULL": ("timestamptz[]", [NOON, None]),
}


@pytest.fixture
def connection() -> Iterator[Connection[Any]]:
    pool = pools.create_pool("lists", size_max=1, connect_ms=10_000)
    pool.open()
    try:
        with pool.connection() as connection:
            yield connection
    finally:
        pool.close()


@pytest.mark.parametrize("kind", LISTS)
def test_a_list_is_read_back_as_it_was_sent(connection: Connection[Any], kind: str) -> None:
    array_type, values = LISTS[kind]
    assert connection.execute(f"SELECT %s::{array_type}", [values]).fetchone() == (values,)


def test_a_live_connection_of_django_is_used_again_without_a_query_and_a_dead_one_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    django = connections["default"]
    asked: list[bool] = []
    is_usable = django.is_usable

    def ask() -> bool:
        asked.append(is_usable())
        return asked[-1]

    def backend() -> int:
        with django.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return int(cursor.fetchone()[0])

    first = backend()
    monkeypatch.setattr(django, "is_usable", ask)
    monkeypatch.setattr(django, "close_at", None)
    pools.renew_django_connections()
    assert (backend(), asked) == (first, [])
    with rival_connection() as rival, rival.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [first])
    pools.renew_django_connections()
    assert backend() != first
    assert asked == [False]
