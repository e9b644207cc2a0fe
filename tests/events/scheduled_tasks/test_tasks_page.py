"""The page of an event's scheduled tasks: schedule, change, cancel, run again, each within the user's role."""

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse

from apps.events.facade import EventView
from apps.events.models import AnnouncementVersion, Membership, Role
from apps.events.scheduled_tasks import limits, page
from apps.kernel import clock
from apps.kernel.scheduler import picker
from apps.kernel.scheduler.models import ScheduledTask, TaskRun
from tests.support.factories import make_event, make_member, make_organizer
from tests.support.kernel import scheduled_tasks
from tests.support.orders.sale import SAME_ORIGIN

pytestmark = pytest.mark.django_db(transaction=True)

ANNOUNCE = {"action": "schedule", "kind": "events.announce", "text": "Soon.", "cron": "0 9 * * *"}


@pytest.fixture
def event() -> EventView:
    make_organizer()
    return make_event(organizer="opera", general_admission=5, timezone="Europe/Berlin")


def client_of(role: Role = Role.ORGANIZER) -> Client:
    from apps.events.models import Organizer

    client = Client(headers=SAME_ORIGIN)
    client.force_login(make_member(Organizer.objects.get(slug="opera"), role))
    return client


def url(event: EventView) -> str:
    return reverse("admin:events_tasks", args=[event.id])


def test_a_task_is_scheduled_on_the_venues_clock_changed_canceled_and_enabled(event: EventView) -> None:
    client = client_of()
    form = client.get(f"{url(event)}?kind=reservations.open_section").content.decode()
    assert "Open a section to all buyers" in form
    assert 'value="floor"' in form
    given = {"action": "schedule", "kind": "reservations.open_section", "section": "floor"}
    year = clock.now().year + 1
    assert client.post(url(event), {**given, "once_at": f"{year}-07-01T20:00"}).status_code == 302
    task = ScheduledTask.objects.get()
    assert task.next_run_at is not None
    assert (task.next_run_at.hour, task.time_zone, task.created_by) == (18, "Europe/Berlin", "organizer@opera.example")
    shown = client.get(f"{url(event)}?task={task.pk}").content.decode()
    assert f'value="{year}-07-01T20:00"' in shown
    changed = {"action": "change", "task": task.pk, "section": "hall", "cron": "30 9 * * 1"}
    assert client.post(url(event), changed).status_code == 302
    task.refresh_from_db()
    assert (task.params, task.cron, task.once_at) == ({"section": "hall"}, "30 9 * * 1", None)
    assert client.post(url(event), {"action": "cancel", "task": task.pk}).status_code == 302
    assert not ScheduledTask.objects.get().enabled
    assert client.post(url(event), {"action": "enable", "task": task.pk}).status_code == 302
    assert ScheduledTask.objects.get().enabled


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"cron": "nonsense"}, "five fields are needed"),
        ({"cron": "* * * * *"}, "more often than once an hour"),
        ({"cron": "0,59 12 1 1 *"}, "more often than once an hour"),
        ({"cron": ""}, "give a time or a cron expression"),
        ({"once_at": "2020-01-01T10:00", "cron": ""}, "is in the past"),
        ({"once_at": "2020-01-01T10:00"}, "give a time or a cron expression"),
        ({"once_at": "soon"}, "Correct the fields below"),
        ({"text": ""}, "Correct the fields below"),
        ({"kind": "nonsense"}, ""),
    ],
)
def test_wrong_input_is_explained_and_kept(event: EventView, more: dict[str, str], text: str) -> None:
    response = client_of().post(url(event), ANNOUNCE | more)
    assert response.status_code in (422, 403)
    assert text in response.content.decode()
    assert not ScheduledTask.objects.exists()


def test_tasks_ahead_are_listed_first(event: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "TASKS_SHOWN", 2)
    client = client_of()
    for text in ("first", "second", "third", "fourth"):
        client.post(url(event), ANNOUNCE | {"text": text})
    first, second, _, fourth = ScheduledTask.objects.order_by("pk")
    for task in ScheduledTask.objects.exclude(pk=first.pk):
        client.post(url(event), {"action": "cancel", "task": task.pk})
    ScheduledTask.objects.filter(pk=second.pk).update(enabled=True)
    TaskRun.objects.create(task=second, scheduled_for=clock.now(), due_at=clock.now(), picked_at=clock.now())
    shown = client.get(url(event)).context["tasks"]
    assert [one["task"].pk for one in shown] == [second.pk, first.pk]
    monkeypatch.setattr(page, "TASKS_SHOWN", 3)
    assert client.get(url(event)).context["tasks"][2]["task"].pk == fourth.pk


def test_a_failed_run_is_shown_and_run_again_once(event: EventView) -> None:
    client = client_of()
    client.post(url(event), ANNOUNCE)
    task = ScheduledTask.objects.get()
    run = TaskRun.objects.create(
        task=task, scheduled_for=clock.now(), due_at=clock.now(), picked_at=clock.now(), state="failed",
        finished_at=clock.now(), error="the hall is dark",
    )  # fmt: skip
    shown = client.get(url(event)).content.decode()
    assert "the hall is dark" in shown
    assert "Run again" in shown
    again = {"action": "run_again", "task": task.pk, "run": run.pk}
    assert client.post(url(event), again).status_code == 302
    run.refresh_from_db()
    assert (run.state, run.asked_by) == ("picked", "organizer@opera.example")
    assert client.post(url(event), again).status_code == 409
    assert client.post(url(event), again | {"run": "1" * 17}).status_code == 404
    assert client.post(url(event), again | {"run": "x"}).status_code == 404


def test_a_task_of_a_member_who_has_left_fails_until_another_one_takes_it_over(event: EventView) -> None:
    """What counts is the permission at its minute, not the one when it was scheduled."""
    leaving = client_of()
    leaving.post(url(event), ANNOUNCE)
    task = ScheduledTask.objects.get()

    def run(again: Client | None = None) -> TaskRun:
        scheduled_tasks.let_pass(60 * 24 + 1)
        if again is None:
            picker.pick()
        else:
            again.post(url(event), {"action": "run_again", "task": task.pk, "run": TaskRun.objects.latest("pk").pk})
        found = TaskRun.objects.get(state="picked")
        scheduled_tasks.execute_due()
        found.refresh_from_db()
        return found

    assert run().state == "succeeded"
    Membership.objects.all().delete()
    staying = client_of(Role.BOX_OFFICE)
    failed = run()
    assert (failed.state, AnnouncementVersion.objects.count()) == ("failed", 1)
    assert "organizer@opera.example may no longer do this for the event" in failed.error
    assert "may no longer do this" in staying.get(url(event)).content.decode()
    assert run(staying).state == "succeeded", "it acts for the member who ran it again"
    assert run().state == "failed", "the next ones do not"
    staying.post(url(event), ANNOUNCE | {"action": "change", "task": task.pk})
    assert run().state == "succeeded"


def test_a_role_schedules_only_what_it_may_do_itself(event: EventView) -> None:
    client = client_of(Role.BOX_OFFICE)
    shown = client.get(url(event)).content.decode()
    assert "Post an announcement" in shown
    assert "Publish the event" not in shown
    assert client.post(url(event), ANNOUNCE | {"kind": "events.publish"}).status_code == 403
    assert client.post(url(event), ANNOUNCE).status_code == 302
    reader = client_of(Role.READ_ONLY)
    assert reader.post(url(event), ANNOUNCE).status_code == 403
    shown = reader.get(url(event)).content.decode()
    assert "Post an announcement" in shown
    assert "Schedule a task" not in shown
    assert ">Cancel<" not in shown
    assert client_of(Role.DOOR).get(url(event)).status_code == 403


def test_an_event_has_no_more_tasks_ahead_than_the_limit(event: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TASKS_MAX", 1)
    client = client_of()
    assert client.post(url(event), ANNOUNCE).status_code == 302
    refused = client.post(url(event), ANNOUNCE)
    assert refused.status_code == 422
    assert "An event has at most 1 tasks ahead" in refused.content.decode()
    first = ScheduledTask.objects.get()
    client.post(url(event), {"action": "cancel", "task": first.pk})
    assert client.post(url(event), ANNOUNCE | {"text": "Now."}).status_code == 302
    assert client.post(url(event), {"action": "enable", "task": first.pk}).status_code == 422
    changed = {"action": "change", "task": first.pk, "text": "Later.", "cron": "0 10 * * *"}
    assert client.post(url(event), changed).status_code == 422
    assert list(ScheduledTask.objects.order_by("pk").values_list("enabled", flat=True)) == [False, True]
    # A task that has ended needs no room.
    ScheduledTask.objects.filter(enabled=True).update(next_run_at=None)
    assert client.post(url(event), {"action": "enable", "task": first.pk}).status_code == 302


def test_a_double_click_schedules_one_task(event: EventView) -> None:
    client = client_of()
    found = re.search(r'name="form_key" value="([0-9a-f-]{36})"', client.get(f"{url(event)}?kind=events.announce").text)
    assert found is not None
    given = ANNOUNCE | {"form_key": found[1]}
    assert [client.post(url(event), given).status_code for _ in range(2)] == [302, 302]
    assert ScheduledTask.objects.get().key == f"form:{found[1]}"
    refused = client.post(url(event), given | {"text": "Later."})
    assert refused.status_code == 422
    assert "was sent already with other values" in refused.text
    for key in ("nonsense", "\0", "1" * 5_000):
        assert client.post(url(event), given | {"form_key": key}).status_code == 302


def test_tasks_of_another_event_are_not_found(event: EventView) -> None:
    client = client_of()
    client.post(url(event), ANNOUNCE)
    task = ScheduledTask.objects.get()
    other = make_event("other", organizer="opera", venue="Other")
    for action in ("cancel", "enable", "run_again"):
        assert client.post(url(other), {"action": action, "task": task.pk, "run": 1}).status_code == 404
    assert client.get(f"{url(other)}?task={task.pk}").status_code == 200
    assert client.get(reverse("admin:events_tasks", args=[10**9])).status_code == 404
    lists = [reverse(f"admin:scheduler_{name}_changelist") for name in ("scheduledtask", "taskrun")]
    assert picker.pick() == 0
    TaskRun.objects.create(
        task=task, scheduled_for=clock.now(), due_at=clock.now() + timedelta(days=1), picked_at=clock.now()
    )
    for address in lists:
        assert "Post an announcement" in client.get(address).content.decode()
