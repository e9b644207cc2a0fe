"""Holds by the real group commit, in batches that a test puts together, and cuts of its connection at a line."""

import threading
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from apps.reservations import facade as reservations
from apps.reservations.holds.service import holds
from tests.support.batches import TIMEOUT_MS, BackgroundCall, Breakpoint, run_sql, sessions_of, wait_until


def hold_in_one_batch(
    first: reservations.HoldRequest, requests: Sequence[reservations.HoldRequest]
) -> list[BackgroundCall]:
    """The requests gather behind the batch of `first`, and are then one batch in this order."""
    gate, decide, stopped = Breakpoint(), holds._attempts._decide, []

    def wait_first(*batch: Any) -> Any:
        if not stopped:
            stopped.append(True)
            gate.arrive_and_wait()  # No transaction has begun: nobody is kept waiting.
        return decide(*batch)

    # Whatever events they are of: one of another event would not wait behind the first.
    with patch.object(holds._attempts, "_decide", wait_first), patch.object(holds, "_key", lambda request: None):
        leader = BackgroundCall(lambda: holds.submit_sync(first, TIMEOUT_MS))
        gate.wait_until_reached()
        callers = []
        for number, request in enumerate(requests):
            callers.append(BackgroundCall(lambda request=request: holds.submit_sync(request, TIMEOUT_MS)))
            wait_until(lambda number=number: holds.waiting_count == number + 1, f"request {number} waits")
        gate.open()
        leader.result()
    return callers


def is_batcher_thread() -> bool:
    return threading.current_thread().name.startswith(f"batcher-{holds.name}")


def terminate_batcher_session() -> None:
    """The session that the batcher has is gone: what it did not commit is undone."""
    for pid in sessions_of(holds.name):
        assert run_sql("SELECT pg_terminate_backend(%s, 10000)", [pid]) == [(True,)]
