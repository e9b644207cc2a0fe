"""Pickers: two minutes ahead, in batches, and executors are woken while due runs wait."""

import math
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from apps.kernel import clock
from apps.kernel.models import Signal
from apps.kernel.scheduler import executor, facade, orchestrator, picker, runs, schedule_times, scheduler_metrics
from apps.kernel.scheduler.models import ScheduledTask, TaskRun
from tests.support.batches import wait_until
from tests.support.kernel import scheduled_tasks
from tests.support.kernel.scheduled_tasks import (
    KIND,
    SITE,
    effects,
    execute_due,
    killed_at,
    pick_all,
    registered,
    schedule_now,
)

pytestmark = pytest.mark.django_db(transaction=True)


class Broker(list[int]):
    """How many executors each round has woken."""

    is_there = True

    def wake(self, count: int) -> bool:
        if self.is_there:
            self.append(count)
        return self.is_there


@pytest.fixture(autouse=True)
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr(picker, "HERE_AFTER_SECONDS", float("inf"))
    messages = Broker()
    with registered():
        facade.register_wake(messages.wake)
        yield messages


def schedule_in(minutes: int) -> int:
    at = schedule_times.whole_minute(clock.now()) + timedelta(minutes=minutes)
    return facade.schedule_task(KIND, {}, facade.Schedule(once_at=at), scope=SITE, who="ada")


def test_tasks_are_picked_two_minutes_ahead_and_start_at_their_minute(broker: Broker) -> None:
    schedule_in(4)
    task_id = schedule_in(2)
    # Ahead of the minute, as far as the present minute has gone.
    ScheduledTask.objects.filter(pk=task_id).update(next_run_at=clock.now() + picker.AHEAD - timedelta(seconds=1))
    assert picker.run_once() == 1
    (run,) = TaskRun.objects.all()
    assert (run.task_id, run.state, broker) == (task_id, "picked", [])
    assert not executor.execute_next(), "its minute has not come"
    TaskRun.objects.update(due_at=clock.now())
    picker.run_once()
    assert broker == [1]
    assert executor.execute_next()
    assert effects() == {run.pk: 1}


def test_a_burst_is_picked_in_batches_and_executed_in_shares_of_time(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picker, "BATCH_MAX", 10)
    monkeypatch.setattr(picker, "TURNS_MAX", 10)
    for _ in range(25):
        schedule_now()
    picker.run_once()
    assert TaskRun.objects.exclude(turn=None).count() == 25
    assert executor.execute_due(0) == 1, "a share that is over ends after a run"
    assert executor.execute_due(float("inf")) == 24
    assert sum(effects().values()) == 25


def test_as_many_executors_are_woken_as_have_reported_and_no_more_than_runs_wait(broker: Broker) -> None:
    for _ in range(5):
        schedule_now()
    picker.run_once()
    assert broker == [1], "a worker that has just started has not reported"
    Signal.objects.create(name=orchestrator.SIGNAL, process="host:1", value=3, count=1, at=clock.now())
    picker.run_once()
    executor.execute_due(float("inf"))
    picker.run_once()
    schedule_now()
    picker.run_once()
    assert broker == [1, 3, 1]


def test_executors_are_woken_again_after_a_lost_message_and_a_killed_picker(broker: Broker) -> None:
    """A message is lost, or expires before a worker takes it: the next round sends another."""
    schedule_now()
    (run_id,) = pick_all()
    with killed_at("give_turns", "after"):
        picker.run_once()
    with killed_at("waiting_runs", "after"):
        picker.run_once()
    assert broker == []
    for _ in range(2):
        picker.run_once()
    assert broker == [1, 1]
    assert execute_due() == 1
    picker.run_once()
    assert broker == [1, 1], "no run waits"
    assert effects() == {run_id: 1}


def test_a_run_that_waits_for_another_one_of_its_task_wakes_no_executor(broker: Broker) -> None:
    schedule_now()
    pick_all()
    picker.give_turns()
    attempt = runs.start_next()
    assert attempt is not None
    run = TaskRun.objects.get(pk=attempt.run_id)
    TaskRun.objects.create(
        task_id=run.task_id, scheduled_for=run.due_at - timedelta(minutes=1), due_at=run.due_at, picked_at=run.due_at
    )
    picker.run_once()
    assert broker == []


def test_a_step_of_a_round_that_fails_keeps_no_other_from_running(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> int:
        stopping.set()
        raise LookupError("no tasks")

    def refuse_otherwise(*_: object) -> int:
        raise ArithmeticError("no runs")

    schedule_now()
    pick_all()
    stopping = threading.Event()
    monkeypatch.setattr(picker, "pick", refuse)
    monkeypatch.setattr(runs, "recover_lost", refuse_otherwise)
    picker.loop(stopping)
    assert broker == [1]
    assert "no tasks" in caplog.text
    assert "no runs" in caplog.text


def test_a_thread_with_a_long_run_keeps_no_other_run_from_starting_in_this_process() -> None:
    released = threading.Event()
    begun: list[int] = []

    def take_long(run: facade.Run) -> str:
        begun.append(run.id)
        released.wait(10)
        return scheduled_tasks.write_effect(run)

    local = executor.LocalExecutor(threads_max=2)
    scheduled_tasks.register(take_long)
    for count in (1, 2):
        schedule_now()
        pick_all()
        picker.give_turns()
        local.start(1)
        wait_until(lambda: len(begun) == count, "a thread begins the run")  # noqa: B023
    released.set()
    wait_until(local.is_idle, "the threads end")
    assert sum(effects().values()) == 2


def test_without_a_broker_or_workers_the_picker_executes_runs_itself(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.is_there = False
    schedule_now()
    picker.run_once()
    wait_until(lambda: sum(effects().values()) == 1, "the run of the burst is executed here")
    broker.is_there = True
    schedule_now()
    pick_all()
    monkeypatch.setattr(picker, "HERE_AFTER_SECONDS", 0.0)
    picker.run_once()
    wait_until(lambda: sum(effects().values()) == 2, "a run that no worker takes is executed here")
    wait_until(picker.local.is_idle, "the threads end")


def test_a_handler_that_exits_leaves_the_threads_of_this_process_to_the_other_runs() -> None:
    def leave(run: facade.Run) -> str:
        raise SystemExit

    local = executor.LocalExecutor(threads_max=1)
    scheduled_tasks.register(leave)
    schedule_now()
    pick_all()
    picker.give_turns()
    local.start(1)
    wait_until(local.is_idle, "the thread ends")
    assert TaskRun.objects.get().state == "running", "and waits to be found again"
    scheduled_tasks.register()
    schedule_now()
    pick_all()
    picker.give_turns()
    local.start(1)
    wait_until(lambda: sum(effects().values()) == 1, "another run is executed here")
    wait_until(local.is_idle, "the thread ends")


def test_a_minute_that_has_run_already_is_followed_by_the_next_one() -> None:
    task_id = scheduled_tasks.schedule_cron()
    scheduled_tasks.let_pass(2)
    (run_id,) = pick_all()
    minute = TaskRun.objects.get().scheduled_for
    execute_due()
    ScheduledTask.objects.update(next_run_at=minute)
    assert picker.pick() == 1
    following = ScheduledTask.objects.get(pk=task_id).next_run_at
    assert following is not None
    assert following > clock.now()
    assert effects() == {run_id: 1}


@pytest.mark.parametrize("wrong", [{"cron": "61 * * * *"}, {"time_zone": "Mars/Base"}])
def test_a_task_whose_schedule_is_no_longer_understood_is_disabled_and_stops_no_other(
    wrong: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    task_id = scheduled_tasks.schedule_cron()
    scheduled_tasks.let_pass(2)
    ScheduledTask.objects.update(**wrong)
    minute = ScheduledTask.objects.get().next_run_at
    assert orchestrator.read_plan().minutes[0].run_count == 1
    (run_id,) = pick_all()
    execute_due()
    assert effects() == {run_id: 1}
    assert not ScheduledTask.objects.get().enabled
    assert f"task {task_id} ({KIND}) is disabled" in caplog.text
    # Its minute is due once more, as after a change from outside.
    ScheduledTask.objects.update(enabled=True, next_run_at=minute)
    schedule_in(1)
    assert picker.pick() == 2
    assert ScheduledTask.objects.get(pk=task_id).next_run_at is None
    assert TaskRun.objects.count() == 2


def test_the_state_of_the_queue_and_the_plan(caplog: pytest.LogCaptureFixture) -> None:
    assert orchestrator.read_plan().executors_needed == 0
    for _ in range(3):
        schedule_in(3)
    scheduled_tasks.schedule_cron("*/2 * * * *")
    schedule_now()
    pick_all()
    queue = scheduler_metrics.read_queue()
    assert (queue.due, queue.running, queue.failed, queue.picker_lag_seconds) == (1, 0, 0, 0)
    plan = orchestrator.read_plan()
    assert sum(minute.run_count for minute in plan.minutes) in (3 + 4 + 1, 3 + 5 + 1)
    assert (plan.executors_needed, plan.executors) == (1, 0)
    orchestrator.watch(0.0, 60)
    assert "need 1 executors to start within 30 s; 0 run now" in caplog.text
    Signal.objects.create(name=orchestrator.SIGNAL, process="host:1", value=2, count=1, at=clock.now())
    assert orchestrator.read_plan().late == ()
    TaskRun.objects.update(
        state="succeeded", attempts=1, started_at=clock.now() - timedelta(seconds=60), finished_at=clock.now()
    )
    late = orchestrator.read_plan()
    assert late.executors_needed == 7, "three runs of a minute each, in 27 s"
    assert "3 tasks at" in orchestrator.describe(late)


def test_a_kind_that_has_not_run_counts_as_long_as_the_others() -> None:
    """10,000 light tasks need the two executors that start them in time, also before any has run."""
    task = ScheduledTask(
        kind=scheduled_tasks.KIND, once_at=clock.now(), next_run_at=clock.now() + timedelta(minutes=2),
        created_at=clock.now(),
    )  # fmt: skip
    fields = {name: getattr(task, name) for name in ("kind", "once_at", "next_run_at", "created_at")}
    ScheduledTask.objects.bulk_create(ScheduledTask(**fields) for _ in range(10_000))
    assert orchestrator.read_plan().executors_needed == 2
    other = ScheduledTask.objects.create(**fields | {"kind": "test.other", "next_run_at": None})
    moment = clock.now()
    TaskRun.objects.create(
        task=other, scheduled_for=moment, due_at=moment, picked_at=moment, state="succeeded", attempts=1,
        started_at=moment - timedelta(seconds=0.5), finished_at=moment,
    )  # fmt: skip
    assert orchestrator.read_plan().executors_needed == math.ceil(10_000 * (0.5 + orchestrator.OVERHEAD_SECONDS) / 27)


def test_recovery_leaves_a_run_alone_while_its_handler_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.races import in_another_connection

    monkeypatch.setattr(runs, "LOST_AFTER", timedelta())
    found = []
    scheduled_tasks.register(lambda run: found.append(in_another_connection(lambda: runs.recover_lost(10))))
    schedule_now()
    pick_all()
    execute_due()
    assert found == [0]
    assert TaskRun.objects.get().state == "succeeded"
