"""Mails to people who signed up for a draw: one each, with the number, once all numbers are drawn."""

import re
from datetime import timedelta
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.core import mail

from apps.accounts import facade as accounts
from apps.events.models import OnSale
from apps.kernel import clock
from apps.kernel.mail import new_domains
from apps.kernel.outbox.models import OutboxMessage
from apps.kernel.rate_limits import mail_caps
from apps.queue.lobby import sign_up_mail, sign_up_reminders
from apps.queue.models import QueueEntry, SignUp
from tests.support.orders.sale import deliver_outbox
from tests.support.queue.sign_ups import make_account, make_accounts, make_draw, run_draw, try_to_join
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _site_url(settings: Any) -> None:
    settings.SITE_URL = "https://tickets.example"


def sent() -> dict[str, str]:
    """Schedule and deliver what is due; return the texts of the mails by recipient."""
    mail.outbox.clear()
    sign_up_mail.schedule_mails()
    deliver_outbox()
    assert len({letter.to[0] for letter in mail.outbox}) == len(mail.outbox)
    return {letter.to[0]: letter.body for letter in mail.outbox}


def test_each_person_gets_one_mail_with_the_drawn_number_after_the_draw() -> None:
    event = make_draw()
    users = make_accounts(5)
    for user in users:
        try_to_join(event, user)
    assert sent() == {}
    event = run_draw(event)
    numbers = {user.email: QueueEntry.objects.get(account=user).number for user in users}
    letters = sent()
    found = {address: re.search(r"number (\d+)\.", text) for address, text in letters.items()}
    assert {address: int(match[1]) for address, match in found.items() if match} == numbers
    assert [int(letter.body.split("number ")[1].split(".")[0]) for letter in mail.outbox] == [1, 2, 3, 4, 5]
    text = letters[users[0].email]
    assert f"https://tickets.example/events/{event.slug}/wait" in text
    assert "only people who signed up can buy" in text
    assert event.name in str(mail.outbox[0].alternatives[0].content)
    assert sent() == {}


def test_no_mail_goes_to_people_who_left_or_bought_or_whose_account_is_not_confirmed_any_more() -> None:
    event = make_draw()
    users = make_accounts(6)
    for user in users:
        try_to_join(event, user)
    run_draw(event)
    QueueEntry.objects.filter(account=users[0]).update(status="left", ended_at=clock.now())
    QueueEntry.objects.filter(account=users[1]).update(status="completed", ended_at=clock.now())
    accounts.User.objects.filter(pk=users[2].pk).update(is_active=False)
    EmailAddress.objects.filter(user=users[3]).update(verified=False)
    SignUp.objects.filter(account=users[4]).update(account=None)
    assert list(sent()) == [users[5].email]


def test_no_mail_is_sent_once_sales_are_over() -> None:
    event = make_draw()
    try_to_join(event, make_accounts(1)[0])
    run_draw(event)
    OnSale.objects.update(
        presale_condition="",
        presale_until=None,
        sign_up_closes_at=None,
        opens_at=clock.now() - timedelta(minutes=1),
        closes_at=clock.now() - timedelta(seconds=1),
    )
    assert sent() == {}


def test_eight_processes_that_schedule_at_once_schedule_each_mail_once(monkeypatch) -> None:
    """Each skips the sign-ups that another one has locked; what it then locks, it schedules in the same commit."""
    monkeypatch.setattr(sign_up_mail, "BATCH_MAX", 4)
    event = make_draw()
    users = make_accounts(12)
    for user in users:
        try_to_join(event, user)
    run_draw(event)
    counts = values(storm(8, lambda number: sign_up_mail.schedule_mails()))
    assert sum(counts) <= 12
    while sign_up_mail.schedule_mails():
        pass
    keys = list(OutboxMessage.objects.filter(topic=sign_up_mail.SEND_MAIL).values_list("key", flat=True))
    assert sorted(keys) == sorted(str(pk) for pk in SignUp.objects.values_list("pk", flat=True))


def test_mails_have_turns_by_the_network_that_signed_up() -> None:
    """One person with many accounts, whose mail servers became slow, otherwise keeps others waiting for minutes."""
    event = make_draw()
    many, one = make_accounts(4), make_account("another@example.org")
    for user in many:
        try_to_join(event, user, address="192.0.2.1")
    try_to_join(event, one, address="198.51.100.1")
    run_draw(event)
    assert sign_up_mail.schedule_mails() == 5
    assert not SignUp.objects.exclude(origin="").exists(), "it is not needed any more"
    origins = {
        accounts.User.objects.get(pk=SignUp.objects.get(pk=body["sign_up"]).account_id).email: body["origin"]
        for body in OutboxMessage.objects.filter(topic=sign_up_mail.SEND_MAIL).values_list("body", flat=True)
    }
    assert {origins[user.email] for user in many} == {mail_caps.origin_of("192.0.2.1")}
    assert origins[one.email] == mail_caps.origin_of("198.51.100.1")


def test_mails_of_draws_to_new_domains_are_among_those_that_strangers_can_cause() -> None:
    assert {sign_up_mail.SEND_MAIL, sign_up_reminders.SEND_REMINDER} <= new_domains._stranger_topics


def test_the_caps_delay_a_mail(settings: Any) -> None:
    settings.MAIL_PER_HOUR_MAX, settings.MAIL_PER_DAY_MAX = 1, 1
    event = make_draw()
    (user,) = make_accounts(1)
    try_to_join(event, user)
    run_draw(event)
    assert mail_caps.count_mail(user.email) == 0
    assert sent() == {}
    message = OutboxMessage.objects.get(topic=sign_up_mail.SEND_MAIL)
    assert (message.done_at, message.dead_at) == (None, None)
    assert message.available_at > clock.now()
