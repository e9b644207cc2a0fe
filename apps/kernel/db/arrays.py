"""Lists as PostgreSQL array literals.

psycopg inspects every element of a list in every statement. With a batch of 128 holds, that took a quarter of its
thread's processor time. These functions know the type of the elements and write the array directly.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from types import NoneType
from typing import Any
from uuid import UUID

import psycopg
from psycopg.adapt import Dumper

# Characters that need no quotation marks in an array element, and the comma between elements.
_PLAIN = re.compile(r"[A-Za-z0-9:_,-]+")
_HEX = "%032x"  # The format of UUID.hex, without the cost of its call.


class Array:
    """A complete array literal, accepted wherever a statement takes a list."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class _ArrayDumper(Dumper):
    def dump(self, obj: Array) -> bytes:
        if "\x00" in obj.text:  # libpq would silently cut the text off there.
            raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        return obj.text.encode()


psycopg.adapters.register_dumper(Array, _ArrayDumper)


def uuids(values: Iterable[UUID | None]) -> Array:
    return Array(f"{{{','.join(['NULL' if value is None else _HEX % value.int for value in values])}}}")


def numbers(values: Iterable[int | None]) -> Array:
    return Array(f"{{{','.join(['NULL' if value is None else str(value) for value in values])}}}")


def moments(values: Iterable[datetime | None]) -> Array:
    """Return the array of these times. Each distinct one is formatted once, since most are expected to be equal."""
    texts: dict[datetime | None, str] = {None: "NULL"}
    written = [texts.get(value) or texts.setdefault(value, f'"{value}"') for value in values]
    return Array(f"{{{','.join(written)}}}")


def flags(values: Iterable[bool | None]) -> Array:
    return Array(f"{{{','.join(['NULL' if value is None else 't' if value else 'f' for value in values])}}}")


def intervals(values: Iterable[timedelta | None]) -> Array:
    return Array(f"{{{','.join([_interval(value) for value in values])}}}")


def byte_strings(values: Iterable[bytes | None]) -> Array:
    # Between quotation marks a backslash is written twice.
    written = ["NULL" if value is None else '"\\\\x' + value.hex() + '"' for value in values]
    return Array(f"{{{','.join(written)}}}")


def texts(values: Sequence[str | None]) -> Array:
    """Return the array of these texts; fastest if none of them needs quotation marks, like our own ids."""
    text = _plain_texts(values)
    return Array(f"{{{','.join(map(_quote, values))}}}" if text is None else text)


def try_literal(values: list[Any]) -> str | None:
    """Return the array literal of a list of one plain type, in which some or all may be None; None for any other
    list."""
    kinds = set(map(type, values)) - {NoneType}
    if len(kinds) > 1:
        return None
    write = _WRITERS.get(kinds.pop()) if kinds else numbers
    return None if write is None else write(values).text


def _interval(value: timedelta | None) -> str:
    # With a sign for each unit: depending on IntervalStyle, the first sign would count for all.
    return (
        "NULL"
        if value is None
        else f'"{value.days:+d} days {value.seconds:+d} seconds {value.microseconds:+d} microseconds"'
    )


def _quote(value: str | None) -> str:
    if value is None:
        return "NULL"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _plain_texts(values: Sequence[str | None]) -> str | None:
    """Return the array without quotation marks, or None if an element needs them, as the text "null" does, or is
    None."""
    try:
        joined = ",".join(values)  # type: ignore[arg-type]
    except TypeError:
        return None
    is_plain = _PLAIN.fullmatch(joined) and joined.count(",") == len(values) - 1
    return f"{{{joined}}}" if is_plain and "" not in values and "null" not in joined.lower() else None


_WRITERS: dict[type, Callable[[Any], Array]] = {
    str: texts,
    int: numbers,
    bool: flags,
    UUID: uuids,
    datetime: moments,
    timedelta: intervals,
}
