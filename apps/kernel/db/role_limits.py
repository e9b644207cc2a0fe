"""Limits of every session of the role in its database, whichever program opens it.

`transactions.write` sets limits for its transaction. Everything else (a page's reads, a session of Celery, an operator
at psql) has the role's limits, which PostgreSQL applies to each new session. So they also hold behind pgbouncer in
transaction mode, where a client's setting would leak to the next client, and start-up parameters are not passed on.
"""

from typing import Any

from django.conf import settings
from django.db import connections
from psycopg import sql

_LIMIT = sql.SQL("ALTER ROLE CURRENT_USER IN DATABASE {database} SET {name} = {value}")
_LIFT = "SELECT set_config('statement_timeout', '0', false)"
_LOWER = "RESET statement_timeout"


def limits() -> dict[str, str]:
    """Return the session limits by name, in PostgreSQL's notation."""
    return {
        "lock_timeout": f"{settings.DATABASE_LOCK_TIMEOUT_MS}ms",
        "statement_timeout": f"{settings.DATABASE_STATEMENT_TIMEOUT_MS}ms",
        "idle_in_transaction_session_timeout": f"{settings.DATABASE_IDLE_IN_TRANSACTION_TIMEOUT_MS}ms",
    }


def apply(using: str = "default") -> None:
    """Apply the limits to every new session that does not set its own. Any role may do this for itself."""
    on = connections[using]
    database = sql.Identifier(on.settings_dict["NAME"])
    with on.cursor() as cursor:
        for name, value in limits().items():
            statement = _LIMIT.format(database=database, name=sql.Identifier(name), value=sql.Literal(value))
            cursor.execute(statement.as_string())


def lift_while_migrating(using: str = "default", **signal: Any) -> None:
    """Lift the statement timeout, so that a migration can rewrite a large table. Lock waits stay limited, because the
    sale queues behind a migration that waits for a lock."""
    with connections[using].cursor() as cursor:
        cursor.execute(_LIFT)


def apply_after_migrating(using: str = "default", **signal: Any) -> None:
    """Restore the statement timeout, and apply all limits to the sessions that will use the new schema."""
    with connections[using].cursor() as cursor:
        cursor.execute(_LOWER)
    if settings.DATABASE_LIMITS_SESSIONS:
        apply(using)
