"""Read the parameters and bodies of calls for feeds. Each function raises Invalid and names what is wrong."""

import json
import re
from collections.abc import Container, Mapping
from typing import Any

from rest_framework.request import Request

from apps.kernel.feeds import facade as feeds
from apps.kernel.http import problems
from apps.kernel.http.json_body import get_json_object, refuse_unknown_fields

ID_PATTERN = f"^[!-~]{{1,{feeds.ID_LENGTH_MAX}}}$"
WAIT_SECONDS_MAX = 20
"""How long a receive waits for a message."""
_ID, _NAME = re.compile(ID_PATTERN, re.ASCII), re.compile(feeds.NAME_PATTERN, re.ASCII)


def check_name(name: str) -> str:
    """Return the name, if a feed can have it."""
    if not _NAME.fullmatch(name):
        raise problems.Invalid({"feed": f"must be at most {feeds.NAME_LENGTH_MAX} small letters, digits and hyphens"})
    return name


def read_query_number(query: Mapping[str, str], name: str, minimum: int, maximum: int, default: int) -> int:
    """Return the whole number in the query string."""
    text = query.get(name)
    if text is None:
        return default
    digits = len(str(maximum))
    if not (text.isascii() and text.isdigit() and len(text) <= digits and minimum <= int(text) <= maximum):
        raise problems.Invalid({name: _range(minimum, maximum)})
    return int(text)


def read_count(query: Mapping[str, str]) -> int:
    """Return how many messages the request asks for at most."""
    return read_query_number(query, "n", 1, feeds.LIST_MAX, feeds.LIST_MAX)


def read_wait_seconds(query: Mapping[str, str]) -> int:
    """Return for how long the request waits for a message."""
    return read_query_number(query, "wait_seconds", 0, WAIT_SECONDS_MAX, 0)


def read_feed_settings(request: Request) -> tuple[int, int]:
    """Return the retention in seconds and the most receives of a message."""
    body = _object(get_json_object(request), ("retention_seconds", "receives_max"))
    return (
        _number(
            body,
            "retention_seconds",
            feeds.RETENTION_SECONDS_MIN,
            feeds.RETENTION_SECONDS_MAX,
            feeds.RETENTION_SECONDS_DEFAULT,
        ),
        _number(body, "receives_max", 1, feeds.RECEIVES_MAX_MAX, feeds.RECEIVES_MAX_DEFAULT),
    )


def read_visibility(request: Request) -> int:
    """Return the new visibility time-out in seconds."""
    body = _object(get_json_object(request), ("visibility_seconds",))
    if "visibility_seconds" not in body:
        raise problems.Invalid({"visibility_seconds": "is required"})
    return _number(body, "visibility_seconds", 0, feeds.VISIBILITY_SECONDS_MAX, 0)


def read_handles(request: Request) -> list[str]:
    """Return the receipt handles of the messages to delete."""
    given = _object(get_json_object(request), ("receipt_handles",)).get("receipt_handles")
    if not isinstance(given, list) or not 1 <= len(given) <= feeds.DELETED_MAX or not all(map(_is_text, given)):
        raise problems.Invalid(
            {"receipt_handles": f"must be a list of 1 to {feeds.DELETED_MAX} texts, none of them empty"}
        )
    return given


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def read_messages(request: Request) -> list[feeds.NewMessage]:
    """Return the messages to send, with distinct ids."""
    given = _object(get_json_object(request), ("messages",)).get("messages")
    if not isinstance(given, list) or not 1 <= len(given) <= feeds.LIST_MAX:
        raise problems.Invalid({"messages": f"must be a list of 1 to {feeds.LIST_MAX} messages"})
    messages, errors = [], {}
    for position, one in enumerate(given):
        try:
            messages.append(_message(one))
        except problems.Invalid as refused:
            errors[str(position)] = refused.extra["errors"]
    if errors:
        raise problems.Invalid({"messages": errors})
    if len({one.id for one in messages}) < len(messages):
        raise problems.Invalid({"messages": "each message needs an id of its own"})
    return messages


def _message(given: Any) -> feeds.NewMessage:
    if not isinstance(given, dict):
        raise problems.Invalid("must be an object")
    body = _object(given, ("id", "key", "body"))
    message_id, key = body.get("id"), body.get("key")
    if not isinstance(message_id, str) or not _ID.fullmatch(message_id):
        raise problems.Invalid({"id": f"must be 1 to {feeds.ID_LENGTH_MAX} printable ASCII characters without spaces"})
    if key is not None and not (isinstance(key, str) and 1 <= len(key) <= feeds.ID_LENGTH_MAX):
        raise problems.Invalid({"key": f"must be a text of 1 to {feeds.ID_LENGTH_MAX} characters, or null"})
    if "body" not in body:
        raise problems.Invalid({"body": "is required; any JSON value"})
    try:
        text = json.dumps(body["body"], ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:  # 1e999 is read as infinity.
        raise problems.Invalid({"body": "must not contain a number beyond the range of a double"}) from error
    if len(text.encode()) > feeds.BODY_BYTES_MAX:
        raise problems.Invalid({"body": f"must be at most {feeds.BODY_BYTES_MAX} bytes as JSON in UTF-8"})
    return feeds.NewMessage(message_id, key, text)


def _object(given: Mapping[str, Any], known: Container[str]) -> Mapping[str, Any]:
    refuse_unknown_fields(given, known)
    return given


def _number(body: Mapping[str, Any], name: str, minimum: int, maximum: int, default: int) -> int:
    value = body.get(name, default)
    if type(value) is not int or not minimum <= value <= maximum:
        raise problems.Invalid({name: _range(minimum, maximum)})
    return value


def _range(minimum: int, maximum: int) -> str:
    return f"must be a whole number from {minimum} to {maximum}"
