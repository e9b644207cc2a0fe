"""The checks of each minute: one process runs them, and their statements do not grow with an event's sections."""

from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.events import facade as events
from apps.kernel import tasks
from apps.kernel.checks import auditor, reconciler
from apps.kernel.db.leader_election import Leadership
from apps.kernel.models import AuditRun, ReconcileRun
from apps.reservations.models import GeneralAdmissionInventory
from tests.support.databases import database_url
from tests.support.factories import assert_audit_clean, make_event

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _own_locks(settings: Any) -> None:
    settings.DATABASE_DIRECT_URL = database_url()


def test_the_checks_of_a_minute_run_in_one_process_at_a_time() -> None:
    other = Leadership("checks", tasks.CHECKS_LOCK_KEY)
    try:
        assert other.holds()
        assert not tasks.check()
        assert (AuditRun.objects.count(), ReconcileRun.objects.count()) == (0, 0)
    finally:
        other.resign()
    for number in (1, 2):
        assert tasks.check()
        assert (AuditRun.objects.count(), ReconcileRun.objects.count()) == (number, number)


def test_a_reconciliation_follows_an_audit_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ConnectionError("the session was lost")

    monkeypatch.setattr(auditor, "catch_up", fail)
    with pytest.raises(ConnectionError):
        tasks.check()
    assert ReconcileRun.objects.count() == 1


def make_large_event(slug: str, sections: int) -> events.EventView:
    """Create an event with so many sections with a seat, and as many of general admission."""
    return make_event(
        slug,
        venue=slug,
        rows=1,
        seats_per_row=1,
        halls=tuple(f"Hall {number}" for number in range(sections)),
        further=tuple((f"Floor {number}", 10, 1_000) for number in range(sections)),
    )


def statement_counts(event: events.EventView) -> list[int]:
    """Return how many statements a reconciliation takes, an audit of everything, and one of changes."""
    counts = []
    for run in (
        partial(reconciler.run, event.id), partial(auditor.run, event.slug), partial(auditor.run, event.slug, since=0)
    ):  # fmt: skip
        with CaptureQueriesContext(connection) as seen:
            run()
        counts.append(len(seen))
    return counts


def test_the_checks_take_no_statement_for_each_section() -> None:
    assert statement_counts(make_large_event("few", 2)) == statement_counts(make_large_event("many", 20))
    assert_audit_clean()


def test_sections_are_checked_in_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditor, "LIST_MAX", 3)
    event = make_large_event("many", 10)
    GeneralAdmissionInventory.objects.filter(section__slug__in=["floor-2", "floor-9"]).update(taken=4)
    (reconciled,) = [finding for finding in reconciler.run(event.id) if finding.outcomes]
    assert [outcome.line[:12] for outcome in reconciled.outcomes] == ["many/floor-2", "many/floor-9"]
    (counted, *_) = [finding.breaches for finding in auditor.run() if finding.breaches]
    assert [line.partition(":")[2][:27] for line in counted] == [
        " general admission floor-2:",
        " general admission floor-9:",
    ]
