"""Logging under stress: an outage or a flood of refusals logs one line a minute; our own errors are logged in full."""

import logging
import time
from collections.abc import Iterator

import psycopg
import pytest
import redis
from django.conf import settings
from django.db import OperationalError
from django.test import Client

from apps.kernel.observability import log_context


class RecordedLines(logging.Handler):
    """Records the lines that the console would have printed: formatted, and after the filters."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def recorded() -> Iterator[RecordedLines]:
    """Yield the lines that reach the console through filters of this test's own, unaffected by the minute of earlier
    tests."""
    handler = RecordedLines()
    for one in (log_context.RequestIdFilter(), log_context.SuspiciousRequestFilter()):
        handler.addFilter(one)
    handler.setFormatter(logging.Formatter(settings.LOGGING["formatters"]["plain"]["format"]))
    root = logging.getLogger()
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)


def logger_with(one: logging.Filter) -> logging.Logger:
    logger = logging.getLogger(f"of one test {id(one)}")
    logger.addFilter(one)
    return logger


def fail(logger: logging.Logger, error: Exception) -> None:
    try:
        try:
            raise error
        except Exception as cause:
            raise RuntimeError("the task was not sent") from cause
    except RuntimeError:
        logger.exception("Message Error")


class Sqlstate(psycopg.OperationalError):
    sqlstate = "57P01"


class Deadlock(psycopg.OperationalError):
    sqlstate = "40P01"


@pytest.mark.parametrize(
    "error",
    [
        redis.ConnectionError("refused"),
        ConnectionRefusedError("refused"),
        psycopg.OperationalError("refused"),
        Sqlstate(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_unavailable_server_is_one_line_a_minute_without_a_traceback(
    recorded: RecordedLines, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    logger = logger_with(log_context.OutageFilter())
    for _ in range(5):
        fail(logger, error)
    assert len(recorded.lines) == 1
    assert "a server is unavailable" in recorded.lines[0]
    assert "\n" not in recorded.lines[0]
    now[0] += log_context.INTERVAL_SECONDS
    fail(logger, error)
    assert "(4 more since the last such line)" in recorded.lines[1]


@pytest.mark.parametrize("error", [ValueError("ours"), Deadlock("ours"), OperationalError("ours")])
def test_every_other_error_is_logged_in_full_every_time(recorded: RecordedLines, error: Exception) -> None:
    logger = logger_with(log_context.OutageFilter())
    for _ in range(3):
        fail(logger, error)
    assert len(recorded.lines) == 3
    assert all("Traceback" in line and "Message Error" in line for line in recorded.lines)


def test_a_warning_is_one_line_a_minute_and_does_not_affect_errors(recorded: RecordedLines) -> None:
    logger = logger_with(log_context.WarningFilter())
    for number in range(3):
        logger.warning("the broker is away (%s)", number)
        logger.error("a payment failed")
    assert [line.split("] ")[1] for line in recorded.lines] == [
        "the broker is away (0)",
        *["a payment failed"] * 3,
    ]


def test_refusals_log_nothing_and_foreign_hosts_one_short_line(recorded: RecordedLines, client: Client) -> None:
    for _ in range(3):
        assert client.get("/nowhere").status_code == 404
        assert client.get("/nowhere", headers={"host": "evil.example"}).status_code == 400
    assert len(recorded.lines) == 1
    assert "DisallowedHost" in recorded.lines[0]
    assert "\n" not in recorded.lines[0]


def test_an_unhandled_error_is_logged_with_its_traceback_and_the_request_id(
    recorded: RecordedLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*args: object, **more: object) -> None:
        raise ValueError("ours")

    monkeypatch.setattr("ticketing.operations.api_reference._reference", fault)
    given = "request-of-this-test"
    response = Client(raise_request_exception=False).get("/api/docs", headers={"x-request-id": given})
    assert response.status_code == 500
    (line,) = [line for line in recorded.lines if "django.request" in line]
    assert given in line
    assert "ValueError: ours" in line


@pytest.mark.parametrize("name", ["celery.beat", "django_celery_beat.schedulers", "apps.kernel.maintenance"])
def test_processes_that_retry_every_second_during_an_outage_use_the_outage_filter(name: str) -> None:
    assert any(isinstance(one, log_context.OutageFilter) for one in logging.getLogger(name).filters)
