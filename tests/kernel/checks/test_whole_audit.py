"""The audit of everything runs again and again, one pass at a time, and rests after each batch."""

import threading
from datetime import timedelta

import pytest

from apps.kernel import clock
from apps.kernel.checks import auditor, whole_audit
from apps.kernel.models import AuditRun
from tests.support.factories import hold, make_event

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_pass_runs_when_the_last_one_ended_long_ago() -> None:
    hold(make_event(), seats=["hall-A-1"])
    first = whole_audit.run_if_due(0.0, threading.Event())
    assert first is not None
    assert first.is_clean
    assert first.scope == AuditRun.Scope.EVERYTHING
    assert whole_audit.run_if_due(0.0, threading.Event()) is None
    AuditRun.objects.update(started_at=clock.now() - timedelta(seconds=whole_audit.PAUSE_SECONDS + 60))
    assert whole_audit.run_if_due(0.0, threading.Event()) is not None


def test_an_audit_of_changes_does_not_postpone_a_pass() -> None:
    auditor.run_on_changes_and_record()
    assert whole_audit.run_if_due(0.0, threading.Event()) is not None


def test_a_pass_rests_after_each_batch_and_ends_at_once_when_the_process_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rest would take days; the stop ends it, and nothing is stored."""
    hold(make_event(), seats=["hall-A-1"])
    stopping = threading.Event()
    threading.Timer(0.2, stopping.set).start()
    assert whole_audit.run_if_due(1e9, stopping) is None
    assert not AuditRun.objects.exists()


def test_the_status_is_not_green_when_nothing_has_checked_everything_for_a_day() -> None:
    auditor.run_and_record()
    auditor.run_on_changes_and_record()
    assert auditor.get_status().color == "green"
    whole = AuditRun.objects.filter(scope=AuditRun.Scope.EVERYTHING)
    whole.update(started_at=clock.now() - timedelta(seconds=auditor.WHOLE_LATE_SECONDS + 60))
    assert auditor.get_status().color == "amber"


def test_a_breach_of_a_pass_stays_shown_beside_clean_audits_of_changes() -> None:
    run = auditor.run_and_record()
    AuditRun.objects.filter(pk=run.pk).update(breach_count=1)
    auditor.run_on_changes_and_record()
    status = auditor.get_status()
    assert (status.color, status.latest) == ("red", run)
