"""Updates of the copies in Redis after a commit: the gate's counts and the deadline set.

The ledger is already committed, so an error here is only logged. A copy that misses an update is rebuilt from the
ledger.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from apps.kernel import redis
from apps.reservations.lifecycle import deadline_set, gate_counts
from apps.reservations.lifecycle.changes import DeadlineChange, Ended, Hold, StockChange

logger = logging.getLogger(__name__)

Change = TypeVar("Change")
Update = Callable[[Sequence[Change]], redis.CommandBatch]


def notify_held(holds: Sequence[Hold]) -> None:
    """Update the copies with committed holds, in the thread that committed them."""
    _update(holds, gate_counts.record_holds, deadline_set.update_deadlines)


def notify_deadline_changed(deadlines: Sequence[DeadlineChange]) -> None:
    _update(deadlines, deadline_set.update_deadlines)


def notify_ended(endings: Sequence[Ended]) -> None:
    """Update the copies with reservations that have ended, including those replaced by another reservation."""
    _update(endings, gate_counts.record_endings, deadline_set.remove_ended)


def notify_stock_changed(changes: Sequence[StockChange]) -> None:
    _update(changes, gate_counts.record_stock_changes)


def _update(changes: Sequence[Change], *updates: Update[Change]) -> None:
    """Send the commands of all updates in one round trip."""
    if not changes:
        return
    batches = []
    for update in updates:
        try:
            batches.append(update(changes))
        except Exception:  # The commit stays valid even if a copy misses it.
            logger.exception("%s failed after a commit", update.__qualname__)
    try:
        redis.run_command_batches(batches)
    except Exception:
        logger.exception("updating Redis failed after a commit")
