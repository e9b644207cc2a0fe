"""Holds by the real group commit, in batches that a test composes, and cuts of its connection."""

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
    """Let the requests gather behind the batch of `first`, so that they form one batch in this order."""
    breakpoint_, decide, stopped = Breakpoint(), holds._attempts._decide, []

    def wait_first(*batch: Any) -> Any:
        if not stopped:
            stopped.append(True)
            breakpoint_.arrive_and_wait()  # No transaction has begun, so no other request is blocked.
        return decide(*batch)

    # One batch for all events: otherwise a request of another event would not wait behind the first.
    with patch.object(holds._attempts, "_decide", wait_first), patch.object(holds, "_key", lambda request: None):
        leader = BackgroundCall(lambda: holds.submit_sync(first, TIMEOUT_MS))
        breakpoint_.wait_until_reached()
        callers = []
        for number, request in enumerate(requests):
            callers.append(BackgroundCall(lambda request=request: holds.submit_sync(request, TIMEOUT_MS)))
            wait_until(lambda number=number: holds.waiting_count == number + 1, f"request {number} waits")
        breakpoint_.open()
        leader.result()
    return callers


def is_batcher_thread() -> bool:
    return threading.current_thread().name.startswith(f"batcher-{holds.name}")


def terminate_batcher_session() -> None:
    """Terminate the batcher's session: what it did not commit is rolled back."""
    for pid in sessions_of(holds.name):
        assert run_sql("SELECT pg_terminate_backend(%s, 10000)", [pid]) == [(True,)]
