"""The loop that needs only PostgreSQL runs each job when it is due, and a failing job affects no other."""

import logging
import threading

import pytest

from apps.kernel import maintenance


@pytest.fixture(autouse=True)
def _own_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "_jobs", {})


@pytest.mark.django_db(transaction=True)
def test_a_job_runs_when_due_and_not_before() -> None:
    ran: list[str] = []
    maintenance.register("often", 1, lambda: ran.append("often"))
    maintenance.register("seldom", 10, lambda: ran.append("seldom"))
    counts = [maintenance.run_due(moment) for moment in (100.0, 100.5, 101.0, 110.0)]
    assert counts == [2, 0, 1, 2]
    assert ran == ["often", "seldom", "often", "often", "seldom"]


@pytest.mark.django_db(transaction=True)
def test_a_failing_job_is_logged_stops_no_other_and_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    ran: list[str] = []

    def fail() -> None:
        ran.append("bad")
        raise RuntimeError("database restarted")

    maintenance.register("bad", 1, fail)
    maintenance.register("good", 1, lambda: ran.append("good"))
    with caplog.at_level(logging.ERROR):
        assert maintenance.run_due(100.0) == 2
        assert maintenance.run_due(101.0) == 2
    assert ran == ["bad", "good", "bad", "good"]
    assert "maintenance job bad failed" in caplog.text


def test_registering_a_name_again_replaces_its_job() -> None:
    maintenance.register("sweep", 1, lambda: None)
    maintenance.register("sweep", 5, lambda: None)
    assert maintenance.jobs() == ("sweep",)


@pytest.mark.django_db(transaction=True)
def test_the_loop_runs_until_it_is_stopped() -> None:
    stopping, ran = threading.Event(), threading.Event()
    maintenance.register("first", 0.01, lambda: (ran.set(), stopping.set()))
    maintenance.loop(stopping)
    assert ran.is_set()
