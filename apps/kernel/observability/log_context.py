"""What ties a line of the log to the request it was written for, and what keeps an outage from burying the log."""

import logging
import re
import time
from contextvars import ContextVar

# Set by the outermost middleware of ours and left until the thread's next request: what Django logs after the answer
# left our hands still belongs to it.
request_id: ContextVar[str] = ContextVar("request_id", default="-")

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
"""What a proxy in front may call a request; anything else is replaced by a name of ours."""

INTERVAL_SECONDS = 60.0
# What PostgreSQL says of itself, not of a statement: it stops, it starts, it ended the connection.
_DATABASE_DOWN_SQLSTATES = ("08", "57P")


class RequestIdFilter(logging.Filter):
    """Every record carries `request_id`; a dash where no request is served."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = request_id.get()
        return True


class _ThrottlingFilter(logging.Filter):
    """Lets one line of a kind through each `INTERVAL_SECONDS`; the next one says how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._due_at: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def say(self, kind: str, record: logging.LogRecord, text: str) -> bool:
        now = time.monotonic()
        if now < self._due_at.get(kind, now):
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return False
        self._due_at[kind] = now + INTERVAL_SECONDS
        left_out = self._left_out.pop(kind, 0)
        record.msg, record.args = "%s%s", (text, f" ({left_out} more since the last such line)" if left_out else "")
        record.exc_info = record.exc_text = None
        return True


class OutageFilter(_ThrottlingFilter):
    """A server that is away is one line a minute per logger, without its trace. Every other error passes untouched."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = find_connection_error(record.exc_info[1]) if record.exc_info else None
        return error is None or self.say(record.name, record, f"a server is away: {summarize_error(error)}")


class WarningFilter(_ThrottlingFilter):
    """The same warning, whatever it speaks of, is one line a minute per logger; errors pass untouched."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        return self.say(f"{record.name} {record.msg}", record, record.getMessage())


class SuspiciousRequestFilter(_ThrottlingFilter):
    """What Django refused as suspicious (a foreign Host, a form of thousands of fields) is one line a minute and kind.

    Anybody can cause them at any rate, and there is nothing in their traces.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith("django.security."):
            return True
        return self.say(record.name, record, record.getMessage()[:200])


def find_connection_error(error: BaseException | None) -> BaseException | None:
    """The error in this chain that says that PostgreSQL, Redis or the broker is away; None when none does."""
    import psycopg
    import redis

    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, redis.ConnectionError | redis.TimeoutError | ConnectionError):
            return error
        if isinstance(error, psycopg.OperationalError) and (error.sqlstate or "08").startswith(
            _DATABASE_DOWN_SQLSTATES
        ):
            return error
        error = error.__cause__ or error.__context__
    return None


def summarize_error(error: BaseException) -> str:
    """What the error says in one line."""
    return (str(error).strip() or type(error).__name__).partition("\n")[0]
