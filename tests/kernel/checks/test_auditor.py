"""The auditor: checks register themselves and run in order, and the results are stored."""

import json
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.test import Client

from apps.kernel.checks import auditor
from apps.kernel.models import AuditRun
from tests.support.factories import make_event

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _own_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditor, "_checks", [])


def breaches(*found: str) -> Iterator[str]:
    yield from found


def test_checks_run_once_each_in_the_order_of_their_invariants() -> None:
    for invariant in ("I10", "I2", "I1", "I2"):
        auditor.register(invariant, f"promise of {invariant}", lambda survey: breaches("one"))
    assert [finding.invariant for finding in auditor.run()] == ["I1", "I2", "I10"]


def test_registering_a_check_again_replaces_it() -> None:
    auditor.register("I1", "promise", lambda survey: breaches("old"))
    auditor.register("I1", "promise", lambda survey: breaches("new"))
    assert [finding.breaches for finding in auditor.run()] == [("new",)]


def test_a_stored_run_counts_all_breaches_and_shows_the_first() -> None:
    auditor.register("I1", "promise", lambda survey: breaches(*(f"breach {number}" for number in range(60))))
    auditor.run_and_record()
    stored = AuditRun.objects.get()
    assert stored.breach_count == 60
    (check,) = stored.report
    assert check["breach_count"] == 60
    assert check["breaches"] == [f"breach {number}" for number in range(auditor.SHOWN_BREACHES_MAX)]


def test_runs_beyond_the_kept_ones_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditor, "KEPT_RUNS", 2)
    runs = [auditor.run_and_record() for _ in range(4)]
    assert set(AuditRun.objects.values_list("pk", flat=True)) == {runs[2].pk, runs[3].pk}


def test_the_command_reports_clean_and_succeeds() -> None:
    auditor.register("I1", "everything adds up", lambda survey: breaches())
    out = StringIO()
    call_command("audit", stdout=out)
    assert "I1   clean        everything adds up" in out.getvalue()
    assert "audit: clean (1 checks" in out.getvalue()


def test_the_command_names_a_breach_and_exits_with_1() -> None:
    auditor.register("I2", "one owner", lambda survey: breaches("concert: seat 7 is on 2 live lines"))
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("audit", stdout=out)
    assert ended.value.code == 1
    assert "BREACH x1" in out.getvalue()
    assert "concert: seat 7 is on 2 live lines" in out.getvalue()


def test_the_command_prints_json() -> None:
    auditor.register("I1", "everything adds up", lambda survey: breaches())
    out = StringIO()
    call_command("audit", "--json", stdout=out)
    report = json.loads(out.getvalue())
    assert report["clean"] is True
    assert [check["invariant"] for check in report["checks"]] == ["I1"]


def out_of_time(survey: auditor.AuditContext) -> Iterator[str]:
    with auditor.read_cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = '1ms'")
        cursor.execute("SELECT pg_sleep(10)")
    yield from ()


@pytest.mark.django_db(transaction=True)
def test_a_check_without_a_result_is_neither_clean_nor_a_breach_and_does_not_affect_the_others() -> None:
    auditor.register("I1", "slow", out_of_time)
    auditor.register("I2", "one owner", lambda survey: breaches())
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("audit", stdout=out)
    assert ended.value.code == 1
    assert "I1   NOT CHECKED  slow" in out.getvalue()
    assert "I2   clean        one owner" in out.getvalue()
    assert "1 check without a result" in out.getvalue()
    stored = AuditRun.objects.get()
    assert (stored.breach_count, stored.unchecked_count, stored.is_clean) == (0, 1, False)
    assert auditor.get_status().color == "amber"


def test_checks_share_cached_reads_within_one_audit_only() -> None:
    read: list[str] = []

    def walk(survey: auditor.AuditContext) -> int:
        read.append(survey.only)
        return len(read)

    for promise in ("one", "other"):
        auditor.register("I1", promise, lambda survey: breaches(f"walk {survey.once(walk)}"))
    assert [finding.breaches for finding in auditor.run("concert")] == [("walk 1",), ("walk 1",)]
    assert [finding.breaches for finding in auditor.run()] == [("walk 2",), ("walk 2",)]
    assert read == ["concert", ""]


def test_an_audit_of_one_event_is_printed_and_not_stored() -> None:
    make_event()
    auditor.register("I1", "adds up", lambda survey: breaches(f"{survey.only}: 1 too many"))
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("audit", "concert", "--json", stdout=out)
    report = json.loads(out.getvalue())
    assert (report["event"], report["clean"], report["checks"][0]["breaches"]) == (
        "concert",
        False,
        ["concert: 1 too many"],
    )
    assert not AuditRun.objects.exists(), "the admin index shows only audits of all events"


@pytest.mark.parametrize("slug", ["nowhere", "a\x00b", "x" * 300])
def test_an_unknown_event_is_refused_with_one_line(slug: str) -> None:
    with pytest.raises(CommandError, match="no published event"):
        call_command("audit", slug)


def test_a_stopped_auditor_is_not_shown_as_green(client: Client) -> None:
    """A clean result is green; the same result three minutes later is amber, since it is out of date; a breach is
    red."""
    client.force_login(get_user_model().objects.create_superuser("chief"))
    auditor.register("I1", "everything adds up", lambda survey: breaches())
    assert auditor.get_status().color == "amber"
    stored = auditor.run_and_record()
    assert auditor.get_status().color == "green"
    page = client.get("/admin/").content.decode()
    assert '<p class="home-audit">' in page
    assert "The latest audit is clean" in page
    stored.started_at -= timedelta(seconds=auditor.LATE_SECONDS + 1)
    stored.save()
    assert auditor.get_status().color == "amber"
    page = client.get("/admin/").content.decode()
    assert '<li class="warning">No audit for 3\xa0minutes: the auditor seems to have stopped.' in page
    assert "home-audit" not in page
    stored.breach_count = 2
    stored.save()
    assert auditor.get_status().color == "red"
    page = client.get("/admin/").content.decode()
    assert '<li class="error">No audit for' in page
    assert "2 breaches" in page
