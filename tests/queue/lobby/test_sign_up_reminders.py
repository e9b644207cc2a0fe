"""Reminders to people who signed up for a draw: one each, a day before ticket sales open."""

from datetime import timedelta
from typing import Any

import pytest
from django.core import mail

from apps.accounts import facade as accounts
from apps.events import facade as events
from apps.events.models import Event, OnSale
from apps.kernel import clock
from apps.kernel.fastpath import cache
from apps.kernel.outbox.models import OutboxMessage
from apps.kernel.rate_limits import mail_caps
from apps.queue.lobby import sign_up_reminders
from apps.queue.models import QueueEntry, SignUp
from tests.support.orders.sale import deliver_outbox
from tests.support.queue.sign_ups import make_accounts, make_draw, try_to_join
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _site_url(settings: Any) -> None:
    settings.SITE_URL = "https://tickets.example"


def open_in(event: events.EventView, hours: float) -> events.EventView:
    """Let the event's sales open in so many hours. All sign-ups were two days ago."""
    opens_at = clock.now() + timedelta(hours=hours)
    OnSale.objects.filter(event_id=event.id).update(
        room_lobby_opens_at=opens_at - timedelta(days=3),
        opens_at=opens_at,
        sign_up_closes_at=opens_at,
        presale_until=opens_at + timedelta(hours=2),
    )
    SignUp.objects.update(signed_up_at=clock.now() - timedelta(days=2))
    cache.clear_all()
    return events.get_event_by_id(event.id)


def sent() -> dict[str, str]:
    """Schedule and deliver what is due; return the texts of the mails by recipient."""
    mail.outbox.clear()
    sign_up_reminders.schedule_reminders()
    deliver_outbox()
    assert len({letter.to[0] for letter in mail.outbox}) == len(mail.outbox)
    return {letter.to[0]: letter.body for letter in mail.outbox}


def test_each_person_is_reminded_once_with_venue_and_time_a_day_before_the_opening() -> None:
    event = make_draw()
    users = make_accounts(2)
    for user in users:
        try_to_join(event, user)
    open_in(event, 25)
    assert sent() == {}
    event = open_in(event, 23.5)
    letters = sent()
    assert sorted(letters) == sorted(user.email for user in users)
    text, html = letters[users[0].email], str(mail.outbox[0].alternatives[0].content)
    opens_at = f"{event.policy.opens_at:%Y, %H:%M} (UTC)"
    for part in (event.name, event.venue_name, opens_at, f"https://tickets.example/events/{event.slug}/wait"):
        assert part in text
        assert part in html
    assert "there is nothing to do" in text
    assert "only people who signed up can buy" in text
    assert sent() == {}


def test_the_reminder_of_a_person_who_left_the_lobby_says_how_to_take_part() -> None:
    event, (user,) = make_draw(), make_accounts(1)
    try_to_join(event, user)
    QueueEntry.objects.update(status="left", ended_at=clock.now())
    event = open_in(event, 5)
    (text,) = sent().values()
    assert "join again before sales open" in text
    assert f"https://tickets.example/events/{event.slug}/\n" in text


def test_no_reminder_goes_to_late_sign_ups_and_closed_accounts_nor_after_the_opening_or_a_cancellation() -> None:
    event, users = make_draw(), make_accounts(3)
    for user in users:
        try_to_join(event, user)
    open_in(event, 5)
    SignUp.objects.filter(account=users[0]).update(signed_up_at=clock.now() - timedelta(hours=1))
    accounts.User.objects.filter(pk=users[1].pk).update(is_active=False)
    sign_up_reminders.schedule_reminders()
    assert OutboxMessage.objects.filter(topic=sign_up_reminders.SEND_REMINDER).count() == 2
    Event.objects.filter(pk=event.id).update(status="canceled")
    cache.clear_all()
    assert sent() == {}
    SignUp.objects.update(reminded_at=None)
    Event.objects.filter(pk=event.id).update(status="published")
    open_in(event, -1)
    assert sent() == {}


def test_eight_processes_that_schedule_at_once_schedule_each_reminder_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each skips the sign-ups that another one has locked; what it then locks, it schedules in the same commit."""
    monkeypatch.setattr(sign_up_reminders, "BATCH_MAX", 4)
    event = make_draw()
    for user in make_accounts(12):
        try_to_join(event, user)
    open_in(event, 5)
    values(storm(8, lambda number: sign_up_reminders.schedule_reminders()))
    while sign_up_reminders.schedule_reminders():
        pass
    keys = OutboxMessage.objects.filter(topic=sign_up_reminders.SEND_REMINDER).values_list("key", flat=True)
    assert sorted(keys) == sorted(str(pk) for pk in SignUp.objects.values_list("pk", flat=True))


def test_reminders_have_turns_by_the_network_that_signed_up() -> None:
    event = make_draw()
    for number, user in enumerate(make_accounts(2)):
        try_to_join(event, user, address=f"198.51.{number}.1")
    open_in(event, 23.5)
    assert sign_up_reminders.schedule_reminders() == 2
    bodies = OutboxMessage.objects.filter(topic=sign_up_reminders.SEND_REMINDER).values_list("body", flat=True)
    expected = {mail_caps.origin_of(f"198.51.{number}.1") for number in range(2)}
    assert {body["origin"] for body in bodies} == expected


def test_the_caps_delay_a_reminder(settings: Any) -> None:
    settings.MAIL_PER_HOUR_MAX, settings.MAIL_PER_DAY_MAX = 1, 1
    event, (user,) = make_draw(), make_accounts(1)
    try_to_join(event, user)
    open_in(event, 5)
    assert mail_caps.count_mail(user.email) == 0
    assert sent() == {}
    message = OutboxMessage.objects.get(topic=sign_up_reminders.SEND_REMINDER)
    assert (message.done_at, message.dead_at) == (None, None)
    assert message.available_at > clock.now()
