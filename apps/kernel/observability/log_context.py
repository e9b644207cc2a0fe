"""Filters for log records: one adds the request's id, the others throttle repeated records. The formatter masks secrets
and email addresses."""

import logging
import re
import time
from contextvars import ContextVar

# Set by our outermost middleware and kept until the thread's next request: records that Django writes after the
# response still belong to the request.
request_id: ContextVar[str] = ContextVar("request_id", default="-")

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
"""A request id accepted from a proxy; any other value is replaced."""

INTERVAL_SECONDS = 60.0
# SQLSTATE classes of a server that is stopping, starting or has closed the connection, not of a failed statement.
_DATABASE_DOWN_SQLSTATES = ("08", "57P")


_SECRET = re.compile(
    r"((?:/(?:tickets|vip|pay)/|[?&](?:key|link|token|confirmation)=|\bBearer |client_secret\W{1,4}))[^\s/?&\"'<>]+"
)
"""Parts of URLs, headers and payloads that grant access: ticket codes, VIP links, order keys, door links, tokens."""
_EMAIL = re.compile(r"[\w.+%-]{1,64}@(?=[\w-]+\.)")


def mask_secrets(text: str) -> str:
    """Return the text without secrets in URLs, and without the names in email addresses."""
    return _EMAIL.sub("…@", _SECRET.sub(r"\1…", text))


class MaskingFormatter(logging.Formatter):
    """Masks secrets in messages and in tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        return mask_secrets(super().format(record))


class RequestIdFilter(logging.Filter):
    """Sets `request_id` on every record; a dash outside requests."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = request_id.get()
        return True


class _ThrottlingFilter(logging.Filter):
    """Passes one record of a kind per `INTERVAL_SECONDS`; the next one has the number of omitted records."""

    def __init__(self) -> None:
        super().__init__()
        self._due_at: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def pass_first(self, kind: str, record: logging.LogRecord, text: str) -> bool:
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
    """Logs an unavailable server once a minute per logger, without a traceback. Other errors pass unchanged."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = find_connection_error(record.exc_info[1]) if record.exc_info else None
        if error is None:
            return True
        return self.pass_first(record.name, record, f"a server is unavailable: {summarize_error(error)}")


class WarningFilter(_ThrottlingFilter):
    """Logs the same warning once a minute per logger, whatever its arguments; errors pass unchanged."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        return self.pass_first(f"{record.name} {record.msg}", record, record.getMessage())


class SuspiciousRequestFilter(_ThrottlingFilter):
    """Logs requests that Django refused as suspicious (a wrong Host, thousands of form fields) once a minute per kind.

    Any client can cause them at any rate, and their tracebacks have no value.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith("django.security."):
            return True
        return self.pass_first(record.name, record, record.getMessage()[:200])


def find_connection_error(error: BaseException | None) -> BaseException | None:
    """Return the error in this chain that means PostgreSQL, Redis or the broker is unavailable, or None."""
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
    """Return the error's message, or else its type, in one line."""
    return (str(error).strip() or type(error).__name__).partition("\n")[0]
