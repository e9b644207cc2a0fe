"""Caps on the mails of one address: they delay mails, never orders, and lose nothing."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.db import connection, transaction

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.mail.new_domains import sender_of
from apps.kernel.models import MailCount
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.models import OutboxMessage
from apps.kernel.rate_limits import mail_caps
from apps.orders import topics
from apps.orders.cancellation import order_cancellation
from apps.orders.cancellation.oversell import OrderSales
from apps.orders.mail import request_confirmation, resend_tickets
from apps.orders.models import Order, TransferPolicy
from apps.orders.payments import settlement
from apps.orders.staff.buyer_correction import correct_buyer
from apps.orders.tickets import reissue
from apps.orders.transfers import transfers
from tests.support.factories import assert_audit_clean, hold, make_event, make_organizer
from tests.support.orders.sale import EMAIL, buy, deliver_outbox, place_order
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _caps(settings: Any) -> None:
    settings.MAIL_PER_HOUR_MAX, settings.MAIL_PER_DAY_MAX = 3, 5


FRIEND = "friend@example.org"
CORRECT = "ada.buyer@example.net"


@pytest.fixture
def concert(db: None) -> events.EventView:
    return make_event()


def let_pass(hours: float) -> None:
    """Move the counted periods and the due times of postponed mails into the past."""
    for count in MailCount.objects.all():
        count.hour_from -= timedelta(hours=hours)
        count.day_from -= timedelta(hours=hours)
        count.save()
    for message in OutboxMessage.objects.filter(done_at=None):
        message.available_at -= timedelta(hours=hours)
        message.save()


def replace_code(order: Order) -> None:
    """The owner replaces the code of the order's one ticket."""
    reissue.reissue_ticket(order.pk, order.tickets.get(voided_at=None).code, reissue.BUYER)
    deliver_outbox()


def offer(order: Order, email: str) -> None:
    transfers.offer_ticket(order.pk, {"ticket": order.tickets.get(voided_at=None).code, "email": email})
    deliver_outbox()


def test_a_cap_delays_mails_and_neither_orders_nor_other_addresses(concert: events.EventView) -> None:
    orders = [buy(hold(concert, seats=[f"hall-A-{n}"])) for n in range(1, 8)]
    other = buy(hold(concert, seats=["hall-B-1"]), email="another@example.org")
    assert {order.status for order in (*orders, other)} == {Order.Status.CONFIRMED}
    assert [message.to for message in mail.outbox] == [[EMAIL]] * 3 + [["another@example.org"]]
    waiting = OutboxMessage.objects.filter(topic=topics.SEND_TICKETS, done_at=None)
    assert waiting.count() == 4
    assert {message.attempts for message in waiting} == {0}, "a delay is no failed attempt"
    origins = {sender_of(message).origin for message in waiting}  # type: ignore[arg-type]
    assert origins == {f"organizer {concert.organizer_id}/event {concert.id}"}
    seconds = [(message.available_at - clock.now()).total_seconds() for message in waiting]
    assert all(3_000 < one <= 3_600 for one in seconds)
    let_pass(1.1)
    deliver_outbox()
    assert len(mail.outbox) == 6, "two more: then the cap of the day is reached"
    let_pass(1.1)
    deliver_outbox()
    assert len(mail.outbox) == 6
    let_pass(22)
    deliver_outbox()
    assert len(mail.outbox) == 8
    assert Order.objects.filter(tickets_sent_at=None).count() == 0
    assert_audit_clean()


def test_notices_that_an_owner_can_repeat_leave_room_for_tickets(concert: events.EventView, settings: Any) -> None:
    """An order with a stranger's address: offering and withdrawing its ticket again and again mails the stranger."""
    settings.MAIL_PER_HOUR_MAX = settings.MAIL_PER_DAY_MAX = 8
    TransferPolicy.objects.create(event_id=concert.id, per_ticket_max=50, per_recipient_max=50)
    order = buy(hold(concert, seats=["hall-A-1"]))
    offered = {"ticket": order.tickets.get().code, "email": FRIEND}
    for _ in range(6):
        transfers.withdraw_offer(order.pk, transfers.offer_ticket(order.pk, offered).pk)
        deliver_outbox()
    to_buyer = [message.subject for message in mail.outbox if message.to == [EMAIL]]
    assert len(to_buyer) == 3, "the tickets, and two notices: a quarter of the cap"
    assert buy(hold(concert, seats=["hall-A-2"])).tickets_sent_at is not None


def test_a_tag_in_the_address_is_the_same_mailbox() -> None:
    for address in ("ann@example.org", "Ann+one@example.org", " ann+two@EXAMPLE.org "):
        assert mail_caps.count_mail(address) == 0
    assert mail_caps.count_mail("ann@example.org") > 0
    assert mail_caps.count_mail("ann@example.com") == 0
    stored = str(list(MailCount.objects.values()))
    assert "ann" not in stored


def test_concurrent_mails_do_not_exceed_the_cap() -> None:
    waits = values(storm(8, lambda number: mail_caps.count_mail(EMAIL)))
    assert sorted(wait == 0 for wait in waits) == [False] * 5 + [True] * 3


def test_a_naive_count_would_exceed_the_cap() -> None:
    """Control: counting first and adding afterwards lets concurrent mails pass."""

    def naive(number: int) -> bool:
        known = MailCount.objects.filter(pk="x").first()
        count = known.hour_count if known else 0
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(0.2)")
        if count >= 3:
            return False
        now = clock.now()
        MailCount.objects.update_or_create(
            pk="x", defaults={"hour_from": now, "hour_count": count + 1, "day_from": now, "day_count": count + 1}
        )
        return True

    assert sum(values(storm(6, naive))) > 3


class Panic(BaseException):
    """Like a panic of a library in Rust: no Exception."""


@pytest.mark.parametrize("error", [OSError("the mail server is away"), Panic()])
def test_a_mail_that_fails_is_not_counted(
    concert: events.EventView, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def refuse(self: Any, *args: Any) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("django.core.mail.EmailMultiAlternatives.send", refuse)
        order = buy(hold(concert, seats=["hall-A-1"]))
    assert MailCount.objects.get().hour_count == 0
    OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now())
    deliver_outbox()
    order.refresh_from_db()
    assert order.tickets_sent_at is not None


def test_tickets_that_were_paid_for_wait_for_no_mail_about_another_event(
    concert: events.EventView, settings: Any
) -> None:
    """A stranger can pay for tickets with any address, return them, and do so again."""
    for number in range(1, 6):
        buy(hold(concert, seats=[f"hall-A-{number}"]))
    assert len(mail.outbox) == 3
    own = buy(hold(make_event("another", venue="B"), seats=["hall-A-1"]))
    assert own.tickets_sent_at is not None


def test_free_orders_of_strangers_delay_no_mail_about_a_paid_order(concert: events.EventView, settings: Any) -> None:
    """Each order of a stranger, with the buyer's address or offered to it, mails what it can."""
    settings.MAIL_PER_HOUR_MAX, settings.MAIL_PER_DAY_MAX = 8, 100
    free = make_event("free", venue="F", rows=0, general_admission=50, place_price_minor=0)
    for event in (concert, free):
        TransferPolicy.objects.create(event_id=event.id, per_ticket_max=50, per_recipient_max=50)
    own, from_friend = (
        buy(hold(concert, seats=[f"hall-A-{number}"]), email=email) for number, email in enumerate((EMAIL, FRIEND), 1)
    )
    mail.outbox.clear()
    for email in [EMAIL] * 6 + ["stranger@example.net"] * 3:
        order = buy(hold(free, ga_section="floor", ga_quantity=1), email=email)
        replace_code(order)
        offer(order, FRIEND if email == EMAIL else EMAIL)
    sent = Counter(message.subject for message in mail.outbox if message.to == [EMAIL])
    assert sent == {
        "Your tickets for Free": 4 + 1, "You offered a ticket for Free": 1, "A ticket for Free is waiting for you": 2,
    }, "a half of the cap for first mails, and a quarter for owners and offers each"  # fmt: skip
    mail.outbox.clear()
    replace_code(own)
    offer(own, FRIEND)
    offer(from_friend, EMAIL)
    assert [message.subject for message in mail.outbox if message.to == [EMAIL]] == [
        "Your tickets for Concert", "You offered a ticket for Concert", "A ticket for Concert is waiting for you",
    ]  # fmt: skip
    assert_audit_clean()


def test_owners_of_paid_orders_delay_each_other_only_at_the_cap_of_the_event(
    concert: events.EventView, settings: Any
) -> None:
    settings.MAIL_PER_HOUR_MAX, settings.MAIL_PER_DAY_MAX = 4, 100
    orders = [buy(hold(concert, seats=[f"hall-A-{number}"])) for number in range(1, 7)]
    mail.outbox.clear()
    for order in (*orders[:1] * 3, *orders[1:]):
        replace_code(order)
    assert len(mail.outbox) == 4, "one of each of four orders"
    replace_code(buy(hold(make_event("another", venue="B"), seats=["hall-A-1"])))
    assert [message.subject for message in mail.outbox[4:]] == ["Your tickets for Another"] * 2


@pytest.mark.parametrize("act", ["resend", "replace the codes"])
def test_mails_of_staff_wait_for_no_delayed_mail_of_the_owner(
    concert: events.EventView, act: str, settings: Any
) -> None:
    settings.MAIL_PER_HOUR_MAX, settings.MAIL_PER_DAY_MAX = 4, 100
    order = buy(hold(concert, seats=["hall-A-1"]))
    for _ in range(2):
        replace_code(order)
    assert len(mail.outbox) == 2, "the second new code waits: a quarter of the cap"
    if act == "resend":
        resend_tickets(order.pk, who="staff:1")
    else:
        reissue.reissue_order(order.pk, "staff:1")
    deliver_outbox()
    assert len(mail.outbox) == 3
    code = order.tickets.get(voided_at=None).code
    assert code in str(mail.outbox[2].body)
    let_pass(1.1)
    deliver_outbox()
    assert len(mail.outbox) == 4
    assert code in str(mail.outbox[3].body), "the delayed mail has the present code"


@pytest.mark.parametrize("act", ["correct the address", "correct the name", "move to other seats"])
def test_tickets_that_staff_change_wait_for_no_delayed_first_mail(
    concert: events.EventView, act: str, settings: Any
) -> None:
    settings.MAIL_PER_HOUR_MAX, settings.MAIL_PER_DAY_MAX = 2, 100
    for number in (1, 2, 3):
        order = buy(hold(concert, seats=[f"hall-A-{number}"]))
    mail.outbox.clear()
    if act == "move to other seats":
        with transaction.atomic():
            OrderSales().reissue(order, order.reservation_id)
    else:
        email, name = (CORRECT, order.name) if act == "correct the address" else (order.email, "Ada Byron")
        correct_buyer(order.pk, email=email, name=name, why="a typo", who="staff:1")
    deliver_outbox()
    order.refresh_from_db()
    letters = [message for message in mail.outbox if message.subject == "Your tickets for Concert"]
    assert [message.to for message in letters] == [[order.email]]
    assert order.tickets.get(voided_at=None).code in str(letters[0].body)
    let_pass(1.1)
    mail.outbox.clear()
    deliver_outbox()
    assert mail.outbox == [], "the delayed first mail is dropped"
    assert not OutboxMessage.objects.filter(done_at=None).exists()


def test_a_new_code_waits_for_no_delayed_mail_to_a_corrected_address(concert: events.EventView, settings: Any) -> None:
    settings.MAIL_PER_HOUR_MAX, settings.MAIL_PER_DAY_MAX = 4, 100
    order = buy(hold(concert, seats=["hall-A-1"]))
    for _ in range(2):
        replace_code(order)
    correct_buyer(order.pk, email=CORRECT, name=order.name, why="a typo", who="staff:1")
    deliver_outbox()
    mail.outbox.clear()
    replace_code(order)
    assert [message.to for message in mail.outbox] == [[CORRECT]]


def test_confirmation_mails_have_a_cap_of_their_own(concert: events.EventView, settings: Any) -> None:
    """Anyone with the order's link can request them: they must not delay the owner's other mails, nor may those of
    strangers' orders delay them."""
    settings.MAIL_PER_HOUR_MAX, settings.MAIL_PER_DAY_MAX = 12, 100
    order = buy(hold(concert, seats=["hall-A-1"]))
    for _ in range(10):
        request_confirmation(order.pk)
        deliver_outbox()
    assert len(mail.outbox) == 4, "the tickets and three confirmations: a quarter of twelve"
    waiting = OutboxMessage.objects.filter(topic=topics.SEND_CONFIRMATION, done_at=None)
    assert waiting.count() == 1, "one request waits; further ones add none"
    resend_tickets(order.pk)
    deliver_outbox()
    assert len(mail.outbox) == 5
    OutboxMessage.objects.filter(done_at=None).update(created_at=clock.now() - timedelta(hours=1))
    let_pass(2)
    deliver_outbox()
    assert len(mail.outbox) == 5, "a link that the buyer no longer waits for is not sent"
    assert not waiting.exists()
    while mail_caps.count_mail(EMAIL) == 0:
        pass
    request_confirmation(order.pk)
    deliver_outbox()
    assert len(mail.outbox) == 6


def test_notices_of_failed_orders_use_only_their_share(concert: events.EventView, settings: Any) -> None:
    """Anyone can let orders with any address fail: that must not delay its owner's other mails, nor may those delay
    these."""
    settings.MAIL_PER_HOUR_MAX, settings.MAIL_PER_DAY_MAX = 12, 100
    while mail_caps.count_mail(EMAIL) == 0:
        pass
    for number in range(1, 6):
        order = place_order(hold(concert, seats=[f"hall-A-{number}"]))
        with transaction.atomic():
            settlement.end_order(order, Order.Status.FAILED, Order.Reason.PROVIDER_AWAY)
        deliver_outbox()
    assert len(mail.outbox) == 3, "a quarter of twelve"
    buy(hold(concert, seats=["hall-B-1"]))
    assert len(mail.outbox) == 4


@pytest.mark.parametrize("caps", [(0, 0), (0, 2), (2, 0)])
def test_each_cap_can_be_switched_off(settings: Any, caps: tuple[int, int]) -> None:
    settings.MAIL_PER_HOUR_MAX, settings.MAIL_PER_DAY_MAX = caps
    allowed = sum(mail_caps.count_mail(EMAIL) == 0 for _ in range(10))
    assert allowed == (10 if caps == (0, 0) else 2)


def test_old_counts_are_deleted() -> None:
    mail_caps.count_mail(EMAIL)
    assert mail_caps.delete_counts(clock.now() - timedelta(days=2)) == 0
    let_pass(49)
    assert mail_caps.delete_counts(clock.now() - timedelta(days=2)) == 1
    assert outbox.deliver() == 0


def test_notices_of_refunds_delay_no_mail_of_staff(concert: events.EventView, settings: Any) -> None:
    """A stranger can have payments for orders with any address refunded."""
    settings.MAIL_PER_HOUR_MAX, settings.MAIL_PER_DAY_MAX = 4, 100
    for number in range(1, 5):
        order = buy(hold(concert, seats=[f"hall-A-{number}"]), email="other@example.org")
        Order.objects.filter(pk=order.pk).update(email=EMAIL)
        order_cancellation.refund_order(order.pk, "staff:1")
        deliver_outbox()
    refunds = [message for message in mail.outbox if "was refunded" in message.subject]
    assert len(refunds) == 2, "half of the cap"
    own = buy(hold(concert, seats=["hall-B-1"]))
    resend_tickets(own.pk, who="staff:1")
    mail.outbox.clear()
    deliver_outbox()
    assert [message.to for message in mail.outbox] == [[EMAIL]]


def test_mails_that_staff_cause_count_apart_for_each_organizer(concert: events.EventView, settings: Any) -> None:
    """They delay neither tickets nor notices of another organizer, and strangers' orders do not delay them."""
    settings.MAIL_PER_HOUR_MAX, settings.MAIL_PER_DAY_MAX = 4, 100
    other = make_event("another", venue="B", organizer=make_organizer().slug)
    order, others_order = buy(hold(concert, seats=["hall-A-1"])), buy(hold(other, seats=["hall-A-1"]))
    for _ in range(4):
        resend_tickets(order.pk, who="staff:1")
        deliver_outbox()
    assert len(mail.outbox) == 4, "two first mails, and half of the cap"
    # A stranger orders with the buyer's address until no mail is left in the caps.
    for number in range(2, 6):
        buy(hold(concert, seats=[f"hall-A-{number}"]))
    while mail_caps.count_mail(EMAIL) == 0:
        pass
    mail.outbox.clear()
    resend_tickets(others_order.pk, who="staff:2")
    deliver_outbox()
    assert [message.subject for message in mail.outbox] == ["Your tickets for Another"]
    assert_audit_clean()
