"""Lists on their way into PostgreSQL, written out as array literals: in one go, and once for all statements of a batch
that take the same list.

psycopg looks at every element of a list by itself, in each statement anew: of a batch of 128 holds that was a quarter
of the processor time of its thread.
"""

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.adapt import Dumper

__all__ = ["Array", "byte_strings", "flags", "moments", "numbers", "texts", "try_literal", "uuids"]

# What an array takes without quotation marks; a word that could be read as the absence of one is not among it.
_PLAIN = re.compile(r"[A-Za-z0-9:_,-]+")


_HEX = "%032x"  # As UUID.hex does it, without the call.
_BYTES = "\\\\x"


class Array:
    """An array literal, complete: wherever a statement takes a list it takes this too."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class _ArrayDumper(Dumper):
    def dump(self, obj: Array) -> bytes:
        return obj.text.encode()


psycopg.adapters.register_dumper(Array, _ArrayDumper)


def uuids(values: Iterable[UUID]) -> Array:
    return Array(f"{{{','.join([_HEX % value.int for value in values])}}}")


def numbers(values: Iterable[int | None]) -> Array:
    return Array(f"{{{','.join(['NULL' if value is None else str(value) for value in values])}}}")


def moments(values: Iterable[datetime]) -> Array:
    """Of moments of which most are the same one."""
    texts: dict[datetime, str] = {}
    written = [texts.get(value) or texts.setdefault(value, f'"{value}"') for value in values]
    return Array(f"{{{','.join(written)}}}")


def flags(values: Iterable[bool]) -> Array:
    return Array(f"{{{','.join(['t' if value else 'f' for value in values])}}}")


def byte_strings(values: Iterable[bytes]) -> Array:
    # As text in quotation marks, where a backslash is written twice.
    written = [f'"{_BYTES}{value.hex()}"' for value in values]
    return Array(f"{{{','.join(written)}}}")


def texts(values: list[str]) -> Array:
    """Of any texts; quickest where they are as plain as our own ids."""
    text = _plain_texts(values)
    return Array(f"{{{','.join(map(_quoted, values))}}}" if text is None else text)


def try_literal(values: list[Any]) -> str | None:
    """The literal of a list of one plain kind; None: that has to be looked at more closely."""
    kinds = set(map(type, values))
    write = _WRITERS.get(kinds.pop()) if len(kinds) == 1 else None
    return None if write is None else write(values)


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _plain_texts(values: list[str]) -> str | None:
    joined = ",".join(values)
    is_plain = _PLAIN.fullmatch(joined) and joined.count(",") == len(values) - 1
    return f"{{{joined}}}" if is_plain and "" not in values and "null" not in joined.lower() else None


_WRITERS: dict[type, Callable[[Any], str | None]] = {
    str: _plain_texts,
    int: lambda values: numbers(values).text,
    UUID: lambda values: uuids(values).text,
    datetime: lambda values: moments(values).text,
}
