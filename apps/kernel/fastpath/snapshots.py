"""What the event loop of `web` must know of PostgreSQL without asking it. A thread reads all of it twice a second, on
one connection. While PostgreSQL is unavailable, the last state stays in use; Redis plays no part.
"""

import logging
import threading
from collections.abc import Callable

from django.db import close_old_connections, connections

from apps.kernel.observability.repeated_errors import RepeatedErrors

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 0.5
BEGIN_SECONDS_MAX = 5

_refreshes: dict[str, Callable[[], object]] = {}
"""By what is logged when they fail."""


def register(failing: str, refresh: Callable[[], object]) -> None:
    """Call `refresh`, which blocks, twice a second in the thread. `failing` is logged while it raises errors.
    Registering the same text again replaces its function."""
    _refreshes[failing] = refresh


class _Refresher:
    """The thread, from `begin` to `end`."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._was_refreshed = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread. Returns once everything was read, or after BEGIN_SECONDS_MAX without PostgreSQL."""
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)
        self._thread.start()
        self._was_refreshed.wait(BEGIN_SECONDS_MAX)

    def end(self) -> None:
        """Stop the thread, if it runs."""
        if self._thread is not None:
            self._stopping.set()
            self._thread.join(timeout=5)

    def _run(self) -> None:
        errors = RepeatedErrors(logger)
        while not self._stopping.is_set():
            succeeded = [_refresh(failing, refresh, errors) for failing, refresh in list(_refreshes.items())]
            if all(succeeded):
                self._was_refreshed.set()
            self._stopping.wait(INTERVAL_SECONDS)
        connections.close_all()


def _refresh(failing: str, refresh: Callable[[], object], errors: RepeatedErrors) -> bool:
    """Return whether it succeeded."""
    close_old_connections()
    try:
        refresh()
    except Exception as error:  # noqa: BLE001 - The thread must survive any error of the database.
        errors.record_failure(failing, error)
        return False
    errors.over(failing)
    return True


_refresher = _Refresher()
begin = _refresher.begin
end = _refresher.end
