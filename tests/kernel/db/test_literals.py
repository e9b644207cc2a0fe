"""Values written as SQL literals are read back unchanged: in text, in a prepared statement, and in an array."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from apps.kernel.db import arrays, roundtrip, sql
from tests.support.batches import connect

pytestmark = pytest.mark.django_db(transaction=True)

SPECIAL = "'\"\\{},%$;:-_ \n\r\t\x01\x7fEeUuNLnul0ö漢\U0001f600"
texts = some.one_of(
    some.text(some.sampled_from(SPECIAL), max_size=12),
    some.text(some.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=30),
    some.sampled_from(["", "null", "NULL", "\\", "\\\\'", "'; DROP TABLE x; --", "%(value)s", "%s", "$1", "E'\\x'"]),
)
offsets = some.integers(-12 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = some.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=offsets)
durations = some.timedeltas(timedelta(days=-(10**6)), timedelta(days=10**6))
# PostgreSQL refuses the smallest bigint as psycopg writes it: in -9223372036854775808::bigint the cast binds first.
integers = some.integers(-(2**63) + 1, 2**63 - 1)
VALUES: dict[str, some.SearchStrategy[Any]] = {
    "text": texts,
    "bigint": integers,
    "numeric": some.integers(-(10**40), 10**40),
    "float8": some.floats(allow_nan=False),
    "boolean": some.booleans(),
    "timestamptz": moments,
    "uuid": some.uuids(),
    "bytea": some.binary(max_size=40),
}
ARRAYS: dict[str, tuple[some.SearchStrategy[list[Any]], Any]] = {
    "text[]": (some.lists(some.none() | texts, max_size=6), arrays.texts),
    "bigint[]": (some.lists(some.none() | integers, max_size=6), arrays.numbers),
    "timestamptz[]": (some.lists(some.none() | moments, max_size=6), arrays.moments),
    "uuid[]": (some.lists(some.none() | some.uuids(), max_size=6), arrays.uuids),
    "boolean[]": (some.lists(some.none() | some.booleans(), max_size=6), arrays.flags),
    "interval[]": (some.lists(some.none() | durations, max_size=6), arrays.intervals),
    "bytea[]": (some.lists(some.binary(max_size=20), max_size=6), arrays.byte_strings),
}
CASTS = [*VALUES, *ARRAYS]
# One connection serves all examples of a test: the examples leave no state behind.
one_connection = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["on", "off"], ids=lambda setting: f"standard_conforming_strings={setting}")
def cursor(request: pytest.FixtureRequest) -> Iterator[roundtrip.Cursor]:
    """Yield a cursor whose connection has this setting and a prepared statement for each type."""
    with connect() as connection, pytest.MonkeyPatch.context() as patch, roundtrip.Cursor(connection) as found:
        patch.setattr(roundtrip, "_prepared_texts", {_name(cast): _text(cast) for cast in CASTS})
        patch.setattr(roundtrip._Pooled, "seen", False)
        connection.execute("SET client_min_messages = error; SET TIME ZONE 'UTC'")
        connection.execute(f"SET standard_conforming_strings = {request.param}".encode())
        roundtrip.prepare_all(connection)
        assert roundtrip.is_prepared_on(connection)
        yield found


def _name(cast: str) -> str:
    return "fuzz_" + cast.replace("[]", "_array")


def _text(cast: str) -> str:
    return f"SELECT %(value)s::{cast}, 3 %% 2"


def read_back(cursor: roundtrip.Cursor, cast: str, value: Any) -> list[Any]:
    """Return the value as PostgreSQL received it: from text and prepared, each first and after another statement."""
    calls = [sql.Statement(_name(cast), _text(cast), prepared).call(value=value) for prepared in (False, True)]
    return [done.rows[0][0] for done in sql.execute_batch(cursor, [*calls, *calls])]


@pytest.mark.parametrize("cast", VALUES)
@one_connection
@given(data=some.data())
def test_a_value_is_read_back_as_it_was_sent(cursor: roundtrip.Cursor, cast: str, data: some.DataObject) -> None:
    value = data.draw(some.none() | VALUES[cast])
    assert read_back(cursor, cast, value) == [value] * 4


@pytest.mark.parametrize("cast", ARRAYS)
@one_connection
@given(data=some.data())
def test_a_list_is_read_back_as_it_was_sent(cursor: roundtrip.Cursor, cast: str, data: some.DataObject) -> None:
    """Written as an array literal, by psycopg, and by a committer's connection. (psycopg escapes a list of bytes twice
    with standard_conforming_strings off, so these are always sent as `arrays.byte_strings`.)"""
    values, write = ARRAYS[cast]
    value = data.draw(values)
    assert read_back(cursor, cast, write(value)) == [value] * 4
    if cast != "bytea[]":
        assert read_back(cursor, cast, value) == [value] * 4
    if (plain := arrays.try_literal(value)) is not None:
        assert read_back(cursor, cast, arrays.Array(plain)) == [value] * 4


@one_connection
@given(before=texts, after=texts)
def test_nul_is_refused(cursor: roundtrip.Cursor, before: str, after: str) -> None:
    text = before + "\x00" + after
    for cast, value in (("text", text), ("text[]", arrays.texts([text])), ("text[]", [text])):
        with pytest.raises(psycopg.DataError, match="NUL"):
            read_back(cursor, cast, value)
    assert not sql.is_text(text)


@one_connection
@given(before=texts, surrogate=some.characters(categories=["Cs"]))
def test_a_lone_surrogate_is_refused(cursor: roundtrip.Cursor, before: str, surrogate: str) -> None:
    text = before + surrogate
    for cast, value in (("text", text), ("text[]", arrays.texts([text])), ("text[]", [text])):
        with pytest.raises(UnicodeEncodeError):
            read_back(cursor, cast, value)
    assert not sql.is_text(text)


def test_a_moment_keeps_its_microseconds(cursor: roundtrip.Cursor) -> None:
    moment = datetime(2026, 11, 23, 12, 0, 0, 1, tzinfo=UTC)
    assert read_back(cursor, "timestamptz", moment) == [moment] * 4
