"""Limits of every session of the house's role in its database, whatever opens it.

`transactions.write` sets limits for its transaction. What runs beside one (a page's reads, a session of Celery's, a
person at psql) has those of its role, which PostgreSQL itself gives to each new session: so they also hold behind
pgbouncer in transaction mode, where a setting made by a client would fall to whoever comes next, and where the
parameters of a client's start are not passed on.
"""

from typing import Any

from django.conf import settings
from django.db import connections
from psycopg import sql

_LIMIT = sql.SQL("ALTER ROLE CURRENT_USER IN DATABASE {database} SET {name} = {value}")
_LIFT = "SELECT set_config('statement_timeout', '0', false)"
_LOWER = "RESET statement_timeout"


def limits() -> dict[str, str]:
    """The session's limits by name, as PostgreSQL writes them."""
    return {
        "lock_timeout": f"{settings.DATABASE_LOCK_TIMEOUT_MS}ms",
        "statement_timeout": f"{settings.DATABASE_STATEMENT_TIMEOUT_MS}ms",
        "idle_in_transaction_session_timeout": f"{settings.DATABASE_IDLE_IN_TRANSACTION_TIMEOUT_MS}ms",
    }


def apply(using: str = "default") -> None:
    """Every session that begins from now on has the limits, unless it sets its own. Any role may say so of itself."""
    on = connections[using]
    database = sql.Identifier(on.settings_dict["NAME"])
    with on.cursor() as cursor:
        for name, value in limits().items():
            statement = _LIMIT.format(database=database, name=sql.Identifier(name), value=sql.Literal(value))
            cursor.execute(statement.as_string())


def lift_while_migrating(using: str = "default", **signal: Any) -> None:
    """A migration may rewrite a table for as long as it takes. It still waits for no lock longer than others do: who
    queues behind a sale holds the sale up."""
    with connections[using].cursor() as cursor:
        cursor.execute(_LIFT)


def apply_after_migrating(using: str = "default", **signal: Any) -> None:
    """The schema is current, and with it the limits of the sessions that will use it."""
    with connections[using].cursor() as cursor:
        cursor.execute(_LOWER)
    if settings.DATABASE_LIMITS_SESSIONS:
        apply(using)
