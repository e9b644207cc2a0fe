"""Two pickers, and two executors, at the same moment: each run exists once and happens once."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.db.models import F, QuerySet

from apps.kernel.db import sql, transactions
from apps.kernel.http import problems
from apps.kernel.scheduler import executor, facade, picker, runs
from apps.kernel.scheduler.models import ScheduledTask, TaskRun
from tests.support.kernel.scheduled_tasks import (
    effects,
    execute_due,
    pick_all,
    register,
    registered,
    schedule_now,
    write_effect,
)
from tests.support.races import rival_at, rival_waiting_at, storm, values

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _kind() -> Iterator[None]:
    with registered():
        yield


def pick_naively() -> None:
    """Read the due tasks, insert their runs, mark the tasks: without locks."""
    due = list(ScheduledTask.objects.filter(next_run_at__isnull=False).values_list("pk", "next_run_at"))
    picker.give_turns(0)  # Where the rival comes in.
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
    with rival_at("give_turns", "before", pick_naively):
        pick_naively()
    execute_due()
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
    execute_due()
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
    run_again_and_enabled()
    schedule_now()

    def pick_in_vain() -> None:
        with pytest.raises(OperationalError, match="lock timeout"):
            picker.pick()

    picker.give_turns()
    with rival_at("lock_run", "after", pick_in_vain):
        assert executor.execute_next()
    assert TaskRun.objects.count() == 1


def test_a_task_whose_run_is_under_way_delays_no_other_and_does_not_run_twice() -> None:
    """E: UPDATE picked → running, COMMIT; SELECT the run FOR NO KEY UPDATE
    P: picks the other tasks without waiting
    """
    run_again_and_enabled()
    picker.give_turns()
    other = schedule_now()
    with rival_at("lock_run", "after", picker.pick) as rival:
        assert executor.execute_next()
    assert rival.result == 1
    assert [run.task_id for run in TaskRun.objects.filter(state="picked")] == [other]
    pick_all()
    execute_due()
    assert not ScheduledTask.objects.filter(next_run_at__isnull=False).exists()
    assert set(effects().values()) == {1}


def test_many_executors_start_each_run_once_and_start_all() -> None:
    for number in range(60):
        schedule_now(number % 3)
    run_ids = pick_all()
    picker.give_turns()
    started = values(storm(6, lambda _: executor.execute_due(float("inf"))))
    assert sum(started) == 60
    assert effects() == dict.fromkeys(run_ids, 1)


def first_two() -> list[int]:
    """Return the runs of two tasks that wait with a turn each, the first one first."""
    for _ in range(2):
        schedule_now()
    run_ids = pick_all()
    picker.give_turns()
    return run_ids


def run_of(attempt: runs.Attempt | None) -> int | None:
    return attempt and attempt.run_id


def test_control_without_the_lock_two_executors_start_one_run_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A: reads the first run, UPDATE picked → running
    B: reads it too, and waits for A
    A: COMMIT
    B: UPDATE running → running, and the second run still waits
    """
    lock = "FOR NO KEY UPDATE OF run SKIP LOCKED"
    assert lock in runs._start.text
    monkeypatch.setattr(runs, "_start", sql.Statement("start_next_run", runs._start.text.replace(lock, "")))
    first, second = first_two()
    with rival_waiting_at("start_next_run", "after", runs.start_next) as rival:
        assert run_of(runs.start_next()) == first
    assert run_of(rival.result()) == first
    assert [TaskRun.objects.get(pk=run_id).attempts for run_id in (first, second)] == [2, 0]


def test_an_executor_passes_over_a_run_that_another_one_starts() -> None:
    """A: locks the first run, UPDATE picked → running
    B: starts the second one, without waiting
    """
    first, second = first_two()
    with rival_at("start_next_run", "after", runs.start_next) as rival:
        assert run_of(runs.start_next()) == first
    assert run_of(rival.result) == second


def test_two_executors_that_start_two_runs_of_a_task_at_once_start_one_of_them_and_the_next_run() -> None:
    """A: UPDATE the first run of the task, picked → running
    B: does not see that, so it starts the second one: waits for A
    A: COMMIT
    B: is refused by task_run_one_running_of_a_task, and starts the run of another task
    """
    first, second, other = three_runs_of_two_tasks()
    with rival_waiting_at("start_next_run", "after", runs.start_next) as rival:
        assert run_of(runs.start_next()) == first
    assert run_of(rival.result()) == other
    assert TaskRun.objects.get(pk=second).state == "picked"


def three_runs_of_two_tasks() -> tuple[int, int, int]:
    """Return two runs of one task and one of another, which wait in this order."""
    task_id = schedule_now()
    (second,) = pick_all()
    due_at = TaskRun.objects.get().due_at - timedelta(minutes=1)
    first = TaskRun.objects.create(task_id=task_id, scheduled_for=due_at, due_at=due_at, picked_at=due_at).pk
    picker.give_turns()
    schedule_now()
    (other,) = set(pick_all()) - {first, second}
    picker.give_turns()
    return first, second, other


def close_and_open() -> tuple[int, int]:
    """Return the runs of two overdue tasks of one event, of different minutes, that wait with a turn each."""
    return overdue_with_turn(2), overdue_with_turn(1)


def overdue_with_turn(minutes_ago: int) -> int:
    task_id = schedule_now(event_id=1)
    pick_all()
    at = TaskRun.objects.get(task=task_id).scheduled_for - timedelta(minutes=minutes_ago)
    TaskRun.objects.filter(task=task_id).update(scheduled_for=at, due_at=at)
    picker.give_turns()
    return TaskRun.objects.get(task=task_id).pk


def test_control_without_the_condition_a_later_run_of_an_event_ends_before_an_earlier_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A: UPDATE the first run, picked → running; COMMIT
    B: the same for the second one; its effect; COMMIT
    A: its effect; COMMIT
    """
    condition = "earlier.event_id = run.event_id"
    assert condition in runs._start.text
    naive = sql.Statement("start_next_run", runs._start.text.replace(condition, "false"))
    monkeypatch.setattr(runs, "_start", naive)
    first, second = close_and_open()
    with rival_at("lock_run", "before", executor.execute_next) as rival:
        assert executor.execute_next()
    assert rival.result
    ended = TaskRun.objects.order_by("finished_at").values_list("pk", flat=True)
    assert list(ended) == [second, first]


@pytest.mark.parametrize("statement", ["start_next_run", "end_run", "take_lost_runs", "give_turns"])
def test_whatever_changes_an_earlier_run_of_an_event_a_later_one_starts_only_after_its_end(
    statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A: changes the first run
    B: reads the first run as it was before, so it starts nothing
    A: COMMIT
    """
    monkeypatch.setattr(runs, "LOST_AFTER", timedelta())
    first, second = close_and_open()
    if statement in ("take_lost_runs", "give_turns"):
        assert run_of(runs.start_next()) == first
    if statement == "give_turns":
        assert runs.recover_lost(1) == 1
    act = {
        "start_next_run": runs.start_next,
        "end_run": executor.execute_next,
        "take_lost_runs": lambda: runs.recover_lost(1),
        "give_turns": picker.give_turns,
    }[statement]
    with rival_at(statement, "after", runs.start_next) as rival:
        assert act()
    assert rival.result is None
    assert run_of(runs.start_next()) == {"end_run": second, "give_turns": first}.get(statement)


def test_many_executors_that_are_lost_again_and_again_start_the_runs_of_each_event_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One picker finds the lost runs, gives them their turns and picks the tasks, a few at a time."""
    monkeypatch.setattr(runs, "LOST_AFTER", timedelta())
    monkeypatch.setattr(runs, "LOSSES_MAX", 1_000)
    overtaken: list[int] = []

    def execute(run: facade.Run) -> str:
        if open_runs().filter(event_id=run.event_id, scheduled_for__lt=run.scheduled_for).exists():
            overtaken.append(run.id)
        return write_effect(run)

    def open_runs() -> QuerySet[TaskRun]:
        return TaskRun.objects.filter(state__in=["picked", "running"])

    def is_over() -> bool:
        return not open_runs().exists() and not ScheduledTask.objects.filter(next_run_at__isnull=False).exists()

    def act(number: int) -> None:
        while not is_over():
            if number < 2:
                picker.pick(3)
                runs.recover_lost(10)
                picker.give_turns(3)
            elif number == 2:
                runs.start_next()
            else:
                executor.execute_next()

    register(execute)
    for ago in range(5):
        for number in range(6):
            task_id = schedule_now(event_id=1 + number % 3)
            by = timedelta(minutes=ago)
            ScheduledTask.objects.filter(pk=task_id).update(next_run_at=F("next_run_at") - by)
    values(storm(6, act))
    assert overtaken == []
    assert effects() == dict.fromkeys(TaskRun.objects.values_list("pk", flat=True), 1)
    assert TaskRun.objects.count() == 30


def test_two_pickers_that_give_turns_at_once_give_each_run_one() -> None:
    """A: gives the first two runs of an organizer the turns 0 and 1
    B: passes over them, does not see their turns, and gives the others 0 and 1, too
    """
    for _ in range(4):
        schedule_now(1)
    run_ids = pick_all()
    with rival_at("give_turns", "after", lambda: picker.give_turns(2)) as rival:
        assert picker.give_turns(2) == 2
    assert rival.result == 2
    assert sorted(TaskRun.objects.values_list("turn", flat=True)) == [0, 0, 1, 1]
    assert executor.execute_due(float("inf")) == 4
    assert effects() == dict.fromkeys(run_ids, 1)


def test_staff_cancel_while_an_executor_starts_and_one_of_them_wins() -> None:
    """E: UPDATE picked → running, COMMIT
    S: cancels the task: its run is no longer waiting, so it ends as it began
    """
    task_id = schedule_now()
    (run_id,) = pick_all()
    picker.give_turns()
    with rival_at("lock_run", "before", lambda: facade.cancel_task(task_id)) as rival:
        assert executor.execute_next()
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
    pick_all()
    picker.give_turns()

    def cancel() -> bool:
        return facade.cancel_task(task_id)

    rival = rival_at("end_run", "before", cancel) if is_canceled_first else rival_waiting_at("end_run", "after", cancel)
    with rival as canceling:
        assert executor.execute_next()
    assert canceling.result is True or canceling.result() is True
    run = TaskRun.objects.get()
    assert (run.state, run.losses, effects()) == ("canceled", 1, {})


def change_to_same_minute(task_id: int) -> None:
    once = facade.Schedule(once_at=ScheduledTask.objects.get().once_at)
    facade.change_task(task_id, {"text": "new"}, once, who="bob")


def refusal_of(act: Callable[[int], Any], task_id: int) -> type[Exception] | None:
    try:
        act(task_id)
    except problems.Problem as refused:
        return type(refused)
    return None


def test_control_staff_who_wait_for_a_run_that_starts_keep_its_end_from_the_row_of_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """E: UPDATE picked → running
    S: locks the task; UPDATE of runs that wait: waits for E
    E: COMMIT; its next transaction locks the run, and S waits for that, too. E then waits for the task: a deadlock.
    """
    monkeypatch.setattr(
        facade, "_lock_waiting", lambda task: TaskRun.objects.filter(task=task, state=TaskRun.State.PICKED)
    )
    task_id = schedule_now()
    pick_all()
    picker.give_turns()
    with (
        rival_waiting_at("start_next_run", "after", lambda: facade.cancel_task(task_id)) as rival,
        transactions.write(),
        connection.cursor() as cursor,
    ):
        assert runs._start.rows(cursor, executor="E", without=[])
        with pytest.raises(OperationalError, match="could not obtain lock"), transaction.atomic():
            ScheduledTask.objects.select_for_update(no_key=True, nowait=True).get()
    assert rival.result() is True
    assert TaskRun.objects.get().state == "running"


@pytest.mark.parametrize("act", [facade.cancel_task, change_to_same_minute])
def test_staff_do_not_wait_for_a_run_that_is_being_started(act: Callable[[int], Any]) -> None:
    """E: UPDATE picked → running
    S: locks the task, finds the run locked, and is refused
    E: COMMIT, and runs the task as it was
    """
    task_id = schedule_now()
    pick_all()
    picker.give_turns()
    with rival_at("start_next_run", "after", lambda: refusal_of(act, task_id)) as rival:
        assert executor.execute_next()
    assert rival.result is facade.RunStarting
    task = ScheduledTask.objects.get()
    assert (task.params, task.enabled, TaskRun.objects.get().state) == ({}, True, "succeeded")
    # The minute counts as used now.
    assert refusal_of(act, task_id) is (problems.Invalid if act is change_to_same_minute else None)


def test_a_change_while_the_task_runs_sets_its_next_minute() -> None:
    task_id = schedule_now()
    pick_all()
    with rival_at(
        "lock_run", "after", lambda: facade.change_task(task_id, {}, facade.Schedule(cron="0 3 * * *"), who="bob")
    ):
        execute_due()
    task = ScheduledTask.objects.get()
    assert (task.cron, TaskRun.objects.get().state) == ("0 3 * * *", "succeeded")
    assert task.next_run_at is not None
