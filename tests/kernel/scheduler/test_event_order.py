"""Runs of an event take effect in the order of their minutes, also when they are overdue together."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.models import F

from apps.kernel import clock
from apps.kernel.scheduler import executor, facade, picker, runs
from apps.kernel.scheduler.models import ScheduledTask, TaskRun
from tests.support.kernel import scheduled_tasks
from tests.support.kernel.scheduled_tasks import killed_at, pick_all, registered, schedule_now
from tests.support.races import rival_at

pytestmark = pytest.mark.django_db(transaction=True)

EVENT = 1


@pytest.fixture(autouse=True)
def done(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the runs have done, in the order of their commits."""
    names: list[str] = []

    def execute(run: facade.Run) -> str:
        name = run.params["name"]
        if name.startswith("refused"):
            raise facade.TaskFailed("refused")
        if name.startswith("slow"):
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_sleep(5)")
        transaction.on_commit(lambda: names.append(name))
        return ""

    monkeypatch.setattr(runs, "LOST_AFTER", timedelta())
    with registered(execute):
        yield names


def schedule(name: str, *, ago: int, event_id: int | None = EVENT) -> int:
    """Schedule a task for the minute `ago` minutes before this one, so that it is overdue."""
    task_id = schedule_now(event_id=event_id, name=name)
    by = timedelta(minutes=ago)
    ScheduledTask.objects.filter(pk=task_id).update(once_at=F("once_at") - by, next_run_at=F("next_run_at") - by)
    return task_id


def wait_with_turns() -> None:
    pick_all()
    while picker.give_turns():
        pass


def close_and_open() -> int:
    """Let two runs of an event wait for an executor; return the task of the first one."""
    task_id = schedule("close", ago=2)
    schedule("open", ago=1)
    wait_with_turns()
    return task_id


def test_a_run_does_not_start_before_an_earlier_one_of_its_event_has_ended(done: list[str]) -> None:
    """A: starts "close"
    B: finds nothing to start. It could end "open" before A ends "close".
    A: ends "close"
    """
    close_and_open()
    with rival_at("lock_run", "before", executor.execute_next) as rival:
        assert executor.execute_next()
    assert not rival.result
    assert executor.execute_next()
    assert done == ["close", "open"]


def test_a_run_does_not_start_before_a_lost_one_of_an_earlier_minute_was_repeated(done: list[str]) -> None:
    close_and_open()
    with killed_at("lock_run", "before"):
        executor.execute_next()
    assert not executor.execute_next()
    assert runs.recover_lost(10) == 1
    assert not executor.execute_next(), "the lost one has no turn yet"
    picker.give_turns()
    while executor.execute_next():
        pass
    assert done == ["close", "open"]


def test_a_run_that_the_database_refused_precedes_later_ones_until_it_was_repeated(done: list[str]) -> None:
    scheduled_tasks.register(facade.get_kind(scheduled_tasks.KIND).handler, statement_ms=10)
    first = schedule("slow", ago=2)
    schedule("open", ago=1)
    wait_with_turns()
    assert executor.execute_next()
    run = TaskRun.objects.get(task=first)
    assert (run.state, run.turn, run.due_at > clock.now()) == ("picked", None, True)
    assert not executor.execute_next(), "it is not due, and its minute is earlier"
    ScheduledTask.objects.filter(pk=first).update(params={"name": "close"})
    TaskRun.objects.filter(pk=run.pk).update(due_at=clock.now())
    picker.give_turns()
    while executor.execute_next():
        pass
    assert done == ["close", "open"]


def test_a_run_does_not_start_before_an_overdue_task_of_its_event_was_picked(done: list[str]) -> None:
    """P: picks the earlier task
    Q: picks the later one, and COMMIT
    A: starts nothing
    P: COMMIT
    """
    schedule("close", ago=2)
    schedule("open", ago=1)

    def pick_and_execute() -> bool:
        assert picker.pick(1) == 1
        picker.give_turns()
        return executor.execute_next()

    with rival_at("pick_tasks", "after", pick_and_execute) as rival:
        assert picker.pick(1) == 1
    assert rival.result is False
    wait_with_turns()
    while executor.execute_next():
        pass
    assert done == ["close", "open"]


def test_a_run_that_failed_or_was_canceled_precedes_none(done: list[str]) -> None:
    schedule("refused", ago=4)
    canceled = schedule("canceled", ago=3)
    canceled_while_running = schedule("lost", ago=2)
    schedule("open", ago=1)
    wait_with_turns()
    facade.cancel_task(canceled)
    assert executor.execute_next()
    with killed_at("lock_run", "before"):
        executor.execute_next()
    facade.cancel_task(canceled_while_running)
    assert not executor.execute_next(), "it is under way, for all that is known"
    runs.recover_lost(10)
    assert executor.execute_next()
    assert done == ["open"]
    assert sorted(TaskRun.objects.values_list("state", flat=True)) == ["canceled", "canceled", "failed", "succeeded"]


def test_a_run_of_a_disabled_task_that_staff_run_again_precedes_later_ones_and_ends(done: list[str]) -> None:
    first = schedule("refused", ago=2)
    wait_with_turns()
    assert executor.execute_next()
    facade.cancel_task(first)
    ScheduledTask.objects.filter(pk=first).update(params={"name": "close"})
    schedule("open", ago=1)
    wait_with_turns()
    facade.run_again(TaskRun.objects.get(task=first).pk, who="bob")
    assert not executor.execute_next()
    picker.give_turns()
    while executor.execute_next():
        pass
    assert done == ["close", "open"]


def test_a_task_that_waits_for_a_later_minute_precedes_nothing(done: list[str]) -> None:
    schedule("picked", ago=-1)
    schedule("not picked", ago=-10)
    schedule("open", ago=0)
    wait_with_turns()
    assert TaskRun.objects.filter(state="picked", turn=None).count() == 1
    assert executor.execute_next()
    assert done == ["open"]


@pytest.mark.parametrize(
    ("event_id", "ago"), [(EVENT, 1), (EVENT + 1, 2), (None, 2)], ids=["same minute", "another event", "no event"]
)
def test_runs_of_one_minute_of_other_events_and_of_none_run_beside_each_other(
    done: list[str], event_id: int | None, ago: int
) -> None:
    for name in ("first", "second"):
        schedule(name, ago=ago, event_id=event_id)
        ago = 1
        wait_with_turns()
        event_id = None if event_id is None else EVENT
    with rival_at("lock_run", "before", executor.execute_next) as rival:
        assert executor.execute_next()
    assert rival.result
    assert done == ["second", "first"]


def test_an_event_that_has_to_wait_delays_no_other_and_wakes_no_executor(done: list[str]) -> None:
    close_and_open()
    for name in ("third", "fourth"):
        schedule(name, ago=0)
    schedule("other", ago=0, event_id=EVENT + 1)
    wait_with_turns()
    with killed_at("lock_run", "before"):
        executor.execute_next()
    assert waiting_count() == 1
    assert executor.execute_due(float("inf")) == 1
    assert done == ["other"]
    assert waiting_count() == 0


def waiting_count() -> int:
    with connection.cursor() as cursor:
        ((count, _),) = picker._waiting.rows(cursor, limit=picker.COUNTED_MAX)
    return int(count)


@pytest.mark.parametrize("statistics", ["quiet hour", "burst"])
def test_what_precedes_a_run_is_looked_up_in_an_index_with_any_statistics(statistics: str) -> None:
    """PostgreSQL may otherwise read all runs that are due: in a quiet hour it expects none, and in a burst of one event
    that each of them precedes others."""
    schedule_many(1_500)
    if statistics == "quiet hour":
        now = clock.now()
        TaskRun.objects.update(state="succeeded", turn=None, attempts=1, started_at=now, finished_at=now)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE scheduler_taskrun, scheduler_scheduledtask")
    if statistics == "quiet hour":
        schedule_many(1_500)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {runs._start.text}", {"executor": "test", "without": []})
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "using task_run_turns" in plan
    assert "using task_run_event_minutes" in plan
    assert "Index Cond: ((event_id = run_1.event_id) AND (scheduled_for < run_1.scheduled_for))" in plan
    assert "Sort" not in plan


def schedule_many(count: int) -> None:
    """Let so many runs of the event wait for this minute, with turns."""
    pattern = ScheduledTask.objects.get(pk=schedule("", ago=0))
    names = ("kind", "event_id", "params", "once_at", "time_zone", "next_run_at", "created_by", "created_at")
    fields = {name: getattr(pattern, name) for name in names}
    ScheduledTask.objects.bulk_create(ScheduledTask(**fields) for _ in range(count - 1))
    wait_with_turns()
