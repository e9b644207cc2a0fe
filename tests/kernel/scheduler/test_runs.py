"""The life of a run: its effects commit with its end, failures are shown, and staff run it again."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import DatabaseError, connection

from apps.kernel import clock
from apps.kernel.http import problems
from apps.kernel.outbox.models import OutboxMessage
from apps.kernel.scheduler import executor, facade, picker, registry, runs
from apps.kernel.scheduler.models import ScheduledTask, TaskRun
from tests.support.batches import wait_until
from tests.support.kernel import scheduled_tasks
from tests.support.kernel.scheduled_tasks import (
    SITE,
    effects,
    execute_due,
    killed_at,
    pick_all,
    registered,
    schedule_cron,
    schedule_now,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _kind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(runs, "LOST_AFTER", timedelta())
    monkeypatch.setattr(runs, "RETRY_AFTER", timedelta())
    with registered():
        yield


def run_of(task_id: int) -> TaskRun:
    return TaskRun.objects.get(task=task_id)


def test_a_run_succeeds_with_its_effect_and_a_second_message_does_nothing() -> None:
    task_id = schedule_now()
    (run_id,) = pick_all()
    assert execute_due() == 1
    assert execute_due() == 0
    run = run_of(task_id)
    assert (run.state, run.result, run.attempts, effects()) == ("succeeded", "effect", 1, {run_id: 1})
    assert ScheduledTask.objects.get(pk=task_id).next_run_at is None


def test_a_recurring_task_waits_for_its_next_minute_once_it_has_run() -> None:
    task_id = schedule_cron("* * * * *")
    scheduled_tasks.let_pass(1_000)
    pick_all()
    assert ScheduledTask.objects.get(pk=task_id).next_run_at is None
    execute_due()
    following = ScheduledTask.objects.get(pk=task_id).next_run_at
    assert following is not None
    assert timedelta() < following - clock.now() <= timedelta(minutes=1), "a thousand missed minutes ran once"


@pytest.mark.parametrize(
    ("statement", "moment"),
    [("start_next_run", "before"), ("start_next_run", "after"), ("lock_run", "before"), ("lock_run", "after"),
     ("publish_messages", "after"), ("end_run", "before"), ("end_run", "after")],
)  # fmt: skip
def test_a_run_whose_executor_is_killed_has_no_effect_and_runs_once_afterwards(statement: str, moment: str) -> None:
    task_id = schedule_cron()
    scheduled_tasks.let_pass(2)
    (run_id,) = pick_all()
    with killed_at(statement, moment):  # type: ignore[arg-type]
        execute_due()
    assert effects() == {}
    assert run_of(task_id).state in ("picked", "running")
    runs.recover_lost(10)
    assert execute_due() == 1
    assert (run_of(task_id).state, effects()) == ("succeeded", {run_id: 1})
    assert ScheduledTask.objects.get(pk=task_id).next_run_at is not None


def test_a_run_that_ends_each_of_its_executors_fails_after_three() -> None:
    task_id = schedule_cron()
    scheduled_tasks.let_pass(2)
    pick_all()
    for _ in range(runs.LOSSES_MAX):
        with killed_at("end_run", "before"):
            execute_due()
        runs.recover_lost(10)
    run = run_of(task_id)
    assert (run.state, run.error, run.losses) == ("failed", runs.LOST, 3)
    assert execute_due() == 0
    assert ScheduledTask.objects.get(pk=task_id).next_run_at is not None, "its next minute comes all the same"


def test_an_attempt_that_was_given_up_changes_nothing() -> None:
    """A: starts the run and hangs
    P: finds the run without a lock, so it waits again
    B: runs it
    A: goes on
    """
    task_id = schedule_now()
    (run_id,) = pick_all()
    picker.give_turns()
    hung = runs.start_next()
    assert hung is not None
    runs.recover_lost(10)
    execute_due()
    kind = facade.get_kind(scheduled_tasks.KIND)
    executor._run_handler(hung, kind)
    runs.fail(hung, "late")
    assert (run_of(task_id).state, effects()) == ("succeeded", {run_id: 1})


def fail(run: facade.Run) -> str:
    scheduled_tasks.write_effect(run)
    raise facade.TaskFailed("the sale has not begun")


def test_a_failed_run_is_shown_and_not_repeated_until_staff_run_it_again() -> None:
    scheduled_tasks.register(fail)
    task_id = schedule_cron()
    scheduled_tasks.let_pass(2)
    (run_id,) = pick_all()
    execute_due()
    run = run_of(task_id)
    assert (run.state, run.error, effects()) == ("failed", "the sale has not begun", {})
    assert ScheduledTask.objects.get(pk=task_id).next_run_at is not None
    assert pick_all() == [] or waiting_is_of_another_minute(run_id)
    scheduled_tasks.register()
    facade.run_again(run_id, who="bob")
    with pytest.raises(facade.NotRunnable):
        facade.run_again(run_id, who="bob")
    picker.give_turns()
    assert executor.execute_next()
    run = run_of_id(run_id)
    assert (run.state, run.asked_by, run.attempts, effects()) == ("succeeded", "bob", 2, {run_id: 1})
    assert [attempt["error"] for attempt in run.earlier] == ["the sale has not begun"]


def waiting_is_of_another_minute(run_id: int) -> bool:
    return run_id not in scheduled_tasks.waiting()


def run_of_id(run_id: int) -> TaskRun:
    return TaskRun.objects.get(pk=run_id)


def test_an_idempotent_kind_is_retried_a_few_times_and_then_fails(caplog: pytest.LogCaptureFixture) -> None:
    def break_down(run: facade.Run) -> str:
        raise ValueError("not a sentence for staff\nwith a second line")

    scheduled_tasks.register(break_down, idempotent=True)
    task_id = schedule_now()
    (run_id,) = pick_all()
    for times in (1, 2):
        while execute_due():
            pass
        run = run_of(task_id)
        assert (run.attempts, run.state) == (times * runs.ATTEMPTS_MAX, "failed")
        assert run.error == "not a sentence for staff"
        facade.run_again(run_id, who="bob")
    assert "Traceback" in caplog.text


def test_an_error_of_the_database_shows_no_values_and_a_refused_lock_is_tried_again() -> None:
    def violate(run: facade.Run) -> str:
        OutboxMessage.objects.create(pk=1, topic="t", key="secret", body={}, created_at=None, available_at=None)
        raise AssertionError

    def wait_too_long(run: facade.Run) -> str:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(5)")
        return ""

    scheduled_tasks.register(violate)
    first = schedule_now()
    pick_all()
    execute_due()
    assert run_of(first).error == "the database refused it: NotNullViolation"
    scheduled_tasks.register(wait_too_long, statement_ms=10)
    second = schedule_now()
    pick_all()
    execute_due()
    assert (run_of(second).state, run_of(second).losses) == ("picked", 1)
    while execute_due():
        pass
    assert (run_of(second).state, run_of(second).attempts) == ("failed", runs.LOSSES_MAX)
    facade.run_again(run_of(second).pk, who="bob")
    execute_due()
    assert (run_of(second).state, run_of(second).losses) == ("picked", 1), "these losses count anew"
    scheduled_tasks.register()
    execute_due()
    assert run_of(second).state == "succeeded"


def test_a_kind_that_this_version_does_not_have_fails() -> None:
    task_id = schedule_now()
    ScheduledTask.objects.update(kind="gone")
    pick_all()
    execute_due()
    assert run_of(task_id).error == "this version has no task 'gone'"


def test_a_canceled_task_does_not_run_and_runs_after_it_was_enabled_in_time() -> None:
    task_id = schedule_now()
    (run_id,) = pick_all()
    assert facade.cancel_task(task_id)
    assert not facade.cancel_task(task_id)
    assert execute_due() == 0
    assert facade.enable_task(task_id)
    assert pick_all() == [run_id]
    execute_due()
    assert effects() == {run_id: 1}


def test_a_run_of_a_canceled_task_is_not_started_again_after_its_executor_was_lost() -> None:
    task_id = schedule_now()
    (run_id,) = pick_all()
    picker.give_turns()
    assert runs.start_next() is not None
    facade.cancel_task(task_id)
    assert runs.recover_lost(10) == 1
    assert (run_of(task_id).state, scheduled_tasks.waiting()) == ("canceled", [])
    assert facade.enable_task(task_id)
    pick_all()
    execute_due()
    assert (run_of(task_id).state, effects()) == ("succeeded", {run_id: 1})


def test_a_changed_task_runs_with_its_new_parameters_at_its_minute() -> None:
    seen = []
    scheduled_tasks.register(lambda run: seen.append(run.params))
    task_id = schedule_now(text="old")
    pick_all()
    task = ScheduledTask.objects.get(pk=task_id)
    facade.change_task(task_id, {"text": "new"}, facade.Schedule(once_at=task.once_at), who="bob")
    pick_all()
    execute_due()
    assert seen == [{"text": "new"}]
    assert TaskRun.objects.count() == 1


@pytest.mark.parametrize("handler", [scheduled_tasks.write_effect, fail])
def test_a_task_is_not_scheduled_again_for_a_minute_in_which_it_has_run(handler: registry.Handler) -> None:
    scheduled_tasks.register(handler)
    task_id = schedule_now()
    minute = ScheduledTask.objects.get().once_at
    assert minute is not None
    pick_all()
    execute_due()
    with pytest.raises(problems.Invalid, match="once_at: This task has already started in that minute"):
        facade.change_task(task_id, {}, facade.Schedule(once_at=minute), who="bob")
    facade.cancel_task(task_id)
    with pytest.raises(problems.Invalid, match="once_at: This task has already started in that minute"):
        facade.enable_task(task_id)
    later = minute + timedelta(minutes=1)
    facade.change_task(task_id, {}, facade.Schedule(once_at=later), who="bob")
    assert ScheduledTask.objects.get().next_run_at == later


def test_two_runs_of_one_task_never_run_at_the_same_time() -> None:
    task_id = schedule_now()
    pick_all()
    picker.give_turns()
    first = runs.start_next()
    assert first is not None
    run = TaskRun.objects.get(pk=first.run_id)
    second = TaskRun.objects.create(
        task_id=task_id,
        scheduled_for=run.scheduled_for - timedelta(minutes=1),
        due_at=run.due_at - timedelta(minutes=1),
        picked_at=run.picked_at,
    )
    other = run_of(schedule_and_pick())
    assert execute_due() == 1, "the second run waits, and the run of the other task does not"
    assert effects() == {other.pk: 1}
    runs.recover_lost(10)
    assert execute_due() == 2
    assert effects() == dict.fromkeys([other.pk, first.run_id, second.pk], 1)


def schedule_and_pick() -> int:
    task_id = schedule_now()
    pick_all()
    return task_id


@pytest.mark.parametrize(
    ("schedule", "field"),
    [
        (facade.Schedule(), "schedule"),
        (facade.Schedule(cron="* * *"), "cron"),
        (facade.Schedule(cron="0 0 30 2 *"), "cron"),
        (facade.Schedule(cron="* * * * *", time_zone="Mars/Base"), "time_zone"),
        (facade.Schedule(once_at=clock.process_now().replace(year=2020, second=0, microsecond=0)), "once_at"),
        (facade.Schedule(once_at=clock.process_now().replace(year=2080, second=0, microsecond=0)), "once_at"),
        (facade.Schedule(once_at=clock.process_now().replace(second=7)), "once_at"),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused(schedule: facade.Schedule, field: str) -> None:
    with pytest.raises(problems.Invalid) as refused:
        facade.schedule_task(scheduled_tasks.KIND, {}, schedule, scope=SITE, who="ada")
    assert list(refused.value.extra["errors"]) == [field]
    with pytest.raises(problems.Invalid):
        facade.schedule_task("unknown", {}, facade.Schedule(cron="* * * * *"), scope=SITE, who="ada")


def test_a_task_registered_by_code_exists_once_and_keeps_what_staff_changed() -> None:
    for _ in range(2):
        facade.ensure_task("nightly", scheduled_tasks.KIND, {}, "0 3 * * *")
    task = ScheduledTask.objects.get()
    facade.cancel_task(task.pk)
    facade.ensure_task("nightly", scheduled_tasks.KIND, {}, "0 3 * * *")
    assert not ScheduledTask.objects.get().enabled


def test_a_database_that_is_lost_at_the_end_leaves_the_run_to_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*args: object, **kwargs: object) -> None:
        raise DatabaseError("gone")

    task_id = schedule_now()
    (run_id,) = pick_all()
    monkeypatch.setattr(runs, "_end_attempt", lose)
    with pytest.raises(DatabaseError):
        execute_due()
    monkeypatch.undo()
    monkeypatch.setattr(runs, "LOST_AFTER", timedelta())
    assert effects() == {}
    picker.run_once()
    execute_due()
    wait_until(picker.local.is_idle, "a thread of the picker may execute it, too")
    assert (run_of(task_id).state, effects()) == ("succeeded", {run_id: 1})


def test_old_runs_are_deleted_but_for_the_latest_of_each_task() -> None:
    task_id = schedule_now()
    pick_all()
    execute_due()
    run = run_of(task_id)
    TaskRun.objects.create(
        task_id=task_id,
        scheduled_for=run.scheduled_for - timedelta(days=1),
        due_at=run.due_at,
        picked_at=run.picked_at,
        state="failed",
        finished_at=clock.now() - timedelta(days=runs.KEPT_DAYS + 1),
    )
    TaskRun.objects.filter(pk=run.pk).update(finished_at=clock.now() - timedelta(days=runs.KEPT_DAYS + 1))
    assert runs.delete_old() == 1
    assert TaskRun.objects.get().pk == run.pk
