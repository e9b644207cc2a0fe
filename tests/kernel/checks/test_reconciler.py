"""The reconciler: checks register themselves, all of them report before any repair, and the outcome is stored."""

from collections.abc import Iterator

import pytest
from django.db import DataError
from django.test import Client

from apps.accounts.models import User
from apps.kernel.checks import reconciler
from apps.kernel.checks.reconciler import (
    GONE,
    NEEDS_MANUAL_REPAIR,
    REPAIRED,
    REPORTED,
    Difference,
    ManualRepairRequired,
)
from apps.kernel.models import ReconcileRun
from tests.support.api_client import scraper

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _own_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "_checks", {})


def finds(*kinds: str) -> reconciler.Find:
    return lambda part: (Difference(kind, f"{kind} differs") for kind in kinds)


def states(findings: list[reconciler.Finding]) -> list[str]:
    return [outcome.state for finding in findings for outcome in finding.outcomes]


def test_every_check_reports_before_any_repairs() -> None:
    calls: list[str] = []

    def find(name: str) -> reconciler.Find:
        def read(part: int | None) -> Iterator[Difference]:
            calls.append(f"find {name} in {part}")
            yield Difference(name, name)

        return read

    def repair(difference: Difference, by: str) -> str:
        calls.append(f"repair {difference.kind} for {by}")
        return REPAIRED

    for name in ("a", "b"):
        reconciler.register(name, "promise", find(name), repair)
    assert states(reconciler.run(7)) == [REPORTED, REPORTED]
    assert states(reconciler.run(7, repair_by="ada")) == [REPAIRED, REPAIRED]
    assert calls == ["find a in 7", "find b in 7"] * 2 + ["repair a for ada", "repair b for ada"]


def test_the_outcome_of_a_repair_is_reported() -> None:
    def repair(difference: Difference, by: str) -> str:
        match difference.kind:
            case "person":
                raise ManualRepairRequired("a buyer holds it")
            case "refused":
                raise DataError("the database refused")
        return GONE

    reconciler.register("x", "promise", finds("person", "refused", "gone"), repair)
    reconciler.register("y", "promise", finds("unrepairable"))
    reconciler.register("z", "promise", lambda part: [Difference("known", "z differs", None, "ask the venue")], repair)
    findings = reconciler.run(repair_by="ada")
    assert states(findings) == [NEEDS_MANUAL_REPAIR, REPORTED, GONE, NEEDS_MANUAL_REPAIR, NEEDS_MANUAL_REPAIR]
    lines = [outcome.line for finding in findings for outcome in finding.outcomes]
    assert lines[0] == "person differs; needs manual repair: a buyer holds it"
    assert lines[1] == "refused differs: not repaired: the database refused"
    assert lines[4] == "z differs; needs manual repair: ask the venue"


def test_a_check_that_fails_is_reported_and_the_others_still_run() -> None:
    def fail(part: int | None) -> Iterator[Difference]:
        yield Difference("a", "found before it failed")
        raise ConnectionError("Redis is away")

    reconciler.register("a", "promise", fail)
    reconciler.register("b", "promise", finds("b"))
    stored = reconciler.run_and_record()
    assert (stored.difference_count, stored.failure_count) == (2, 1)
    assert [check["failure"] for check in stored.report] == ["Redis is away", ""]


def test_runs_are_stored_and_the_oldest_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "KEPT_RUNS", 2)
    reconciler.register("a", "promise", finds(*["a"] * 60), lambda difference, by: REPAIRED)
    runs = [reconciler.run_and_record(repair_by="ada") for _ in range(3)]
    assert set(ReconcileRun.objects.values_list("pk", flat=True)) == {runs[1].pk, runs[2].pk}
    assert (runs[2].difference_count, runs[2].repaired_count, runs[2].left_count) == (60, 60, 0)
    assert len(runs[2].report[0]["differences"]) == reconciler.SHOWN_DIFFERENCES_MAX


def test_differences_are_counted_by_kind_and_a_kind_never_found_is_zero() -> None:
    reconciler.register("a", "promise", finds("seat", "seat", "count"), kinds=("seat", "count", "never"))
    for _ in range(2):
        assert reconciler.run_and_record().difference_count == 3
    reconciler.run_and_record(7)
    page = scraper().get("/metrics").content.decode()
    for line in (
        'fairgate_reconcile_differences_total{kind="seat"} 6.0',
        'fairgate_reconcile_differences_total{kind="count"} 3.0',
        'fairgate_reconcile_differences_total{kind="never"} 0.0',
        "fairgate_reconcile_left_count 3.0",
    ):
        assert line in page


def test_staff_see_what_was_found_and_what_was_done(client: Client) -> None:
    reconciler.register("a", "counts add up", finds("seat"))
    run = reconciler.run_and_record(repair_by="ada")
    client.force_login(User.objects.create_superuser("admin"))
    page = client.get(f"/admin/kernel/reconcilerun/{run.pk}/change/").content.decode()
    assert "counts add up: seat differs; needs manual repair" in page
    for outcome, count in (("none", 0), ("put_right", 0), ("left", 1)):
        assert f"{count} reconcile run" in client.get(f"/admin/kernel/reconcilerun/?outcome={outcome}").content.decode()
