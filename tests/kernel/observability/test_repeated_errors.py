"""A repeated failure is logged when it begins, once a minute while it lasts, and on recovery."""

import logging
import time

import psycopg
import pytest
from django.db import OperationalError

from apps.kernel.observability.repeated_errors import RepeatedErrors

WHAT = "the tick of event 7 fails"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


@pytest.fixture
def failures(caplog: pytest.LogCaptureFixture) -> RepeatedErrors:
    caplog.set_level(logging.INFO)
    return RepeatedErrors(logging.getLogger("of.a.loop"))


def lock_timeout() -> OperationalError:
    """Return a lock timeout as Django wraps it."""
    error = OperationalError("canceling statement due to lock timeout\nCONTEXT: while locking")
    error.__cause__ = psycopg.errors.LockNotAvailable()
    return error


def test_a_failure_four_times_a_second_is_one_line_a_minute_and_one_on_recovery(
    clock: Clock, failures: RepeatedErrors, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(4 * 90):
        failures.record_failure(WHAT, lock_timeout())
        clock.now += 0.25
    failures.over(WHAT)
    failures.over(WHAT)
    assert caplog.messages == [
        f"{WHAT}: canceling statement due to lock timeout",
        f"{WHAT}: canceling statement due to lock timeout (239 more since the last such line)",
        f"{WHAT}: recovered after 360 failures in 90 s",
    ]
    assert not any(record.exc_info for record in caplog.records)
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_an_error_of_another_kind_and_another_failure_are_logged_at_once(
    clock: Clock, failures: RepeatedErrors, caplog: pytest.LogCaptureFixture
) -> None:
    for error in (lock_timeout(), ValueError("ours"), ValueError("ours"), lock_timeout()):
        failures.record_failure(WHAT, error)
    failures.record_failure("another", ValueError("ours"))
    assert [message.partition(":")[0] for message in caplog.messages] == [WHAT, WHAT, "another"]
    assert [bool(record.exc_info) for record in caplog.records] == [False, True, True]
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.ERROR, logging.ERROR]


def test_a_failure_that_returns_after_more_than_a_minute_is_a_new_one(
    clock: Clock, failures: RepeatedErrors, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        failures.record_failure(WHAT, lock_timeout())
        clock.now += 61
    failures.over(WHAT)
    assert caplog.messages[-1] == f"{WHAT}: recovered after 1 failures in 61 s"
