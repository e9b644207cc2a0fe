"""Statements that a connection keeps with their plans.

PostgreSQL parses and plans a statement anew whenever it comes as text; of a small batch of holds that is half of its
work. Kept are those that say so where they are loaded, on the connections of committers, which live long and go past
any pooler. They are called by `EXECUTE`, in the same round trip as others, so nothing else about them changes.
"""

import logging
import re
import time
from collections.abc import Sequence
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from psycopg import Connection, Error

logger = logging.getLogger(__name__)

PARAMETER = re.compile(r"%\((\w+)\)s")

_texts: dict[str, str] = {}
_kept_on: "WeakKeyDictionary[Connection[Any], float]" = WeakKeyDictionary()
"""With each connection when its plans were last thrown away."""

PLANS_SECONDS = 2.0
"""A plan that was made while a table was empty reads all of it. PostgreSQL makes another when somebody has counted the
rows anew, which in the first minute of a sale may be a hundred thousand rows later: so it is told to."""


class _Pooled:
    """Whether this process has seen that what one transaction prepares is not there in the next."""

    seen = False


def add(name: str, text: str) -> None:
    """From now on connections keep this one too. Its text says the type of every parameter."""
    assert _texts.setdefault(name, text) == text, f"two prepared statements are called {name}"


def prepare_all(connection: Connection[Any]) -> None:
    """The connection, which is in autocommit and goes to PostgreSQL itself, keeps all of them from now on; or none,
    where one does not fit the tables as they are (a migration has yet to come)."""
    if _Pooled.seen or not _texts:
        return
    try:
        connection.execute(";\n".join([_preparation(name, text) for name, text in _texts.items()]))
    except Error as error:
        if connection.closed:
            raise
        logger.warning("statements are sent as text, since they could not be prepared: %s", error)
    else:
        _kept_on[connection] = time.monotonic()


def disable() -> None:
    """From now on this process sends every statement as text: what it had prepared was not there, as behind a pooler in
    transaction mode, where the next transaction is on another session."""
    if not _Pooled.seen:
        logger.warning("prepared statements do not last here: name PostgreSQL itself in DATABASE_DIRECT_URL")
    _Pooled.seen = True
    _kept_on.clear()


def is_enabled_on(connection: Any) -> bool:
    return connection in _kept_on


def refresh_statements(connection: Connection[Any]) -> list[str]:
    """What the connection has to be sent now for its plans to be of tables as they are."""
    made_at = _kept_on.get(connection)
    if made_at is None or time.monotonic() - made_at < PLANS_SECONDS:
        return []
    _kept_on[connection] = time.monotonic()
    return ["DISCARD PLANS"]


def execution(name: str, values: Sequence[str]) -> str:
    """The call, with its values as literals in the order of `names`."""
    return f"EXECUTE {_called(name)} ({', '.join(values)})" if values else f"EXECUTE {_called(name)}"


@cache
def names(text: str) -> tuple[str, ...]:
    """The parameters in the order in which the text first names them."""
    return tuple(dict.fromkeys(PARAMETER.findall(text)))


def _preparation(name: str, text: str) -> str:
    order = {parameter: f"${number}" for number, parameter in enumerate(names(text), 1)}
    # A line feed ends a comment that the file may end with.
    return f"PREPARE {_called(name)} AS {PARAMETER.sub(lambda match: order[match[1]], text).replace('%%', '%')}\n"


def _called(name: str) -> str:
    return f"fairgate_{name}"
