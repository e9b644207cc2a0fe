"""Looks up the numbers that lobby entries have drawn.

After the draw a whole lobby polls at once. Each statement reads all numbers that were requested while the previous one
ran. The statements use a separate connection, so that joins and pages do not wait.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from psycopg import Connection

from apps.kernel.db import sql, transactions
from apps.kernel.group_commit.batcher import Batcher, decide_finds_committed

GROUP_MAX = 512
TIMEOUT_MS = 5_000
STATEMENT_MS = 3_000

_drawn_numbers = sql.load("apps.queue", "drawn_numbers")


def _read(connection: Connection[Any], entry_ids: list[UUID]) -> Sequence[int | None]:
    with transactions.write_on(connection, statement_ms=STATEMENT_MS) as cursor:
        numbers = dict(_drawn_numbers.rows(cursor, entry_ids=list(set(entry_ids))))
    return [numbers.get(entry_id) for entry_id in entry_ids]


lookups: Batcher[UUID, int | None] = Batcher(
    "exchange", _read, find_committed=decide_finds_committed, batch_max=GROUP_MAX
)


def number_of(entry_id: UUID) -> int | None:
    """Return the number that this entry drew; None if no finished draw includes it. Raises problems.Busy and
    problems.DatabaseUnavailable."""
    return lookups.submit_sync(entry_id, TIMEOUT_MS)
