"""What each kind of task does at its minute, once, and what it says when it cannot."""

import csv
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from apps.events import facade as events
from apps.events.announcements import queries
from apps.events.creation import EventSpec, GeneralAdmission, create_event
from apps.events.models import AnnouncementArchive, Category, Event, Role, Section
from apps.kernel import clock
from apps.kernel.http import problems
from apps.kernel.scheduler import executor, facade, picker, schedule_times
from apps.kernel.scheduler.models import TaskRun
from apps.orders.models import Reminder
from apps.reservations.models import InventoryChange
from tests.support.factories import assert_audit_clean, hold, make_event, make_member, make_organizer
from tests.support.kernel.scheduled_tasks import execute_due
from tests.support.orders.sale import buy, deliver_outbox
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picker, "_wakes", [lambda count: True])


def schedule(event_id: int, kind: str, who: str = "ada", **params: str) -> int:
    now = facade.Schedule(once_at=schedule_times.whole_minute(clock.now()))
    return facade.schedule_task(kind, params, now, scope=facade.Scope(event_id), who=who)


def run(event_id: int, kind: str, who: str = "ada", **params: str) -> TaskRun:
    """Schedule the task for now, execute it, and return its run."""
    task_id = schedule(event_id, kind, who, **params)
    picker.pick()
    waiting = TaskRun.objects.get(task=task_id)
    execute_due()
    waiting.refresh_from_db()
    return waiting


def test_a_section_closes_and_opens_and_the_log_names_the_scheduler_of_the_task() -> None:
    event = make_event(general_admission=5)
    assert run(event.id, "reservations.close_section", section="floor").result == "floor is closed"
    assert Section.objects.get(slug="floor").needs_access
    assert run(event.id, "reservations.open_section", section="floor").result == "floor is open"
    assert not Section.objects.get(slug="floor").needs_access
    assert run(event.id, "reservations.open_section", section="floor").result == "floor was open already"
    assert list(InventoryChange.objects.values_list("kind", "who").order_by("pk")) == [
        ("guarded", "ada"), ("opened", "ada"),
    ]  # fmt: skip


def test_a_price_changes_for_new_reservations() -> None:
    event = make_event()
    assert run(event.id, "reservations.reprice", category="Standard", price="12.50").state == "succeeded"
    assert Category.objects.get().price_minor == 1_250


def test_a_draft_is_published_and_an_incomplete_one_says_why() -> None:
    create_event(
        EventSpec(
            slug="later",
            name="Later",
            venue="The Venue",
            starts_at=clock.now() + timedelta(days=30),
            currency="USD",
            plan=None,
            prices={},
            general_admission=(GeneralAdmission("Floor", 5, 1_000),),
            opens_at=clock.now(),
            draft=True,
        )
    )
    draft = Event.objects.get(slug="later")
    section = Section.objects.get()
    Section.objects.all().delete()
    assert run(draft.pk, "events.publish").state == "failed"
    section.save(force_insert=True)
    assert run(draft.pk, "events.publish").result == "published"
    assert events.get_event("later").is_public
    assert run(draft.pk, "events.publish").result == "it was published already"
    Event.objects.filter(pk=draft.pk).update(status="canceled")
    assert run(draft.pk, "events.publish").error == "the event is canceled, so it was not published"
    assert run(10**9, "events.publish").error == "There is no such event."


def test_an_announcement_is_posted_once() -> None:
    event = make_event()
    first = run(event.id, "events.announce", text="Doors open at 19:00.")
    assert first.state == "succeeded"
    current = queries.get_current(event.id)
    assert [one.text for one in current.announcements] == ["Doors open at 19:00."]
    Event.objects.update(starts_at=clock.now())
    assert "has begun" in run(event.id, "events.announce", text="The bar is open.").error


def test_announcements_of_an_event_that_is_over_are_archived(monkeypatch: pytest.MonkeyPatch) -> None:
    event = make_event()
    run(event.id, "events.announce", text="Doors open at 19:00.")
    Event.objects.update(starts_at=clock.now())
    task_id = schedule(event.id, "events.archive")
    picker.pick()
    later = clock.now() + timedelta(days=31)
    monkeypatch.setattr(clock, "now", lambda: later)
    archiving = TaskRun.objects.get(task=task_id)
    execute_due()
    archiving.refresh_from_db()
    assert (archiving.state, archiving.result) == ("succeeded", "1 versions archived")
    assert AnnouncementArchive.objects.get().version_count == 1


def test_a_reminder_is_mailed_to_each_buyer_once() -> None:
    event = make_event()
    buy(hold(event, seats=["hall-A-1"]))
    deliver_outbox()
    mail.outbox.clear()
    assert run(event.id, "orders.remind", text="Bring your ticket.").result == "1 emails"
    deliver_outbox()
    (sent,) = mail.outbox
    assert "Bring your ticket." in sent.body
    assert sent.subject == f"Reminder: {event.name}"
    assert_audit_clean()


def test_a_reminder_runs_once_before_the_event_and_three_times_a_day_at_most() -> None:
    event = make_event()
    buy(hold(event, seats=["hall-A-1"]))
    daily = facade.Schedule(cron="0 9 * * *")
    with pytest.raises(problems.Invalid, match="runs once only"):
        facade.schedule_task("orders.remind", {"text": "Soon."}, daily, scope=facade.Scope(event.id), who="ada")
    task_id = schedule(event.id, "orders.remind", text="Soon.")
    with pytest.raises(problems.Invalid, match="runs once only"):
        facade.change_task(task_id, {"text": "Soon."}, daily, who="ada")
    facade.cancel_task(task_id)
    assert [run(event.id, "orders.remind", text="Soon.").state for _ in range(3)] == ["succeeded"] * 3
    assert "at most 3 reminders" in run(event.id, "orders.remind", text="Soon.").error
    Reminder.objects.update(at=clock.now() - timedelta(hours=24))
    assert run(event.id, "orders.remind", text="Soon.").state == "succeeded"
    Event.objects.update(starts_at=clock.now())
    assert "has begun" in run(event.id, "orders.remind", text="Soon.").error


def test_two_reminders_at_once_count_each_other() -> None:
    """A: locks the event, counts
    B: waits for the event, and counts A's reminder after its commit
    """
    event = make_event()
    for _ in range(2):
        assert run(event.id, "orders.remind", text="Soon.").state == "succeeded"
    for _ in range(4):
        schedule(event.id, "orders.remind", text="Soon.")
    picker.pick()
    picker.give_turns()
    values(storm(4, lambda _: executor.execute_next()))
    assert TaskRun.objects.filter(state="succeeded").count() == 3


def test_the_figures_go_to_the_person_who_scheduled_them_while_they_may_be_seen() -> None:
    organizer = make_organizer()
    event = make_event(organizer="opera")
    member = make_member(organizer)
    member.email = "ada@opera.example"
    member.save()
    assert run(event.id, "orders.mail_figures", who=member.username).state == "succeeded"
    deliver_outbox()
    assert [message.to for message in mail.outbox] == [["ada@opera.example"]]
    assert "Sold: 0 of 50" in mail.outbox[0].body
    member.is_active = False
    member.save()
    run(event.id, "orders.mail_figures", who=member.username)
    deliver_outbox()
    assert len(mail.outbox) == 1


def test_the_figures_are_exported_to_a_file_for_members_who_may_see_them() -> None:
    organizer = make_organizer()
    event = make_event(organizer="opera")
    buy(hold(event, seats=["hall-A-1"]))
    exported = run(event.id, "orders.export_figures")
    assert exported.state == "succeeded", exported.error
    url = reverse("admin:events_task_file", args=[exported.pk])

    def get(role: Role) -> HttpResponse:
        client = Client()
        client.force_login(make_member(organizer, role))
        if role == Role.FINANCE:
            assert url in client.get(reverse("admin:events_tasks", args=[event.id])).content.decode()
        return client.get(url)

    response = get(Role.FINANCE)
    rows = list(csv.DictReader(response.content.decode("utf-8-sig").splitlines()))
    assert [(row["Section"], row["Sold"], row["Orders"]) for row in rows] == [("Hall", "1", ""), ("All", "1", "1")]
    assert response["Content-Disposition"].startswith(f'attachment; filename="sales-{event.slug}-')
    assert get(Role.DOOR).status_code == 403


@pytest.mark.parametrize(
    ("kind", "params", "field"),
    [
        ("reservations.open_section", {"section": "unknown"}, "section"),
        ("reservations.open_section", {}, "section"),
        ("reservations.reprice", {"category": "Standard", "price": "12,50"}, "price"),
        ("reservations.reprice", {"category": "Other", "price": "12.50"}, "category"),
        ("events.announce", {"text": " \n"}, "text"),
        ("events.announce", {"text": "a\x00b"}, "text"),
        ("orders.remind", {"text": ""}, "text"),
    ],
)
def test_wrong_parameters_are_refused_when_the_task_is_scheduled(kind: str, params: dict[str, Any], field: str) -> None:
    event = make_event()
    with pytest.raises(problems.Invalid) as refused:
        schedule(event.id, kind, **params)
    assert list(refused.value.extra["errors"]) == [field]


def test_every_kind_for_staff_needs_a_permission_of_a_role() -> None:
    from apps.events.organizers.roles import ROLE_PERMISSIONS

    known = frozenset().union(*ROLE_PERMISSIONS.values())
    kinds = [kind for kind in facade.kinds() if kind.name != "test.effect"]
    assert len(kinds) >= 8
    assert {kind.permission for kind in kinds if kind.for_event} <= known
    assert {kind.permission for kind in kinds if not kind.for_event} == {""}, "only code schedules these"
