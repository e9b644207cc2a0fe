"""A new date: each buyer and recipient gets one mail, and may return tickets in a window."""

import json
import re
import uuid
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core import mail
from django.db import IntegrityError, connection
from django.test import Client
from django.utils import formats

from apps.events import facade as events
from apps.events.models import Event
from apps.events.revisions import service
from apps.events.revisions.proposal import Kind
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.http import problems
from apps.kernel.outbox.facade import Message
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import access, return_quotes, topics
from apps.orders.cancellation import event_cancellation, order_cancellation
from apps.orders.errors import ReturnNotAllowed
from apps.orders.models import Order, ReturnPolicy, ScheduleMail, ScheduleNotice, Ticket
from apps.orders.payments.providers import sandbox
from apps.orders.returns import refund_terms, returns
from apps.orders.schedule import notices
from apps.orders.selectors import get_order
from apps.orders.staff.buyer_correction import correct_buyer
from tests.support.events.factories import in_days
from tests.support.factories import assert_audit_clean, hold, join, make_event
from tests.support.orders.sale import (
    SAME_ORIGIN,
    buy,
    deliver_outbox,
    late_webhook,
    make_code,
    place_order,
    receive_webhook,
)
from tests.support.orders.transfers import FRIEND, accepted, allow_transfers
from tests.support.races import rival_at, storm, values

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def move(event: events.EventView, **options: Any) -> int:
    wanted = options.pop("wanted", {"starts_at": in_days(60)})
    change_id = service.change_event(
        event.id, Kind.SCHEDULE, wanted, who="ada", why="rain", **{"return_days": 14, **options}
    )
    assert change_id is not None
    return change_id


def new_dates() -> list[Any]:
    return [sent for sent in mail.outbox if sent.subject.startswith("New ")]


def end_waiting(change_id: int) -> None:
    """Let the time pass in which shoppers may not see the change."""
    ScheduleNotice.objects.filter(pk=change_id).update(held_until=clock.now())


def continuation(change_id: int) -> Message:
    now = clock.now()
    return Message(1, "", "", {"change": change_id}, uuid.uuid4(), 1, now, now)


def test_each_buyer_gets_one_mail_however_many_orders_and_deliveries_there_are() -> None:
    event = make_event(timezone="Europe/Berlin")
    for seat, name in (("A-1", "a"), ("A-2", "a"), ("B-1", "b")):
        buy(hold(event, join(event, visitor_id=f"visitor-{name}"), seats=[f"hall-{seat}"]), email=f"{name}@example.org")
    change_id = move(event, message="It rains.")
    deliver_outbox()
    assert sorted(sent.to[0] for sent in new_dates()) == ["a@example.org", "b@example.org"]
    text = new_dates()[0].body
    assert "It rains." in text
    origins = {message.body["origin"] for message in OutboxMessage.objects.filter(topic=topics.SEND_SCHEDULE_NOTICE)}
    assert origins == {f"organizer {event.organizer_id}/event {event.id}"}, (
        "those of another organizer have turns of their own"
    )
    assert "return your tickets until" in text
    assert "(CET)" in text or "(CEST)" in text
    assert re.match(r"tickets-concert-[A-Z0-9-]+\.pdf$", new_dates()[0].attachments[0].filename)
    assert new_dates()[0].attachments[1].filename == "concert.ics"
    for _ in range(2):
        notices.continue_notice(continuation(change_id))
    for row in ScheduleMail.objects.all():
        notices.send_notice(Message(1, "", "", {"mail": row.pk}, uuid.uuid4(), 1, clock.now(), clock.now()))
    deliver_outbox()
    assert len(new_dates()) == 2
    end_waiting(change_id)
    notices.continue_notice(continuation(change_id))
    assert ScheduleNotice.objects.get().finished_at is not None


def test_an_order_of_a_stranger_with_the_address_does_not_stand_for_the_buyers_own() -> None:
    event = make_event()
    strangers, own = (buy(hold(event, seats=[f"hall-A-{number}"])) for number in (1, 2))
    move(event)
    order_cancellation.refund_order(strangers.pk, "staff:1")
    deliver_outbox()
    (sent,) = new_dates()
    assert access.link_key(own.pk) in sent.body


def test_a_buyer_who_has_returned_one_of_two_orders_gets_the_notice_for_the_other() -> None:
    event = make_event()
    first, second = (
        buy(hold(event, join(event, visitor_id="visitor-a"), seats=[f"hall-A-{number}"])) for number in (1, 2)
    )
    change_id = move(event)
    notices.continue_notice(continuation(change_id))
    assert [row.order_id for row in ScheduleMail.objects.all()] == [first.pk]
    order_cancellation.refund_order(first.pk, "staff:1")
    deliver_outbox()
    (sent,) = new_dates()
    assert access.link_key(second.pk) in sent.body


def test_free_orders_of_an_address_are_one_mail_beside_that_of_the_paid_one() -> None:
    """A stranger can place any number of free orders with the address."""
    event = make_event()
    make_code(event, code="FREE", rate=10_000)
    free = [buy(hold(event, seats=[f"hall-A-{number}"]), code="FREE") for number in (1, 2, 3)]
    paid = buy(hold(event, seats=["hall-A-4"]))
    change_id = move(event)
    notices.continue_notice(continuation(change_id))
    order_cancellation.refund_order(free[0].pk, "staff:1")
    deliver_outbox()
    bodies = [sent.body for sent in new_dates()]
    assert [sum(access.link_key(order.pk) in body for body in bodies) for order in (*free, paid)] == [0, 1, 0, 1]
    assert all("/orders/find" in body for body in bodies)


def test_a_second_change_is_another_mail_with_its_own_dates() -> None:
    event = make_event(starts_at=in_days(30))
    buy(hold(event, seats=["hall-A-1"]))
    move(event)
    move(event, wanted={"starts_at": in_days(90)})
    deliver_outbox()
    assert len(new_dates()) == 2
    assert len({sent.extra_headers["Message-ID"] for sent in new_dates()}) == 2


def test_mails_are_scheduled_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "BATCH_MAX", 2)
    event = make_event()
    for number in range(5):
        buy(hold(event, seats=[f"hall-A-{number + 1}"]), email=f"{number}@example.org")
    move(event)
    deliver_outbox()
    assert len(new_dates()) == 5


def test_a_notice_in_progress_grants_a_former_address_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    order = buy(hold(event := make_event(), seats=["hall-A-1"]))
    draw = notices._draw

    def correct_first(*args: Any) -> Any:
        monkeypatch.setattr(notices, "_draw", draw)
        correct_buyer(order.pk, email="ada.buyer@example.org", name=order.name, why="a typo", who="staff:1")
        return draw(*args)

    monkeypatch.setattr(notices, "_draw", correct_first)
    move(event)
    deliver_outbox()
    OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now())  # The notice was postponed.
    deliver_outbox()
    (sent,) = new_dates()
    assert sent.to == ["ada.buyer@example.org"]
    assert access.link_key(order.pk) in sent.body


def naive_batch(change_id: int) -> None:
    """Find the orders and write their mails, without the lock of the notice."""
    notice = ScheduleNotice.objects.get(pk=change_id)
    with transactions.write(), connection.cursor() as cursor:
        found = notices._orders_to_notify.rows(
            cursor, event_id=notice.event_id, notice_id=notice.pk, held_until=notice.held_until, limit=9
        )
        notices._schedule_mails(notice, [row[0] for row in found], [])


def test_control_batches_without_the_lock_of_the_notice_find_the_same_orders() -> None:
    """A: finds an order without a mail
    B: finds it too, writes its mail; COMMIT
    A: writes the same mail: only the constraint refuses it, and the batch fails
    """
    event = make_event()
    buy(hold(event, seats=["hall-A-1"]))
    change_id = move(event)
    rival = rival_at("orders_to_notify", "after", lambda: naive_batch(change_id))
    with pytest.raises(IntegrityError), rival:
        naive_batch(change_id)


def test_batches_that_run_at_once_mail_each_address_once() -> None:
    event = make_event()
    for number in (1, 2, 3):
        buy(hold(event, join(event, visitor_id="visitor-a"), seats=[f"hall-A-{number}"]))
    change_id = move(event)
    values(storm(6, lambda _: notices.continue_notice(continuation(change_id))))
    deliver_outbox()
    assert len(new_dates()) == 1


def test_a_buyer_who_held_before_the_change_and_paid_after_it_gets_a_mail_too() -> None:
    event = make_event()
    held = hold(event, seats=["hall-A-1"])
    change_id = move(event)
    deliver_outbox()
    assert new_dates() == []
    order = place_order(held, sandbox.LATE)
    deliver_outbox()
    end_waiting(change_id)
    notices.continue_notice(continuation(change_id))
    assert ScheduleNotice.objects.get().finished_at is None, "the order is still open"
    receive_webhook(late_webhook(order, clock.now()))
    notices.continue_notice(continuation(change_id))
    deliver_outbox()
    assert len(new_dates()) == 1


def test_recipients_of_transferred_tickets_get_a_mail_without_the_order() -> None:
    event = make_event()
    allow_transfers(event)
    order = buy(hold(event, seats=["hall-A-1", "hall-A-2"]))
    accepted(order)
    move(event)
    deliver_outbox()
    (to_friend,) = (sent for sent in new_dates() if sent.to == [FRIEND])
    assert order.number not in to_friend.body
    assert str(order.pk) not in to_friend.body
    assert "return" not in to_friend.body
    assert [attached.filename for attached in to_friend.attachments] == ["ticket-concert.pdf"]


def test_new_doors_alone_are_mailed_without_a_return_window() -> None:
    event = make_event()
    buy(hold(event, seats=["hall-A-1"]))
    move(event, wanted={"doors_at": event.starts_at - timedelta(hours=2)}, return_days=0)
    deliver_outbox()
    assert new_dates()[0].subject.startswith("New times:")
    assert "return_key" not in new_dates()[0].body
    assert ScheduleNotice.objects.get().return_until is None


def test_buyers_of_a_canceled_event_get_no_new_date() -> None:
    event = make_event()
    buy(hold(event, seats=["hall-A-1"]))
    move(event)
    event_cancellation.begin(event.id, "It is off.", "staff:1")
    deliver_outbox()
    assert new_dates() == []


def send_back(order: Order) -> dict[str, Any]:
    codes = [ticket.code for ticket in order.tickets.filter(voided_at=None)]
    answer = returns.return_idempotently(order.pk, {"tickets": codes}, uuid.uuid4().hex)
    found: dict[str, Any] = json.loads(answer.body)
    return found


def test_the_return_window_refunds_everything_also_without_a_return_policy() -> None:
    event = make_event(price_policy=events.PricePolicy(ticket_fee_minor=300, order_fee_minor=200))
    order = buy(hold(event, seats=["hall-A-1"]))
    with pytest.raises(ReturnNotAllowed):
        send_back(order)
    move(event)
    assert send_back(order)["amount_minor"] == order.total_minor
    deliver_outbox()
    assert_audit_clean()


def test_the_window_is_for_orders_from_before_the_change_and_ends() -> None:
    event = make_event(price_policy=events.PricePolicy(ticket_fee_minor=300))
    ReturnPolicy.objects.create(event_id=event.id, until_hours=24, keeps_fees=True)
    first, second = (buy(hold(event, seats=[f"hall-A-{number}"])) for number in (1, 2))
    later = buy(held := hold(event, seats=["hall-B-1"]))
    change_id = move(event)
    ScheduleNotice.objects.filter(pk=change_id).update(held_until=held.created_at - timedelta(microseconds=1))
    assert send_back(later)["kept_minor"] == 300
    assert send_back(first)["kept_minor"] == 0
    ScheduleNotice.objects.filter(pk=change_id).update(return_until=clock.now() - timedelta(seconds=1))
    assert send_back(second)["kept_minor"] == 300


def test_seats_held_after_the_change_have_no_window_and_no_mail() -> None:
    event = make_event()
    end_waiting(move(event))
    order = buy(hold(event, seats=["hall-A-1"]))
    deliver_outbox()
    assert new_dates() == []
    assert get_order(order.pk).returns is None
    with pytest.raises(ReturnNotAllowed):
        send_back(order)


def test_a_hold_that_outlives_lowered_limits_has_the_window_and_gets_the_mail() -> None:
    event = make_event(hold_seconds=600)
    held = hold(event, seats=["hall-A-1"])
    shorter = {"hold_seconds": 30, "payment_seconds": 30}
    service.change_event(event.id, Kind.LIMITS, shorter, who="ada", why="a rush")
    change_id = move(event)
    end_waiting(change_id)
    notices.continue_notice(continuation(change_id))
    assert ScheduleNotice.objects.get().finished_at is None, "the hold may still be paid"
    order = buy(held)
    notices.continue_notice(continuation(change_id))
    deliver_outbox()
    assert [sent.to for sent in new_dates()] == [[order.email]]
    assert ScheduleNotice.objects.get().finished_at is not None
    assert send_back(order)["amount_minor"] == order.total_minor


def test_no_window_outlasts_the_present_start_of_the_event() -> None:
    event = make_event()
    order = buy(hold(event, seats=["hall-A-1"]))
    move(event, return_days=60)
    move(event, wanted={"starts_at": in_days(5)})
    moved = events.get_event_by_id(event.id)
    offer = return_quotes.get_return_terms(moved, clock.now()).of_order(order.placed_at)
    assert offer is not None
    assert offer.until == moved.starts_at
    by_then = refund_terms.describe_refunds(event.id, clock.now(), "UTC")
    Event.objects.filter(pk=event.id).update(starts_at=clock.now() - timedelta(seconds=1))
    assert refund_terms.describe_refunds(event.id, clock.now(), "UTC") != by_then
    with pytest.raises(ReturnNotAllowed):
        send_back(order)


def test_what_it_means_is_shown_beforehand() -> None:
    event = make_event()
    buy(hold(event, seats=["hall-A-1", "hall-A-2"]))
    hold(event, seats=["hall-B-1"])
    _, texts = service.propose(event.id, Kind.SCHEDULE, {"starts_at": in_days(60)}, return_days=7)
    shown = "\n".join(texts)
    assert "1 reservation is live (1 ticket)." in shown
    assert "2 tickets in 1 order stay valid for the new times." in shown
    assert "1 buyer and the recipients of transferred tickets get an email" in shown
    assert "buyers may return their tickets" in shown
    with pytest.raises(problems.Invalid):
        service.propose(event.id, Kind.SCHEDULE, {"starts_at": in_days(-1)}, return_days=7)


def test_pages_show_the_earlier_date_and_until_when_tickets_may_be_returned() -> None:
    event = make_event(starts_at=in_days(30), timezone="Europe/Berlin")
    ReturnPolicy.objects.create(event_id=event.id, until_hours=24, keeps_fees=True)
    order, browser = buy(hold(event, seats=["hall-A-1"])), Client()
    browser.get(f"/orders/{order.pk}/?key={access.link_key(order.pk)}")
    paths = (f"/orders/{order.pk}/", "/tickets/", f"/tickets/{order.tickets.get().code}/", "/events/concert/")
    for path in paths:
        assert "<s>" not in browser.get(path).content.decode(), path
    assert "You can return tickets until" in browser.get(paths[0]).content.decode()
    move(event)
    move(event, wanted={"starts_at": in_days(90)})
    bought_for, announced = (formats.date_format(local(in_days(days)), "j F Y") for days in (30, 60))
    for path in paths[:2]:
        page = browser.get(path).content.decode()
        assert re.search(rf"<s>\w+ {bought_for}, ", page), path
        assert "can return tickets until" in page, path
    assert "The date has changed. It was" in browser.get(paths[2]).content.decode()
    page = browser.get(paths[3]).content.decode()
    assert re.search(rf"Was <s>\w+ {announced}, ", page)
    assert "Tickets bought before the date changed can be returned until" in page
    assert "You can return other tickets until 1 day before the start" in page
    assert "EventRescheduled" in page
    ScheduleNotice.objects.update(return_until=clock.now())
    assert "Tickets bought before" not in browser.get(paths[3]).content.decode()
    assert "<s>" in browser.get(paths[0]).content.decode()
    # Moved back: the date is what this buyer bought.
    move(event, wanted={"starts_at": event.starts_at})
    assert "<s>" not in browser.get(paths[0]).content.decode()


def local(moment: datetime) -> datetime:
    return moment.astimezone(ZoneInfo("Europe/Berlin"))


def return_path() -> str:
    found = re.search(r"https?://[^/]+(/orders/\S+/return\?\S+)", new_dates()[-1].body)
    assert found is not None, new_dates()[-1].body
    return found[1]


def test_the_return_link_of_the_mail_returns_tickets_and_changes_nothing_else() -> None:
    """A mail scanner only gets pages; the browser of the recipient needs no other mail."""
    event = make_event()
    order = buy(hold(event, seats=["hall-A-1", "hall-A-2"]))
    other = buy(hold(event, seats=["hall-B-1"]), email="other@example.org")
    move(event)
    deliver_outbox()
    path = return_path()
    mailed, another = (order, other) if str(order.pk) in path else (other, order)
    assert path.replace("&", "&amp;") in new_dates()[-1].alternatives[0].content
    browser, base = Client(headers=SAME_ORIGIN), f"/orders/{mailed.pk}"
    assert browser.get(path).url == f"{base}/return"
    assert "Tickets to return" in browser.get(f"{base}/return").content.decode()
    assert browser.post(f"{base}/cancel", {"idempotency_key": "c"}).url == f"{base}/confirm"
    code = mailed.tickets.order_by("pk").values_list("code", flat=True)[0]
    assert browser.post(f"{base}/tickets/{code}/reissue").url == f"{base}/confirm"
    key = path.rpartition("=")[2]
    assert not access.is_valid_return_key(another.pk, key)
    assert not access.is_valid_return_key(mailed.pk, f"9{key}")
    for bad in ("", ".", "1.x", f"{'9' * 40}.x", "\u0661.x", access.link_key(mailed.pk)):
        assert not access.is_valid_return_key(mailed.pk, bad)
    stranger = Client(headers=SAME_ORIGIN)
    assert stranger.get(f"{base}/return?return_key=x").status_code == 401
    form = {"ticket": code, "step": "return", "idempotency_key": "r"}
    assert stranger.post(f"{base}/return?return_key=x", form).status_code == 401
    assert browser.post(f"{base}/return", form).url == f"{base}/"
    assert Ticket.objects.get(code=code).voided_at is not None
    deliver_outbox()
    assert_audit_clean()


def test_the_return_cookie_ends_with_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    order = buy(hold(event := make_event(), seats=["hall-A-1", "hall-A-2"]))
    ReturnPolicy.objects.create(event_id=event.id, until_hours=1)
    browser, path = Client(headers=SAME_ORIGIN), f"/orders/{order.pk}"
    browser.get("/" + access.return_link(order.pk, clock.now() + timedelta(minutes=1)).split("/", 3)[3])
    code = order.tickets.order_by("pk").values_list("code", flat=True)
    form = {"ticket": code[0], "step": "return", "idempotency_key": "r"}
    assert browser.post(f"{path}/return", form).url == f"{path}/"
    ended = clock.process_now() + timedelta(minutes=2)
    monkeypatch.setattr(clock, "process_now", lambda: ended)
    form = {"ticket": code[1], "step": "return", "idempotency_key": "s"}
    assert browser.post(f"{path}/return", form).url == f"{path}/confirm"
    assert browser.get(f"{path}/").status_code == 200, "it still reads"


def test_after_the_window_and_a_correction_the_return_link_returns_nothing() -> None:
    event = make_event()
    order = buy(hold(event, seats=["hall-A-1"]))
    move(event)
    deliver_outbox()
    path, reader = return_path(), Client(headers=SAME_ORIGIN)
    Order.objects.update(link_version=1)
    assert reader.get(path).status_code == 401
    Order.objects.update(link_version=0)
    ended = access.return_link(order.pk, clock.now() - timedelta(seconds=1)).split("/", 3)[3]
    page = reader.get(f"/{ended}", follow=True)
    assert page.redirect_chain[-1][0] == f"/orders/{order.pk}/confirm", "it reads like the order's link"
    ScheduleNotice.objects.update(return_until=clock.now())
    ReturnPolicy.objects.create(event_id=event.id, until_hours=24 * 70)
    page = reader.get(path, follow=True)
    assert "Ticket returns closed on" in page.content.decode()
