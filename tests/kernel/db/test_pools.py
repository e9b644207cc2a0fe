"""Connections beside Django's: lists written out at once mean what psycopg would have written."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import Connection

from apps.kernel.db import pools

pytestmark = pytest.mark.django_db(transaction=True)

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
LISTS: dict[str, tuple[str, list[Any]]] = {
    "plain words": ("text[]", ["visitor:visitor-1", "a_b", "00"]),
    "words that need quotation marks": ("text[]", ['a"b', "a\\b", "{a}", "a b", "it's", "ä\U0001f3ab", "line\nfeed"]),
    "words with commas": ("text[]", ["a,b", "c", ",", "d,"]),
    "an empty word": ("text[]", ["a", "", "b"]),
    "nothing but an empty word": ("text[]", [""]),
    "words that read like nothing": ("text[]", ["null", "NULL", "a"]),
    "words and nothing": ("text[]", ["a", None, "b"]),
    "nothing twice": ("bigint[]", [None, None]),
    "an empty list": ("bigint[]", []),
    "numbers": ("bigint[]", [1, -1, 0, 2**62]),
    "numbers and nothing": ("bigint[]", [1, None]),
    "truths": ("boolean[]", [True, False]),
    "ids": ("uuid[]", [uuid.UUID(int=0), uuid.uuid4()]),
    "moments": ("timestamptz[]", [NOON, NOON + timedelta(microseconds=1)]),
    "moments and nothing": ("timestamptz[]", [NOON, None]),
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
def test_a_list_arrives_as_it_was_given(connection: Connection[Any], kind: str) -> None:
    of, given = LISTS[kind]
    assert connection.execute(f"SELECT %s::{of}", [given]).fetchone() == (given,)
