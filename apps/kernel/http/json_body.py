"""Strict parsing of API request bodies: every accepted value can be stored, compared and returned unchanged."""

import json
from collections.abc import Container, Mapping
from typing import IO, Any

import msgspec
from django.http import QueryDict
from rest_framework.parsers import JSONParser
from rest_framework.request import Request

from apps.kernel.db import sql
from apps.kernel.http import problems

NESTING_MAX = 32
VALUES_MAX = 10_000
"""A body of 256 KiB could have 80,000 lists, which would occupy the event loop for a tenth of a second."""
FEW_VALUES_MAX = 1_000
"""For bodies that are parsed on the event loop: a thousand lists take a millisecond."""
_SEPARATORS = (b"[", b"{", b",", b":")


class JSONBody(JSONParser):
    """Parses application/json in UTF-8. Refuses what the standard library accepts: NaN and Infinity, a name given twice
    (parsers disagree on which value counts), nesting beyond NESTING_MAX, and text that PostgreSQL cannot store (NUL, a
    lone surrogate), and more than VALUES_MAX values. Raises MalformedBody if it is not such JSON, Invalid for such
    text."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        return read_json(stream.read())


class JSONBodyOfAnyText(JSONBody):
    """Parses like JSONBody, but accepts text that PostgreSQL cannot store. The view calls `require_storable` for each
    part, so that one such part does not refuse the others."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        return read_json(stream.read(), is_any_text=True)


def read_json(raw: bytes, *, values_max: int = VALUES_MAX, is_any_text: bool = False) -> Any:
    """Return the value in these bytes. Raises MalformedBody, also for more than about `values_max` values (separators
    between them are counted, those in texts too), and, unless `is_any_text`, Invalid."""
    if sum(map(raw.count, _SEPARATORS)) > values_max:
        raise problems.MalformedBody(f"The body has more than {values_max:,} values.")
    value = _read_plain(raw)
    if value is not None:
        return value
    try:
        value = _decoder.decode(raw.decode("utf-8"))
    except RecursionError as error:
        raise problems.MalformedBody("The body is nested too deeply.") from error
    except ValueError as error:  # Not UTF-8, not JSON, or a number of thousands of digits.
        raise problems.MalformedBody from error
    _check(value, NESTING_MAX, is_any_text=is_any_text)
    return value


def require_storable(value: Any) -> None:
    """Raise Invalid if the parsed value contains text that PostgreSQL cannot store."""
    _check(value, NESTING_MAX)


def _read_plain(raw: bytes) -> Any:
    """Return the value if encoding it again gives the same bytes, else None; the caller then uses the strict parser.

    If the bytes are equal, no name was given twice and no number was altered. Without a backslash, there is no text
    that UTF-8 cannot encode. Browsers send such bodies. Costs a fifth of strict parsing."""
    if b"\\" in raw or raw.count(b"[") + raw.count(b"{") >= NESTING_MAX:
        return None
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError):
        return None
    return value if msgspec.json.encode(value) == raw else None


def get_json_object(request: Request) -> dict[str, Any]:
    """Return the request's body, which must be a JSON object; {} for no body. Raises Invalid, MalformedBody,
    WrongContentType and TooLarge."""
    data = request.data
    if isinstance(data, QueryDict) and not data:
        return {}
    if not isinstance(data, dict):
        raise problems.Invalid("a JSON object is expected")
    return data


def refuse_unknown_fields(body: Mapping[str, Any], known: Container[str]) -> None:
    """Raise Invalid if there are unknown fields: a misspelled field must not be treated as missing."""
    if unknown := {name[:80]: "unknown field" for name in body if name not in known}:
        raise problems.Invalid(unknown)


def object_of_unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object, as an `object_pairs_hook`. Raises ValueError if a name is given twice: readers disagree on
    which of the values counts."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name is given twice")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(name)


# Created once: `json.loads` with these options would create a decoder for each body, which doubles the cost.
_decoder = json.JSONDecoder(object_pairs_hook=object_of_unique_names, parse_constant=_no_constant)


def _check(value: Any, depth_left: int, *, is_any_text: bool = False) -> None:
    if depth_left == 0:
        raise problems.MalformedBody("The body is nested too deeply.")
    if isinstance(value, str):
        if not (is_any_text or sql.is_text(value)):
            raise problems.Invalid("text must not contain NUL or half of a surrogate pair")
    elif isinstance(value, dict):
        for name, inner in value.items():
            _check(name, depth_left, is_any_text=is_any_text)
            _check(inner, depth_left - 1, is_any_text=is_any_text)
    elif isinstance(value, list):
        for inner in value:
            _check(inner, depth_left - 1, is_any_text=is_any_text)
