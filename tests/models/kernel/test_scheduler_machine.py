"""Schedule, pick, wake executors, lose messages, execute, kill at any statement, cancel and run again, in any order: no
run has two effects, and in the end none is missing."""

from contextlib import suppress
from datetime import timedelta
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from apps.kernel.http import problems
from apps.kernel.outbox.models import OutboxMessage
from apps.kernel.scheduler import executor, facade, picker, runs
from apps.kernel.scheduler.models import ScheduledTask, TaskRun
from tests.support.kernel import scheduled_tasks
from tests.support.kernel.scheduled_tasks import (
    TOPIC,
    effects,
    killed_at,
    let_pass,
    registered,
    schedule_cron,
    schedule_now,
)
from tests.support.tiers import examples

pytestmark = pytest.mark.django_db(transaction=True)

EXECUTOR_STEPS = [
    (name, moment)
    for name in ("start_next_run", "lock_run", "publish_messages", "end_run")
    for moment in ("before", "after")
]
PICKER_STEPS = [
    (name, moment)
    for name in ("pick_tasks", "take_lost_runs", "give_turns", "waiting_runs")
    for moment in ("before", "after")
]
ORGANIZERS = [None, 1, 2]
EVENTS = [None, 1, 2]


class Scheduler(RuleBasedStateMachine):
    """A broker that loses and doubles messages, executors and pickers that are killed, and handlers that fail."""

    def __init__(self) -> None:
        super().__init__()
        for model in (TaskRun, ScheduledTask):
            model.objects.all().delete()
        OutboxMessage.objects.filter(topic=TOPIC).delete()
        self.messages = 0
        self.is_failing = False
        self.overtaken: list[int] = []
        self.steps = 0
        self.patches = [
            registered(self.handle),
            patch.object(runs, "LOST_AFTER", timedelta()),
            patch.object(runs, "LOSSES_MAX", 1_000),
            patch.object(picker, "HERE_AFTER_SECONDS", float("inf")),
        ]
        for one in self.patches:
            one.__enter__()
        facade.register_wake(self.send)

    def teardown(self) -> None:
        try:
            self.run_to_the_end()
        finally:
            for one in reversed(self.patches):
                one.__exit__(None, None, None)

    def handle(self, run: facade.Run) -> str:
        earlier = TaskRun.objects.filter(task__event_id=run.scope.event_id, scheduled_for__lt=run.scheduled_for)
        if run.scope.event_id and earlier.filter(state__in=["picked", "running"]).exists():
            self.overtaken.append(run.id)
        result = scheduled_tasks.write_effect(run)
        if self.is_failing:
            raise facade.TaskFailed("failing")
        return result

    def send(self, count: int) -> bool:
        self.messages += count
        return True

    @rule(organizer_id=st.sampled_from(ORGANIZERS), event_id=st.sampled_from(EVENTS))
    def schedule_one(self, organizer_id: int | None, event_id: int | None) -> None:
        schedule_now(organizer_id, event_id=event_id)

    @rule()
    def schedule_recurring(self) -> None:
        schedule_cron()

    @rule()
    def time_passes(self) -> None:
        self.steps += 1
        let_pass(1_009 + 13 * self.steps)

    @rule()
    def pick(self) -> None:
        picker.run_once()

    @rule(step=st.sampled_from(PICKER_STEPS))
    def pick_and_be_killed(self, step: tuple[str, str]) -> None:
        with killed_at(*step):  # type: ignore[arg-type]
            picker.run_once()

    @rule()
    def lose_a_message(self) -> None:
        self.messages = max(0, self.messages - 1)

    @rule(is_doubled=st.booleans(), seconds_max=st.sampled_from([0.0, float("inf")]))
    def execute(self, is_doubled: bool, seconds_max: float) -> None:
        """For a share of time: one run, or all."""
        if self.messages:
            self.messages -= not is_doubled
            executor.execute_due(seconds_max)

    @rule(step=st.sampled_from(EXECUTOR_STEPS))
    def execute_and_be_killed(self, step: tuple[str, str]) -> None:
        if self.messages:
            with killed_at(*step):  # type: ignore[arg-type]
                executor.execute_due()

    @rule(is_failing=st.booleans())
    def fail(self, is_failing: bool) -> None:
        self.is_failing = is_failing

    @rule()
    def run_failed_again(self) -> None:
        for run_id in TaskRun.objects.filter(state="failed").values_list("pk", flat=True):
            facade.run_again(run_id, who="ada")

    @rule(data=st.data(), act=st.sampled_from([facade.cancel_task, facade.enable_task]))
    def cancel_or_enable(self, data: st.DataObject, act: object) -> None:
        ids = list(ScheduledTask.objects.order_by("pk").values_list("pk", flat=True))
        if ids:
            with suppress(problems.Invalid):  # Its time has passed.
                act(data.draw(st.sampled_from(ids)))  # type: ignore[operator]

    @invariant()
    def each_run_that_succeeded_has_one_effect_and_no_other_has_any(self) -> None:
        succeeded = TaskRun.objects.filter(state="succeeded").values_list("pk", flat=True)
        assert effects() == dict.fromkeys(succeeded, 1)

    @invariant()
    def no_run_overtakes_an_earlier_one_of_its_event(self) -> None:
        assert self.overtaken == []

    @invariant()
    def no_enabled_task_is_forgotten(self) -> None:
        open_runs = TaskRun.objects.filter(state__in=["picked", "running"]).values("task")
        idle = ScheduledTask.objects.filter(enabled=True, next_run_at=None).exclude(pk__in=open_runs)
        assert not idle.exclude(cron="").exists(), "a recurring task waits for nothing"
        assert not idle.filter(cron="", runs__isnull=True).exists(), "a task has neither a minute nor a run"

    def run_to_the_end(self) -> None:
        self.is_failing = False
        for _ in range(3):
            picker.run_once()
            if self.messages:
                executor.execute_due(float("inf"))
            self.messages = 0
            self.run_failed_again()
        assert not TaskRun.objects.filter(state__in=["running", "failed"]).exists()
        due = ScheduledTask.objects.filter(enabled=True, cron="")
        assert not due.exclude(runs__state="succeeded").exists(), "a task that runs once has not run"
        self.each_run_that_succeeded_has_one_effect_and_no_other_has_any()
        self.no_enabled_task_is_forgotten()


def test_whatever_is_killed_each_run_happens_once() -> None:
    run_state_machine_as_test(Scheduler, settings=settings(max_examples=examples(30), stateful_step_count=30))
