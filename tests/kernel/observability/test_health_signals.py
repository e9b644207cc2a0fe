"""Health signals: measured by any thread, reported in the background, read as the worst value of the live processes."""

import math
import os
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from apps.kernel.db import transactions
from apps.kernel.models import Signal
from apps.kernel.observability import health_signals
from apps.kernel.observability.health_signals import HealthSignal, Reading, Reporter, Statistic, mean, percentile_95
from tests.kernel.group_commit.test_batcher_failures import elsewhere
from tests.support.batches import run_sql, sessions_of, wait_until
from tests.support.races import ConcurrentCall, storm, values
from tests.support.servers import temporary_server_folder
from ticketing.devserver import postgres
from ticketing.devserver.data_folder import ServerFolder

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def reporter() -> Iterator[Reporter]:
    health_signals.end()  # Begun by a test that imported a server's module; it has a thread and a session as well.
    reporter = Reporter(interval_seconds=0.01)
    yield reporter
    reporter.close()


def declare_signal(
    name: str, statistic: Statistic, *, reporter: Reporter, window_seconds: float = 3_600
) -> HealthSignal:
    """Declare a signal with a long window, so that on a slow machine a measurement is not too old when it is
    reported."""
    return HealthSignal(name, statistic, window_seconds=window_seconds, reporter=reporter)


def rows() -> list[tuple[str, float, int]]:
    return list(Signal.objects.order_by("name", "process").values_list("name", "value", "count"))


def row(name: str, value: float, *, process: str = "host:1", count: int = 10, age_seconds: float = 0) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO kernel_signal (name, process, value, count, at)"
            " VALUES (%s, %s, %s, %s, clock_timestamp() - make_interval(secs => %s))",
            [name, process, value, count, age_seconds],
        )


# --- statistics and windows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("measured", "expected"),
    [([3.0], 3.0), ([1.0, 2.0], 2.0), ([float(n) for n in range(1, 101)], 95.0), ([0.0] * 19 + [9.0], 0.0)],
)
def test_the_95th_percentile_is_one_of_the_values(measured: list[float], expected: float) -> None:
    assert percentile_95(measured[::-1]) == expected


def test_a_report_contains_the_statistic_of_the_window_and_the_number_of_measurements(reporter: Reporter) -> None:
    slow, faults = (
        declare_signal("slow", percentile_95, reporter=reporter),
        declare_signal("faults", mean, reporter=reporter),
    )
    declare_signal("silent", mean, reporter=reporter)
    for value in (0.1, 0.3, 0.2):
        slow.observe(value)
    for value in (0, 1, 0, 0):
        faults.observe(value)
    assert reporter.report() == 2
    assert rows() == [("faults", 0.25, 4), ("slow", 0.3, 3)]


def test_the_measurements_of_one_source_count_as_their_median(reporter: Reporter) -> None:
    slow = declare_signal("slow", mean, reporter=reporter)
    for value in (1, 3, 500, math.inf):
        slow.observe(value, "one")
    for value in (1, 2):
        slow.observe(value)
    assert reporter.report() == 1
    assert rows() == [("slow", 2.0, 3)]


def test_each_subject_has_a_statistic_and_the_most_measured_ones_are_reported(
    reporter: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_signals, "SUBJECTS_MAX", 2)
    slow = declare_signal("slow", mean, reporter=reporter)
    for subject, found in (("7", (1, 3)), ("8", (9,)), ("9", (4, 5))):
        for value in found:
            slow.observe(value, subject=subject)
    assert reporter.report() == 2
    assert rows() == [("slow 7", 2.0, 2), ("slow 9", 4.5, 2)]


def test_integers_and_fractions_are_reported_together(reporter: Reporter) -> None:
    whole = declare_signal("holds", percentile_95, reporter=reporter)
    broken = declare_signal("faults", mean, reporter=reporter)
    for value in (3, 3):
        whole.observe(value)
        broken.observe(value)
    assert reporter.report() == 2
    assert rows() == [("faults", 3.0, 2), ("holds", 3.0, 2)]


def test_without_new_measurements_nothing_is_written(reporter: Reporter) -> None:
    signal = declare_signal("slow", mean, reporter=reporter)
    signal.observe(1)
    assert reporter.report() == 1
    before = Signal.objects.get().at
    assert reporter.report() == 0
    assert Signal.objects.get().at == before
    signal.observe(3)
    assert reporter.report() == 1
    (after,) = Signal.objects.all()
    assert (after.value, after.count) == (2.0, 2)
    assert after.at > before


def test_measurements_older_than_the_window_do_not_count(reporter: Reporter, monkeypatch: pytest.MonkeyPatch) -> None:
    signal, monotonic = declare_signal("slow", mean, window_seconds=10, reporter=reporter), time.monotonic
    signal.observe(100)
    monkeypatch.setattr(health_signals.time, "monotonic", lambda: monotonic() + 11)
    signal.observe(2)
    assert signal.take() == [("slow", 2, 1)]


def test_a_window_is_bounded_and_keeps_the_latest(reporter: Reporter) -> None:
    signal = declare_signal("slow", mean, reporter=reporter)
    for value in [1.0] * 10 + [5.0] * health_signals.WINDOW_MAX:
        signal.observe(value)
    assert signal.take() == [("slow", 5.0, health_signals.WINDOW_MAX)]


def test_values_that_are_not_finite_are_ignored(reporter: Reporter) -> None:
    signal = declare_signal("slow", mean, reporter=reporter)
    for value in (float("nan"), float("inf"), 4.0):
        signal.observe(value)
    assert signal.take() == [("slow", 4.0, 1)]


@pytest.mark.parametrize("name", ["", "x" * (health_signals.NAME_MAX + 1)])
def test_a_name_too_long_for_its_column_is_refused_when_declared(reporter: Reporter, name: str) -> None:
    with pytest.raises(ValueError, match="characters"):
        declare_signal(name, mean, reporter=reporter)


def test_a_signal_can_be_declared_only_once(reporter: Reporter) -> None:
    declare_signal("slow", mean, reporter=reporter)
    with pytest.raises(ValueError, match="twice"):
        declare_signal("slow", mean, reporter=reporter)


# --- threads, forks, outages ----------------------------------------------------------------------------------------


def test_a_process_that_has_not_begun_reports_nothing_and_starts_no_thread(reporter: Reporter) -> None:
    threads = set(threading.enumerate())
    declare_signal("slow", mean, reporter=reporter).observe(1)
    assert set(threading.enumerate()) == threads
    assert rows() == []


def test_measurements_from_before_the_process_began_are_reported_too(reporter: Reporter) -> None:
    declare_signal("slow", mean, reporter=reporter).observe(1)
    reporter.begin()
    wait_until(lambda: rows() == [("slow", 1.0, 1)], "the report")


def test_no_measurement_of_many_threads_is_lost_while_reports_are_written(reporter: Reporter) -> None:
    signal = declare_signal("slow", mean, reporter=reporter)
    reporter.begin()

    def observe(number: int) -> None:
        for value in range(200):
            signal.observe(value + number)

    values(storm(8, observe))
    wait_until(lambda: rows()[:1] == [("slow", 103.0, 1_600)], "the last report contains all of them")
    assert [thread.name for thread in threading.enumerate()].count("health-signals") == 1
    reporter.close()
    assert [thread.name for thread in threading.enumerate()].count("health-signals") == 0
    wait_until(lambda: sessions_of("health signals") == [], "its session is gone")


def test_observing_after_close_does_no_harm(reporter: Reporter) -> None:
    signal = declare_signal("slow", mean, reporter=reporter)
    reporter.begin()
    reporter.close()
    signal.observe(1)
    assert "health-signals" not in [thread.name for thread in threading.enumerate()]
    reporter.begin()
    wait_until(lambda: rows() == [("slow", 1.0, 1)], "a reporter that begins again reports")


def test_a_measurement_during_close_leaves_no_thread(reporter: Reporter, monkeypatch: pytest.MonkeyPatch) -> None:
    signal = declare_signal("slow", mean, reporter=reporter)
    reporter.begin()
    start = reporter._start_thread

    def close_first() -> None:  # note() has seen that the reporter reports; then it is closed.
        reporter.close()
        start()

    monkeypatch.setattr(reporter, "_start_thread", close_first)
    signal.observe(1)
    assert "health-signals" not in [thread.name for thread in threading.enumerate()]


def test_a_thread_that_cannot_start_fails_no_request(
    reporter: Reporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread at interpreter shutdown")

    signal = declare_signal("slow", mean, reporter=reporter)
    reporter.begin()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    signal.observe(1)
    assert "not reported" in caplog.text


def test_a_forked_child_reports_its_own_measurements_as_another_process(reporter: Reporter) -> None:
    """The parent has measured and reported, and its lock is held; the child starts afresh, with a thread, a session and
    rows of its own, and without the parent's measurements."""
    signal = declare_signal("slow", mean, reporter=reporter)
    reporter.begin()
    signal.observe(10)
    wait_until(lambda: rows() == [("slow", 10.0, 1)], "the parent's report")
    (parents_session,) = sessions_of("health signals")
    reading, writing = os.pipe()
    with signal._lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # This test is about forking with threads.
        child = os.fork()
        if child == 0:
            outcome = b"failed"
            try:
                signal.observe(2)
                count = "SELECT count(*) FROM kernel_signal WHERE value = 2 AND count = 1"
                wait_until(lambda: run_sql(count) == [(1,)], "the child's report")
                reporter.close()
                outcome = b"reported"
            except BaseException:
                outcome = traceback.format_exc().encode()[-4_000:]
            finally:
                os.write(writing, outcome)
                os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as response:
        assert response.read() == b"reported"
    os.waitpid(child, 0)
    assert {process.rpartition(":")[2] for process in Signal.objects.values_list("process", flat=True)} == {
        str(os.getpid()),
        str(child),
    }
    signal.observe(30)
    wait_until(lambda: ("slow", 20.0, 2) in rows(), "the parent continues")
    assert sessions_of("health signals") == [parents_session]


@pytest.fixture
def folder() -> Iterator[ServerFolder]:
    folder, end = temporary_server_folder()
    yield folder
    end()


@pytest.mark.slow
def test_during_a_database_outage_reports_are_dropped_with_one_log_line_and_resume_afterwards(
    folder: ServerFolder, caplog: pytest.LogCaptureFixture
) -> None:
    def start(port: int | None = None) -> postgres.Postgres:
        passwords = {"password": "Secret1", "superuser_password": "Secret2"}
        return postgres.start(folder, **passwords, settings=postgres.DISPOSABLE, preferred_port=port)

    def report() -> int:
        signal.observe(1)
        return reporter.report()

    cluster = start()
    database = {"PORT": cluster.port, "USER": postgres.OWNER, "PASSWORD": cluster.password, "NAME": postgres.OWNER}
    reporter = Reporter(connect_ms=500)
    signal = declare_signal("slow", mean, reporter=reporter)
    try:
        with elsewhere(HOST="127.0.0.1", **database):
            run_sql(
                "CREATE TABLE kernel_signal (name text, process text, value float8, count integer, at timestamptz,"
                " UNIQUE (name, process))"
            )
            assert report() == 1
            start(cluster.port)  # Restart between two reports: the next report reconnects.
            assert report() == 1
            cluster.stop()
            assert [report(), report(), report()] == [0, 0, 0]
            assert caplog.text.count("dropped until the database answers") == 1
            start(cluster.port)
            wait_until(lambda: report() == 1, "it reports again")
            assert run_sql("SELECT name FROM kernel_signal") == [("slow",)]
            assert caplog.text.count("reported again") == 1
    finally:
        reporter.close()


def test_a_report_that_fails_for_another_reason_raises_nothing(
    reporter: Reporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(news: Any) -> None:
        raise ValueError("unexpected")

    declare_signal("slow", mean, reporter=reporter).observe(1)
    monkeypatch.setattr(reporter, "_write", fail)
    assert reporter.report() == 0
    assert "health signals were not reported" in caplog.text


# --- reading --------------------------------------------------------------------------------------------------------


def test_the_reader_returns_the_worst_of_the_live_processes_with_enough_measurements() -> None:
    row("slow", 0.2, process="a:1")
    row("slow", 0.7, process="a:2", count=5)
    row("slow", 9.0, process="too few", count=4)
    row("slow", 8.0, process="gone", age_seconds=60)
    row("old", 8.0, age_seconds=60)
    assert health_signals.latest(max_age_seconds=5, count_min=5) == {"slow": Reading(0.7, 5, "a:2")}


def test_rows_of_ended_processes_are_deleted() -> None:
    row("slow", 1.0, process="gone", age_seconds=health_signals.KEPT_SECONDS + 60)
    row("slow", 2.0, process="silent", age_seconds=60)
    assert health_signals.forget_old() == 1
    assert rows() == [("slow", 2.0, 10)]


def test_long_lock_waits_are_counted() -> None:
    row("slow", 1.0)

    def wait() -> None:
        with transactions.write(), connection.cursor() as cursor:
            cursor.execute("UPDATE kernel_signal SET value = 2")

    with transactions.write():
        with connection.cursor() as cursor:
            cursor.execute("UPDATE kernel_signal SET value = 3")
        beside = ConcurrentCall(wait).wait_until_blocked()
        wait_until(lambda: health_signals.count_lock_waits(longer_than_ms=1) == 1, "its wait is seen")
        assert health_signals.count_lock_waits(longer_than_ms=3_600_000) == 0
    beside.result()
    assert health_signals.count_lock_waits(longer_than_ms=0) == 0
