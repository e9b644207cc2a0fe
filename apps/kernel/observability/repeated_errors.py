"""What fails again and again in a loop is said when it begins, once a minute while it lasts, and when it is over."""

import logging
import time
from dataclasses import dataclass, field

from apps.kernel.db import transactions
from apps.kernel.observability import log_context


@dataclass(slots=True)
class _RepeatedError:
    began_at: float
    """This and the other moments are on the process's monotonic clock."""
    last_at: float
    said_at: float
    count: int = 0
    unlogged_count: int = 0
    kinds: set[str] = field(default_factory=set)
    """Of errors that a line has told of."""


class RepeatedErrors:
    """The troubles of one loop, each under the words that its lines begin with. For one thread.

    An error of a kind that has not been told of is said at once. It has its trace the first time, unless it passes by
    itself: a server that is away, a lock that does not come.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._known: dict[str, _RepeatedError] = {}

    def record_failure(self, what: str, error: BaseException) -> None:
        """It has failed once more."""
        now = time.monotonic()
        trouble = self._known.get(what)
        if trouble is None or now - trouble.last_at > log_context.INTERVAL_SECONDS:
            # Whatever it was a minute ago, nobody has seen it end: this is another one.
            trouble = self._known[what] = _RepeatedError(now, now, now)
        trouble.last_at = now
        trouble.count += 1
        kind = type(error.__cause__ or error).__name__
        is_new = kind not in trouble.kinds
        if not is_new and now < trouble.said_at + log_context.INTERVAL_SECONDS:
            trouble.unlogged_count += 1
            return
        passes = transactions.is_transient(error) or log_context.find_connection_error(error) is not None
        more = f" ({trouble.unlogged_count} more since the last such line)" if trouble.unlogged_count else ""
        self._logger.log(
            logging.WARNING if passes else logging.ERROR,
            "%s: %s%s",
            what,
            log_context.summarize_error(error),
            more,
            exc_info=error if is_new and not passes else None,
        )
        trouble.kinds.add(kind)
        trouble.said_at, trouble.unlogged_count = now, 0

    def over(self, what: str) -> None:
        """It went well. Says so if it had failed."""
        trouble = self._known.pop(what, None)
        if trouble is not None:
            lasted = time.monotonic() - trouble.began_at
            self._logger.warning("%s: no longer, after %s times in %.0f s", what, trouble.count, lasted)
