"""The scheduler of `beat`: its schedule is in the database, and each of its rounds is a heartbeat."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from django_celery_beat.schedulers import DatabaseScheduler

from apps.kernel.observability import heartbeats

ROUND_SECONDS_MAX = 60.0
"""A round takes 5 s at most, unless the broker or the database does not answer."""


class Scheduler(DatabaseScheduler):
    """Ends at SIGTERM or SIGINT, and stores which tasks it has sent.

    Celery's own signal handler stores them at once. In the middle of a statement this waits forever for the lock of the
    connection, which the interrupted code holds. Here the statements under way end first.
    """

    _reads_and_writes = 0
    _stop_requested = False
    _is_ending = False

    def setup_schedule(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._request_stop)
        with self._statements():
            super().setup_schedule()

    def tick(self, *args: Any, **kwargs: Any) -> Any:
        """Send the due tasks, and return the seconds until the next round."""
        heartbeats.beat("schedule", ROUND_SECONDS_MAX)
        return super().tick(*args, **kwargs)

    def schedule_changed(self) -> bool:
        with self._statements():
            return bool(super().schedule_changed())

    def all_as_schedule(self) -> dict[str, Any]:
        with self._statements():
            return dict(super().all_as_schedule())

    def sync(self) -> None:
        with self._statements():
            super().sync()

    @contextmanager
    def _statements(self) -> Iterator[None]:
        """Stop after the block, not within it."""
        self._reads_and_writes += 1
        try:
            yield
        finally:
            self._reads_and_writes -= 1
        self._stop_if_requested()

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        self._stop_requested = True
        self._stop_if_requested()

    def _stop_if_requested(self) -> None:
        # The last `sync`, which SystemExit leads to, is not interrupted.
        if self._stop_requested and not self._is_ending and not self._reads_and_writes:
            self._is_ending = True
            raise SystemExit
