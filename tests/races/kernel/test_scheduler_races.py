"""Two pickers, and two executors, at the same moment: each run exists once and happens once."""

from collections.abc import Iterator

import pytest
from django.db import connection

from apps.kernel.scheduler import executor, facade, picker
from apps.kernel.scheduler.models import ScheduledTask, TaskRun
from tests.support.kernel.scheduled_tasks import effects, pick_all, registered, schedule_now
from tests.support.races import rival_at, storm, values

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
