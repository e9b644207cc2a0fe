"""Counts of views: exactly once whatever fails, the same in any windows, and the same by a recount."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection

from apps.events.facade import EventView
from apps.events.interest import counts as view_counts
from apps.events.interest import recount, retention
from apps.events.interest.log import add_partitions
from apps.events.models import (
    ViewBatch,
    ViewCursor,
    ViewDay,
    ViewKey,
    ViewLog,
    ViewMinute,
    ViewReferrer,
    ViewShard,
)
from apps.kernel.checks import reconciler
from apps.kernel.db import sql, transactions
from tests.support import races
from tests.support.events.views import append, count_all, counts, log, noon, view

pytestmark = pytest.mark.django_db(transaction=True)


class Killed(BaseException):
    """The process ends."""


@contextmanager
def killed_at(number: int) -> Iterator[None]:
    """End the process before or after the statement of this number."""
    left = number

    def observe(name: str, when: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed

    with sql.observe(observe):
        yield


def test_a_process_killed_at_any_statement_counts_nothing_or_all(concert: EventView) -> None:
    for number in range(20):
        append([view(concert.id, person=number, address=16 * number, referrer="example.org")])
        with suppress(Killed), killed_at(number):
            view_counts.count_window(0)
        assert counts(concert.id).get("counted", 0) in (number, number + 1)
        count_all()
        assert counts(concert.id) == {"counted": number + 1}
        assert ViewDay.objects.get().counted == ViewReferrer.objects.get().counted == number + 1
    assert recount.recount(*hour()) == []


def hour() -> tuple[Any, Any]:
    *_, last = recount.whole_hours(0)
    return last[0] - timedelta(hours=1), last[1]


def test_without_the_offset_in_the_transaction_a_kill_counts_twice(concert: EventView) -> None:
    """The control: the counts commit, the process ends, and the cursor still points to before the window."""
    append([view(concert.id, person=number, address=16 * number) for number in range(3)])

    def count_without_offset(*, is_killed: bool) -> None:
        ViewCursor.objects.get_or_create(shard=0)
        position = ViewCursor.objects.get(shard=0).position
        with transactions.write():
            view_counts.add_counts(view_counts.judge(0, after=position, last=3))
        if not is_killed:
            ViewCursor.objects.filter(shard=0).update(position=3)

    count_without_offset(is_killed=True)
    count_without_offset(is_killed=False)
    assert counts(concert.id) == {"counted": 6}, "the control no longer shows the error"
    (found,) = recount.recount(*hour())
    assert (found.stored, found.logged) == ("counted 6", "counted 3")


def test_processes_that_count_at_once_count_each_view_once(concert: EventView) -> None:
    append([view(concert.id, person=number, address=number) for number in range(80)])
    races.values(races.storm(4, lambda _: [view_counts.count_window(shard) for shard in range(8)]))
    count_all()
    assert counts(concert.id) == {"counted": 80}


def test_a_locked_cursor_is_skipped(concert: EventView) -> None:
    append([view(concert.id)])
    ViewCursor.objects.create(shard=0)
    with races.rival_connection() as rival, rival.cursor() as cursor:
        cursor.execute("BEGIN; SELECT 1 FROM events_viewcursor WHERE shard = 0 FOR NO KEY UPDATE")
        assert view_counts.count_window(0) == 0
        cursor.execute("ROLLBACK")
    assert view_counts.count_window(0) == 1


def test_a_view_that_is_appended_during_a_window_is_in_the_next_one(concert: EventView) -> None:
    """The window's end is read, then a rival appends and commits, then the window is judged."""
    append([view(concert.id)])
    with races.rival_at("judge_views", "before", lambda: append([view(concert.id, person=2, address=16)])):
        assert view_counts.count_window(0) == 1
    assert view_counts.count_window(0) == 1
    assert counts(concert.id) == {"counted": 2}


def test_windows_of_any_size_give_the_same_counts(concert: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules compare across the ends of windows: repetitions, and the eleventh view of an address."""
    moments = [(number * 7.0, view(concert.id, person=number % 3, address=8 * (number % 2))) for number in range(120)]
    log(moments)
    found = []
    for size in (1, 7, 10_000):
        ViewCursor.objects.all().delete()
        ViewMinute.objects.all()._raw_delete(using="default")
        monkeypatch.setattr(view_counts, "WINDOW_VIEWS_MAX", size)
        count_all()
        found.append(counts(concert.id))
        assert recount.recount(noon(), noon() + timedelta(hours=1)) == []
    assert found[0] == found[1] == found[2]
    assert found[0].keys() == {"counted", "repeated"}


def test_a_window_is_due_after_ten_seconds_or_when_it_is_full(
    concert: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    append([view(concert.id)])
    assert view_counts.count_views() == 1
    append([view(concert.id, person=2), view(concert.id, person=3)])
    assert view_counts.count_views() == 0, "the last window ended less than ten seconds ago"
    monkeypatch.setattr(view_counts, "WINDOW_VIEWS_MAX", 2)
    assert view_counts.count_views() == 2
    append([view(concert.id, person=4)])
    monkeypatch.setattr(view_counts, "WINDOW_SECONDS", 0.0)
    assert view_counts.count_views() == 1


def test_a_window_reads_only_the_rows_up_to_its_end(concert: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an upper time, each window after an outage would read everything that has been logged since."""
    log([(60 * number, view(concert.id, person=number)) for number in range(12)])
    monkeypatch.setattr(view_counts, "WINDOW_VIEWS_MAX", 5)
    untils, judge = [], view_counts.judge
    monkeypatch.setattr(
        view_counts, "judge", lambda *args, **spans: untils.append(spans["until"]) or judge(*args, **spans)
    )
    count_all()
    ends = [int((until - noon()).total_seconds()) for until in untils]
    assert ends == [60 * 4, 60 * 9, 60 * 11]
    assert counts(concert.id) == {"counted": 12}


def test_a_shard_that_fails_does_not_keep_the_others_from_being_counted(
    concert: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    append([view(concert.id, person=number, address=number) for number in range(16)])
    judge = view_counts.judge

    def fail_in_the_first(shard: int, **spans: Any) -> Any:
        if shard == 0:
            raise OperationalError("canceled")
        return judge(shard, **spans)

    monkeypatch.setattr(view_counts, "judge", fail_in_the_first)
    with pytest.raises(OperationalError):
        view_counts.count_views()
    assert counts(concert.id) == {"counted": 14}
    monkeypatch.setattr(view_counts, "judge", judge)
    assert view_counts.count_views() == 2


def test_an_events_views_are_spread_over_the_shards_by_address(concert: EventView) -> None:
    append([view(concert.id, person=number, address=number) for number in range(40)])
    assert list(ViewShard.objects.order_by("shard").values_list("shard", "last_position")) == [
        (shard, 5) for shard in range(8)
    ]
    count_all()
    assert counts(concert.id) == {"counted": 40}


def test_a_recount_finds_and_repairs_what_differs_from_the_log(concert: EventView) -> None:
    append([view(concert.id, person=number, address=16 * number) for number in range(3)])
    count_all()
    assert not reconciler_lines()
    ViewMinute.objects.update(counted=5)
    ViewDay.objects.update(counted=5)
    assert len(reconciler_lines()) == 1
    with pytest.raises(CommandError):
        call_command("recount_views", days=0, stdout=StringIO())
    reconciler.run(repair_by="ann")
    assert counts(concert.id) == {"counted": 3}
    assert ViewDay.objects.get().counted == 3
    output = StringIO()
    call_command("recount_views", days=1, stdout=output)
    assert output.getvalue() == "0 differing minutes in 1 day\n"


def reconciler_lines() -> list[str]:
    findings = {finding.name: finding for finding in reconciler.run()}
    found = findings["views of events"]
    assert not found.failure
    return [outcome.line for outcome in found.outcomes]


def test_referrers_beyond_the_limit_are_counted_together(concert: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_counts, "HOSTS_MAX", 2)
    hosts = ["a.example", "a.example", "b.example", "c.example", "d.example", ""]
    append([view(concert.id, number, 16 * number, referrer=host) for number, host in enumerate(hosts)])
    count_all()
    found = dict(ViewReferrer.objects.values_list("host", "counted"))
    assert sum(found.values()) == 6
    assert found.keys() <= {"a.example", "b.example", "", ViewReferrer.OTHERS}
    assert found["a.example"] == 2


def test_housekeeping_drops_old_partitions_and_keys_and_keeps_the_others(concert: EventView) -> None:
    append([view(concert.id)])
    count_all()
    old = noon() - timedelta(days=40)
    with transactions.write_on_django() as cursor:
        add_partitions(cursor, [old.date()])
    one = view(concert.id)
    ViewLog.objects.create(shard=0, at=old, position=1, **one._asdict())
    ViewMinute.objects.create(
        event_id=concert.id, minute=old, counted=1, bots=0, staff=0, short=0, over_address_max=0, repeated=0
    )
    ViewKey.objects.create(day=old.date(), secret="x")
    ViewBatch.objects.create(id="00000000-0000-0000-0000-000000000000", at=old)
    assert retention.tidy() == 1
    assert retention.tidy() == 0
    assert ViewLog.objects.count() == ViewMinute.objects.count() == ViewBatch.objects.count() == 1
    assert not ViewKey.objects.filter(day=old.date()).exists()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_inherits WHERE inhparent = 'events_viewlog'::regclass")
        ((partitions,),) = cursor.fetchall()
    assert partitions >= 3


def test_views_of_a_deleted_event_fail_no_batch(concert: EventView) -> None:
    append([view(10**9), view(concert.id, person=2)])
    count_all()
    assert counts(concert.id) == {"counted": 1}
