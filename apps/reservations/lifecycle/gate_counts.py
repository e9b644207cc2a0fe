"""The gate's counts in Redis and the commands that change them after a commit (the gate itself: `gate/gate.py`)."""

import logging
from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from redis import Redis
from redis.exceptions import OutOfMemoryError

from apps.kernel import lua, redis
from apps.kernel.db import sql
from apps.kernel.http import idempotency
from apps.reservations.lifecycle.changes import Ended, Hold, StockChange

logger = logging.getLogger(__name__)

ENTRY_MARK_MS = idempotency.REMEMBERED_HOURS * 3_600_000
"""An entry with a hold stays marked as long as the hold's response is stored."""
CHANGES_KEPT_MS = 60_000
CHANGES_KEPT_MAX = 2_000
"""The latest changes are kept for readings that are not in force yet. One during which more is committed than this does
not come into force."""

Change = TypeVar("Change", Hold, Ended, StockChange)

_note = lua.load("apps.reservations", "gate_note", preceded_by="gate_count")
_read_transaction = sql.load("apps.reservations", "read_transaction", prepared=True)


def keys(event_id: int) -> tuple[str, ...]:
    """Return the keys of the event's gate and its marks: one hash tag, so that a cluster keeps them on one server."""
    return f"gate:{{{event_id}}}", f"gate:{{{event_id}}}:marks"


def all_keys(event_id: int) -> tuple[str, ...]:
    """Return the keys of the event's gate, its marks and its latest changes."""
    return (*keys(event_id), f"gate:{{{event_id}}}:changes")


def read_transaction_id(cursor: sql.Cursor) -> int:
    """Return the id of this cursor's transaction, for the changes that it will have committed."""
    ((transaction_id,),) = _read_transaction.rows(cursor)
    return int(transaction_id)


READ_TRANSACTION_ID = _read_transaction.call()
"""The same as a call, to share a round trip."""


def record_holds(holds: Sequence[Hold]) -> redis.CommandBatch:
    """Return the commands that lower the counts by what these holds took, and mark their entries, which the gate then
    never refuses. The next reset repairs what Redis misses."""
    updates = []
    for (event_id, transaction_id), together in _by_commit(holds).items():
        moved: Counts[int] = Counts()
        for hold in together:
            moved.subtract(hold.taken)
        marks = [str(hold.entry_id) for hold in together]
        updates.append((event_id, _note_arguments(transaction_id, marks, moved)))
    return _command_batch(updates)


def record_endings(endings: Sequence[Ended]) -> redis.CommandBatch:
    """Return the commands that raise the counts by the stock that these reservations released."""
    updates = []
    for (event_id, transaction_id), together in _by_commit(endings).items():
        for lapsed in (False, True):
            returned: Counts[int] = Counts()
            for ending in together:
                if ending.lapsed == lapsed:
                    returned.update(ending.returned)
            if returned:
                updates.append((event_id, _note_arguments(transaction_id, [], returned, lapsed=lapsed)))
    return _command_batch(updates)


def record_stock_changes(changes: Sequence[StockChange]) -> redis.CommandBatch:
    """Return the commands that change the counts by what staff put on sale or withdrew."""
    updates = []
    for (event_id, transaction_id), together in _by_commit(changes).items():
        moved: Counts[int] = Counts()
        for change in together:
            moved.update(change.free)
        updates.append((event_id, _note_arguments(transaction_id, [], moved)))
    return _command_batch(updates)


def _by_commit(changes: Sequence[Change]) -> dict[tuple[int, int | None], list[Change]]:
    """Return the changes by event and transaction."""
    by_commit: dict[tuple[int, int | None], list[Change]] = defaultdict(list)
    for change in changes:
        by_commit[change.event_id, change.transaction_id].append(change)
    return by_commit


def _note_arguments(
    transaction_id: int | None, marks: Sequence[str], moved: Mapping[int, int], *, lapsed: bool = False
) -> list[lua.Argument]:
    arguments: list[lua.Argument] = [
        ENTRY_MARK_MS,
        CHANGES_KEPT_MS,
        CHANGES_KEPT_MAX,
        "" if transaction_id is None else transaction_id,
        int(lapsed),
        len(marks),
        *marks,
    ]
    for section_id, quantity in moved.items():
        arguments += [section_id, quantity]
    return arguments


_EventArguments = Sequence[tuple[int, Sequence[lua.Argument]]]
"""The event and the arguments of each run of a script."""


def attempt_all(
    script: lua.Script, calls: _EventArguments, keys_of: Callable[[int], Sequence[str]] = keys
) -> list[Any]:
    """Return the script's results for these calls in order, read in one round trip; None where a call failed.

    If the server is out of memory, the update is lost. That gate then refuses nothing until it is reset from the
    ledger, and the result of the call is `out_of_memory`.
    """
    if not calls:
        return []
    results = redis.attempt(
        lambda client: _handle_failures(client, calls, script.run_many(client, runs(calls, keys_of)))
    )
    return [None] * len(calls) if results is None else results


def _command_batch(updates: _EventArguments) -> redis.CommandBatch:
    """Return the updates as commands that share a round trip with others."""
    calls = runs(updates, all_keys)

    def on_results(client: Redis, results: Sequence[Any]) -> None:
        _handle_failures(client, updates, _note.rerun_unknown(client, calls, list(results)))

    return redis.CommandBatch(_note.commands(calls), on_results)


def runs(calls: _EventArguments, keys_of: Callable[[int], Sequence[str]] = keys) -> list[lua.Run]:
    return [(keys_of(event_id), arguments) for event_id, arguments in calls]


def _handle_failures(client: Redis, calls: _EventArguments, results: list[Any]) -> list[Any]:
    for index, result in enumerate(results):
        if isinstance(result, OutOfMemoryError):
            # Redis allows deletes even then; every process finds the gate shut from now on.
            client.hdel(keys(calls[index][0])[0], "until")
            results[index] = b"out_of_memory"
        elif isinstance(result, Exception):
            logger.warning("the gate of event %s: Redis refused: %s", calls[index][0], result)
            results[index] = None
    return results
