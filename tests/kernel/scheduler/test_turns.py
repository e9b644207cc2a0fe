"""Organizers take turns: many runs of one of them, or slow ones, delay no other organizer's run."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection, transaction

from apps.kernel import clock
from apps.kernel.scheduler import executor, facade, picker, runs
from apps.kernel.scheduler.models import ScheduledTask, TaskRun
from tests.support.kernel import scheduled_tasks
from tests.support.kernel.scheduled_tasks import effects, pick_all, registered, schedule_now
from tests.support.races import in_another_connection

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def started() -> Iterator[list[int]]:
    """The organizers of the runs in the order of their starts."""
    organizers: list[int] = []

    def execute(run: facade.Run) -> str:
        organizers.append(run.scope.organizer_id or 0)
        return scheduled_tasks.write_effect(run)

    with registered(execute):
        yield organizers


def schedule_many(count: int, organizer_id: int | None) -> None:
    """Schedule so many tasks for this minute."""
    pattern = ScheduledTask.objects.get(pk=schedule_now(organizer_id))
    names = ("kind", "organizer_id", "once_at", "time_zone", "next_run_at", "created_at")
    fields = {name: getattr(pattern, name) for name in names}
    ScheduledTask.objects.bulk_create(ScheduledTask(**fields) for _ in range(count - 1))


@pytest.mark.parametrize(("flooding", "other"), [(1, 2), (None, 2), (2, None)])
def test_after_a_flood_of_one_organizer_the_runs_of_another_are_among_the_first(
    started: list[int], flooding: int | None, other: int | None
) -> None:
    """One for the same minute, and one that is due a minute later, when few of the others have started."""
    schedule_many(300, flooding)
    schedule_now(other)
    later = schedule_now(other)
    pick_all()
    TaskRun.objects.filter(task=later).update(due_at=clock.now() + timedelta(minutes=1))
    picker.give_turns()
    for _ in range(3):
        executor.execute_next()
    assert started.count(other or 0) == 1
    TaskRun.objects.filter(task=later).update(due_at=clock.now())
    picker.give_turns()
    for _ in range(3):
        executor.execute_next()
    assert started.count(other or 0) == 2
    assert executor.execute_due(float("inf")) == 296
    assert set(effects().values()) == {1}


def test_a_slow_run_delays_another_organizer_by_that_one_run(started: list[int]) -> None:
    """The other organizer's run becomes due while the only executor has a slow run."""

    def be_slow(run: facade.Run) -> str:
        scheduled_tasks.register(finish)
        in_another_connection(make_due)
        return finish(run)

    def make_due() -> None:
        schedule_now(2)
        pick_all()
        picker.give_turns()

    def finish(run: facade.Run) -> str:
        started.append(run.scope.organizer_id or 0)
        return ""

    scheduled_tasks.register(be_slow)
    schedule_many(20, 1)
    pick_all()
    picker.give_turns()
    executor.execute_due(float("inf"))
    assert started == [1, 2, *[1] * 19]


def test_each_organizer_has_one_run_in_a_turn(started: list[int]) -> None:
    for organizer_id in (3, 1, 2):
        schedule_many(4, organizer_id)
    pick_all()
    while picker.give_turns(5):
        pass
    executor.execute_due(float("inf"))
    assert [sorted(started[first : first + 3]) for first in range(0, 12, 3)] == [[1, 2, 3]] * 4


def test_a_run_that_waits_again_joins_the_present_turn(monkeypatch: pytest.MonkeyPatch, started: list[int]) -> None:
    """A run of a lost executor does not wait behind a flood. One that is retried, and one that staff run again, are
    given their turns in the same way."""
    monkeypatch.setattr(runs, "LOST_AFTER", timedelta())
    schedule_now(2)
    pick_all()
    picker.give_turns()
    lost = runs.start_next()
    assert lost is not None
    schedule_many(20, 1)
    pick_all()
    picker.give_turns()
    runs.recover_lost(10)
    picker.give_turns()
    for _ in range(2):
        executor.execute_next()
    assert sorted(started) == [1, 2]
    assert effects()[lost.run_id] == 1


def test_the_next_run_is_found_without_sorting_all_also_with_statistics_of_a_quiet_hour() -> None:
    """PostgreSQL then expects no run that waits, and takes any index that has them."""
    schedule_many(1_000, 1)
    pick_all()
    now = clock.now()
    TaskRun.objects.update(state="succeeded", attempts=1, started_at=now, finished_at=now)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE scheduler_taskrun")
    schedule_many(300, 1)
    pick_all()
    picker.give_turns()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN {runs._start.text}", {"executor": "test", "without": []})
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "task_run_turns" in plan
    assert "Sort" not in plan
