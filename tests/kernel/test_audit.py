"""The auditor's frame: checks register themselves, run in order, and their results are kept."""

import json
from collections.abc import Iterator
from io import StringIO

import pytest
from django.core.management import call_command

from ticketing.kernel import audit
from ticketing.kernel.models import AuditRun

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _own_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_checks", [])


def breaches(*found: str) -> Iterator[str]:
    yield from found


def test_checks_run_in_the_order_of_their_invariants_and_each_once() -> None:
    for invariant in ("I10", "I2", "I1", "I2"):
        audit.register(invariant, f"promise of {invariant}", lambda: breaches("one"))
    assert [finding.invariant for finding in audit.run()] == ["I1", "I2", "I10"]


def test_registering_a_promise_again_replaces_its_check() -> None:
    audit.register("I1", "promise", lambda: breaches("old"))
    audit.register("I1", "promise", lambda: breaches("new"))
    assert [finding.breaches for finding in audit.run()] == [("new",)]


def test_a_run_is_kept_with_its_breaches_counted_and_the_first_of_them_shown() -> None:
    audit.register("I1", "promise", lambda: breaches(*(f"breach {number}" for number in range(60))))
    audit.run_and_record()
    kept = AuditRun.objects.get()
    assert kept.breach_count == 60
    (check,) = kept.report
    assert check["breach_count"] == 60
    assert check["breaches"] == [f"breach {number}" for number in range(audit.SHOWN_BREACHES_MAX)]


def test_old_runs_beyond_the_kept_ones_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "KEPT_RUNS", 2)
    runs = [audit.run_and_record() for _ in range(4)]
    assert set(AuditRun.objects.values_list("pk", flat=True)) == {runs[2].pk, runs[3].pk}


def test_the_command_says_clean_and_succeeds() -> None:
    audit.register("I1", "everything adds up", breaches)
    out = StringIO()
    call_command("audit", stdout=out)
    assert "I1   clean        everything adds up" in out.getvalue()
    assert "audit: clean (1 checks" in out.getvalue()


def test_the_command_names_a_breach_and_exits_1() -> None:
    audit.register("I2", "one owner", lambda: breaches("concert: seat 7 is on 2 live lines"))
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("audit", stdout=out)
    assert ended.value.code == 1
    assert "BREACH x1" in out.getvalue()
    assert "concert: seat 7 is on 2 live lines" in out.getvalue()


def test_the_command_speaks_json() -> None:
    audit.register("I1", "everything adds up", breaches)
    out = StringIO()
    call_command("audit", "--json", stdout=out)
    report = json.loads(out.getvalue())
    assert report["clean"] is True
    assert [check["invariant"] for check in report["checks"]] == ["I1"]
