"""Logs a repeated failure of a loop on first occurrence, then once a minute, and once on recovery."""

import logging
import time
from dataclasses import dataclass, field

from apps.kernel.db import transactions
from apps.kernel.observability import log_context


@dataclass(slots=True)
class _RepeatedError:
    began_at: float
    """This and the other times are on the process's monotonic clock."""
    last_at: float
    logged_at: float
    count: int = 0
    unlogged_count: int = 0
    kinds: set[str] = field(default_factory=set)
    """Types of the errors already logged."""


class RepeatedErrors:
    """The repeated failures of one loop, by the text with which their log lines begin. For one thread.

    The first error of each type is logged at once, with its traceback unless it is transient (an unavailable server, a
    lock timeout).
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._known: dict[str, _RepeatedError] = {}

    def record_failure(self, what: str, error: BaseException) -> None:
        """Record a failure, and log it if it is new or the last line about it is a minute old."""
        now = time.monotonic()
        repeated = self._known.get(what)
        if repeated is None or now - repeated.last_at > log_context.INTERVAL_SECONDS:
            # After a minute without failure, a new one starts a new series.
            repeated = self._known[what] = _RepeatedError(now, now, now)
        repeated.last_at = now
        repeated.count += 1
        kind = type(error.__cause__ or error).__name__
        is_new = kind not in repeated.kinds
        if not is_new and now < repeated.logged_at + log_context.INTERVAL_SECONDS:
            repeated.unlogged_count += 1
            return
        is_transient = transactions.is_transient(error) or log_context.find_connection_error(error) is not None
        more = f" ({repeated.unlogged_count} more since the last such line)" if repeated.unlogged_count else ""
        self._logger.log(
            logging.WARNING if is_transient else logging.ERROR,
            "%s: %s%s",
            what,
            log_context.summarize_error(error),
            more,
            exc_info=error if is_new and not is_transient else None,
        )
        repeated.kinds.add(kind)
        repeated.logged_at, repeated.unlogged_count = now, 0

    def over(self, what: str) -> None:
        """Record a success, and log the recovery if there were failures before."""
        repeated = self._known.pop(what, None)
        if repeated is not None:
            seconds = time.monotonic() - repeated.began_at
            self._logger.warning("%s: recovered after %s failures in %.0f s", what, repeated.count, seconds)
