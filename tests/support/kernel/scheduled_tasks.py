"""Scheduled tasks of a kind whose effect can be counted: each run writes one outbox message, in its transaction."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Literal

from django.db import connection
from django.db.models import F

from apps.kernel import clock
from apps.kernel.db import sql
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.models import OutboxMessage
from apps.kernel.scheduler import executor, facade, picker, registry, schedule_times
from apps.kernel.scheduler.models import ScheduledTask, TaskRun

KIND = "test.effect"
TOPIC = "test.effects"
SITE = facade.Scope()


class Killed(SystemExit):
    """The process ends here."""


class AnyParams(facade.TaskParams):
    """Parameters that are stored as given."""

    def to_json(self) -> dict[str, Any]:
        return dict(self.data)


def write_effect(run: facade.Run) -> str:
    outbox.publish(TOPIC, str(run.id), {"run": run.id})
    return "effect"


def register(handler: Callable[[facade.Run], str | None] = write_effect, **more: Any) -> None:
    facade.register_task(KIND, handler, AnyParams, label="Effect", for_event=False, **more)


@contextmanager
def registered(handler: Callable[[facade.Run], str | None] = write_effect, **more: Any) -> Iterator[None]:
    """Register the kind, and wake no executor, until the block ends."""
    kinds, wakes = dict(registry._kinds), list(picker._wakes)
    register(handler, **more)
    facade.register_wake(lambda count: True)
    try:
        yield
    finally:
        registry._kinds.clear()
        registry._kinds.update(kinds)
        picker._wakes[:] = wakes


def schedule_now(organizer_id: int | None = None, *, event_id: int | None = None, **params: Any) -> int:
    """Schedule a task for this minute, so that it is due."""
    now = facade.Schedule(once_at=schedule_times.whole_minute(clock.now()))
    scope = facade.Scope(event_id, organizer_id)
    return facade.schedule_task(KIND, params, now, scope=scope, who="ada")


def schedule_cron(cron: str = "* * * * *", time_zone: str = "UTC") -> int:
    return facade.schedule_task(KIND, {}, facade.Schedule(cron=cron, time_zone=time_zone), scope=SITE, who="ada")


def pick_all() -> list[int]:
    """Pick all tasks that are due in the next two minutes, and return the ids of the runs that wait."""
    while picker.pick():
        pass
    return waiting()


def waiting() -> list[int]:
    return list(TaskRun.objects.filter(state="picked").order_by("pk").values_list("pk", flat=True))


def execute_due() -> int:
    """Give due runs their turns, as a picker does, and execute them; return how many."""
    while picker.give_turns():
        pass
    return executor.execute_due(float("inf"))


def let_pass(minutes: int) -> None:
    """Move all times of tasks and runs into the past, as if so many minutes had passed."""
    by = timedelta(minutes=minutes)
    ScheduledTask.objects.filter(next_run_at__isnull=False).update(next_run_at=F("next_run_at") - by)
    ScheduledTask.objects.filter(once_at__isnull=False).update(once_at=F("once_at") - by)
    TaskRun.objects.update(scheduled_for=F("scheduled_for") - by, due_at=F("due_at") - by)
    TaskRun.objects.filter(started_at__isnull=False).update(started_at=F("started_at") - by)


def effects() -> Counter[int]:
    """Return how many effects each run has."""
    return Counter(body["run"] for body in OutboxMessage.objects.filter(topic=TOPIC).values_list("body", flat=True))


@contextmanager
def killed_at(statement: str, moment: Literal["before", "after"]) -> Iterator[None]:
    """End the process right before or after the named statement: nothing after it runs, and the database rolls its
    transaction back."""

    def observer(name: str, when: str) -> None:
        if (name, when) == (statement, moment):
            raise Killed

    with sql.observe(observer):
        try:
            yield
        except Killed:
            connection.close()
