"""Two pickers, and two executors, at the same moment: each run exists once and happens once."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError, connection

from apps.kernel.db import sql
from apps.kernel.http import problems
from apps.kernel.scheduler import executor, facade, picker
from apps.kernel.scheduler.models import ScheduledTask, TaskRun
from tests.support.kernel.scheduled_tasks import effects, pick_all, register, registered, schedule_now
from tests.support.races import rival_at, rival_waiting_at, storm, values

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _kind() -> Iterator[None]:
    with registered():
        yield


def pick_naively() -> None:
    """Read the due tasks, insert their runs, mark the tasks: without locks."""
    due = list(ScheduledTask.objects.filter(next_run_at__isnull=False).values_list("pk", "next_run_at"))
    picker._take_due.rows(connection.cursor(), limit=0, again_after=picker.AGAIN_AFTER)  # Where the rival comes in.
    for task_id, minute in due:
        TaskRun.objects.create(task_id=task_id, scheduled_for=minute, due_at=minute, picked_at=minute)
        ScheduledTask.objects.filter(pk=task_id).update(next_run_at=None)


@pytest.fixture
def _without_the_constraint() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE scheduler_taskrun DROP CONSTRAINT task_run_once_per_minute")
    yield
    TaskRun.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE scheduler_taskrun ADD CONSTRAINT task_run_once_per_minute UNIQUE (task_id, scheduled_for)"
        )


@pytest.mark.usefixtures("_without_the_constraint")
def test_control_without_lock_and_constraint_two_pickers_run_a_task_twice() -> None:
    """A: reads the due task
    B: reads it too, inserts its run, marks it; COMMIT
    A: inserts a second run
    """
    schedule_now()
    with rival_at("take_due_runs", "before", pick_naively):
        pick_naively()
    executor.execute_all(TaskRun.objects.values_list("pk", flat=True))
    assert sum(effects().values()) == 2


def test_many_pickers_pick_each_task_once_and_wait_for_no_other() -> None:
    for _ in range(60):
        schedule_now()

    def pick_until_empty(_: int) -> int:
        picked = 0
        while found := picker.pick(10):
            picked += found
        return picked

    assert sum(values(storm(6, pick_until_empty))) == 60
    assert TaskRun.objects.count() == TaskRun.objects.values("task").distinct().count() == 60


def test_a_picker_skips_what_another_one_is_picking() -> None:
    """A: has picked the task and not committed
    B: finds nothing, and does not wait
    """
    schedule_now()
    with rival_at("pick_tasks", "after", picker.pick) as rival:
        assert picker.pick() == 1
    assert rival.result == 0


def run_again_and_enabled() -> int:
    """Return the run of a task that waits for the same minute once more: its run failed and was run again, and then the
    task, which had been canceled, was enabled."""

    def refuse(run: facade.Run) -> str:
        raise facade.TaskFailed("not yet")

    register(refuse)
    task_id = schedule_now()
    (run_id,) = pick_all()
    executor.execute(run_id)
    facade.cancel_task(task_id)
    facade.run_again(run_id, who="bob")
    facade.enable_task(task_id)
    register()
    return run_id


def test_control_a_picker_that_takes_tasks_with_a_run_under_way_waits_for_that_run(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """E: UPDATE picked → running, COMMIT; SELECT the run FOR NO KEY UPDATE
    P: INSERT … ON CONFLICT: waits for E's lock, and with this task all others of the batch wait
    """
    settings.DATABASE_LOCK_TIMEOUT_MS = 50
    condition = "AND NOT EXISTS (SELECT FROM scheduler_taskrun AS run"
    assert condition in picker._pick.text
    naive = picker._pick.text.replace(condition, "AND NOT EXISTS (SELECT FROM scheduler_taskrun AS run WHERE false) --")
    monkeypatch.setattr(picker, "_pick", sql.Statement("pick_tasks", naive))
    run_id = run_again_and_enabled()
    schedule_now()

    def pick_in_vain() -> None:
        with pytest.raises(OperationalError, match="lock timeout"):
            picker.pick()

    with rival_at("lock_run", "after", pick_in_vain):
        assert executor.execute(run_id)
    assert TaskRun.objects.count() == 1


def test_a_task_whose_run_is_under_way_delays_no_other_and_does_not_run_twice() -> None:
    """E: UPDATE picked → running, COMMIT; SELECT the run FOR NO KEY UPDATE
    P: picks the other tasks without waiting
    """
    run_id = run_again_and_enabled()
    other = schedule_now()
    with rival_at("lock_run", "after", picker.pick) as rival:
        assert executor.execute(run_id)
    assert rival.result == 1
    assert [run.task_id for run in TaskRun.objects.filter(state="picked")] == [other]
    executor.execute_all(pick_all())
    assert not ScheduledTask.objects.filter(next_run_at__isnull=False).exists()
    assert set(effects().values()) == {1}


def test_many_executors_with_the_same_runs_run_each_once() -> None:
    for _ in range(10):
        schedule_now()
    run_ids = pick_all()
    started = values(
        storm(6, lambda number: executor.execute_all(sorted(run_ids, key=lambda each: (each * number) % 7)))
    )
    assert sum(started) == 10
    assert effects() == dict.fromkeys(run_ids, 1)


def test_staff_cancel_while_an_executor_starts_and_one_of_them_wins() -> None:
    """E: UPDATE picked → running, COMMIT
    S: cancels the task: its run is no longer waiting, so it ends as it began
    """
    task_id = schedule_now()
    (run_id,) = pick_all()
    with rival_at("lock_run", "before", lambda: facade.cancel_task(task_id)) as rival:
        assert executor.execute(run_id)
    assert rival.has_run
    assert (TaskRun.objects.get().state, effects()) == ("succeeded", {run_id: 1})
    assert not ScheduledTask.objects.get().enabled


def time_out(run: facade.Run) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(5)")
    return ""


@pytest.mark.parametrize("is_canceled_first", [True, False])
def test_a_run_that_was_refused_while_staff_cancel_its_task_does_not_start_again(is_canceled_first: bool) -> None:
    """E: UPDATE picked → running, COMMIT; its transaction is rolled back
    S: cancels the task; COMMIT
    E: UPDATE running → canceled

    E: locks the task; UPDATE running → picked
    S: waits for E. Without the lock it would find the run running, and leave it as it is.
    E: COMMIT
    S: UPDATE picked → canceled
    """
    register(time_out, statement_ms=10)
    task_id = schedule_now()
    (run_id,) = pick_all()

    def cancel() -> bool:
        return facade.cancel_task(task_id)

    rival = rival_at("end_run", "before", cancel) if is_canceled_first else rival_waiting_at("end_run", "after", cancel)
    with rival as canceling:
        assert executor.execute(run_id)
    assert canceling.result is True or canceling.result() is True
    run = TaskRun.objects.get()
    assert (run.state, run.losses, effects()) == ("canceled", 1, {})


def test_a_task_that_starts_while_it_is_changed_for_the_same_minute_is_not_changed() -> None:
    """E: UPDATE picked → running
    S: DELETE of runs that wait: waits for E
    E: COMMIT
    S: DELETE finds none, and the minute is refused. Read before the DELETE, the run would still wait.
    """
    task_id = schedule_now()
    once = facade.Schedule(once_at=ScheduledTask.objects.get().once_at)
    (run_id,) = pick_all()
    with rival_waiting_at(
        "start_run", "after", lambda: facade.change_task(task_id, {"text": "new"}, once, who="bob")
    ) as rival:
        assert executor.execute(run_id)
    with pytest.raises(problems.Invalid, match="has already started"):
        rival.result()
    assert (ScheduledTask.objects.get().params, TaskRun.objects.get().state) == ({}, "succeeded")


def test_a_change_while_the_task_runs_sets_its_next_minute() -> None:
    task_id = schedule_now()
    (run_id,) = pick_all()
    with rival_at(
        "lock_run", "after", lambda: facade.change_task(task_id, {}, facade.Schedule(cron="0 3 * * *"), who="bob")
    ):
        executor.execute(run_id)
    task = ScheduledTask.objects.get()
    assert (task.cron, TaskRun.objects.get().state) == ("0 3 * * *", "succeeded")
    assert task.next_run_at is not None
