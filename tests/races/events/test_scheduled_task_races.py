"""Two members schedule an event's last allowed task, or one clicks twice, at the same moment."""

from typing import Any

import pytest

from apps.events import publication
from apps.events.facade import EventView
from apps.events.scheduled_tasks import limits
from apps.kernel.http import problems
from apps.kernel.scheduler import facade as scheduler
from apps.kernel.scheduler.models import ScheduledTask
from tests.support.factories import make_event
from tests.support.races import in_another_connection, storm, values

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def event(monkeypatch: pytest.MonkeyPatch) -> EventView:
    """An event that may have one task."""
    monkeypatch.setattr(limits, "TASKS_MAX", 1)
    return make_event(general_admission=5)


def add(event: EventView, **more: Any) -> int:
    daily = scheduler.Schedule(cron="0 9 * * *")
    scope = scheduler.Scope(event.id)
    return limits.schedule_task("events.archive", {}, daily, scope=scope, who="ada", account_id=1, **more)


def test_control_without_the_lock_of_the_event_two_additions_exceed_the_limit(
    event: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A: counts no task
    B: counts none either, adds one; COMMIT
    A: adds a second one
    """
    add_task, rivals = scheduler.add_task, [lambda: add(event)]

    def add_after_the_rival(*args: Any, **options: Any) -> int:
        if rivals:
            in_another_connection(rivals.pop())
        return add_task(*args, **options)

    monkeypatch.setattr(publication, "lock_event", lambda event_id: None)
    monkeypatch.setattr(scheduler, "add_task", add_after_the_rival)
    add(event)
    assert ScheduledTask.objects.count() == 2


def test_of_many_additions_at_the_limit_one_succeeds(event: EventView) -> None:
    outcomes = storm(6, lambda _: add(event))
    refused = [outcome.error for outcome in outcomes if outcome.error is not None]
    assert len(refused) == 5
    assert all(isinstance(error, problems.Problem) and "at most 1 tasks" in str(error) for error in refused)
    assert ScheduledTask.objects.count() == 1


def test_a_form_that_is_sent_many_times_at_once_schedules_one_task(event: EventView) -> None:
    found = values(storm(6, lambda _: add(event, key="form:1")))
    assert found == [ScheduledTask.objects.get().pk] * 6


def test_a_key_is_refused_with_other_content_also_of_another_event_at_the_same_moment(event: EventView) -> None:
    other = make_event("other", venue="Other", general_admission=5)
    outcomes = storm(6, lambda number: add((event, other)[number % 2], key="form:1"))
    refused = [outcome.error for outcome in outcomes if outcome.error is not None]
    assert [str(error) for error in refused] == ["form: was sent already with other values; open it again"] * 3
    assert ScheduledTask.objects.count() == 1
