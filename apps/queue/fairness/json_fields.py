"""Typed reads of untrusted JSON. Each raises MismatchFound unless the value has its type and is within its limits."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

NUMBER_MAX = 10**15
_HEX = re.compile(r"(?:[0-9a-f]{2})*")

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first contradiction, with its queue number if it has one."""

    what: str
    number: int | None = None

    def __str__(self) -> str:
        return self.what if self.number is None else f"number {self.number}: {self.what}"


class MismatchFound(Exception):
    def __init__(self, what: str, number: int | None = None) -> None:
        super().__init__(what)
        self.mismatch = Mismatch(what, number)


def read_object(value: Any, what: str) -> Document:
    if not isinstance(value, Mapping):
        raise MismatchFound(f"{what} is missing or not an object")
    return value


def read_list(holder: Document, name: str) -> list[Any]:
    value = holder.get(name)
    if not isinstance(value, list):
        raise MismatchFound(f"{name} is missing or not a list")
    return value


def read_text(holder: Document, name: str) -> str:
    value = holder.get(name)
    if not isinstance(value, str):
        raise MismatchFound(f"{name} is missing or not a text")
    return value


def read_integer(holder: Document, name: str, *, least: int = 0) -> int:
    value = holder.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= NUMBER_MAX:
        raise MismatchFound(f"{name} is {str(value)[:80]!r}, not a whole number from {least}")
    return value


def shorten(item: Document) -> str:
    return str(dict(item))[:200]


def read_hex(holder: Document, name: str, lengths: tuple[int, ...] = ()) -> bytes:
    value = holder.get(name)
    if not isinstance(value, str) or not _HEX.fullmatch(value) or (lengths and len(value) // 2 not in lengths):
        raise MismatchFound(
            f"{name} is {str(value)[:80]!r}, not {' or '.join(map(str, lengths)) or 'any'} bytes in hex"
        )
    return bytes.fromhex(value)


def read_leaf(value: Any, what: str, number: int | None = None) -> bytes:
    if not isinstance(value, str) or len(value) != 64 or not _HEX.fullmatch(value):
        raise MismatchFound(f"{what} is {str(value)[:80]!r}, not 32 bytes in hex", number)
    return bytes.fromhex(value)


def read_moment(holder: Document, name: str) -> datetime:
    value = holder.get(name)
    try:
        moment = datetime.fromisoformat(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise MismatchFound(f"{name} is {str(value)[:80]!r}, not a time") from None
    if moment.tzinfo is None:
        raise MismatchFound(f"{name} is {value!r}, without a time zone")
    return moment


def read_optional_moment(holder: Document, name: str) -> datetime | None:
    return None if holder.get(name) is None else read_moment(holder, name)
