"""Reissued tickets: new codes, limits and refusals."""

import pytest
from django.core import mail
from django.db import IntegrityError, transaction

from apps.events import facade as events
from apps.kernel import clock
from apps.orders.cancellation import order_cancellation
from apps.orders.checkin.check_in import Outcome, Scan, scan
from apps.orders.errors import ReissueRefused, TicketNotFound
from apps.orders.models import Order, Ticket
from apps.orders.staff.buyer_correction import correct_buyer
from apps.orders.tickets import reissue
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import buy, deliver_outbox

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def order() -> Order:
    return buy(hold(make_event("concert", general_admission=5), seats=["hall-A-1"], ga_section="floor", ga_quantity=1))


def test_a_reissue_gives_a_new_code_and_invalidates_the_old_one(order) -> None:
    old = order.tickets.order_by("id").first()
    mail.outbox.clear()
    reissue.reissue_ticket(order.pk, old.code, "staff:7")
    old.refresh_from_db()
    new = old.successor
    assert old.voided_at is not None
    assert old.replaced_by == "staff:7"
    assert new.code != old.code
    same = ("order_id", "line_id", "place", "seat_id", "label", "price_minor", "holder")
    assert [getattr(new, name) for name in same] == [getattr(old, name) for name in same]
    deliver_outbox()
    (letter,) = mail.outbox
    assert new.code in letter.body
    assert old.code not in letter.body
    assert_audit_clean()


def test_a_second_reissue_of_the_same_code_changes_nothing(order) -> None:
    old = order.tickets.order_by("id").first()
    for _ in range(3):
        reissue.reissue_ticket(order.pk, old.code, reissue.BUYER)
    assert order.tickets.count() == 3


def test_reissues_are_limited_per_day_for_buyers_and_not_for_staff(order) -> None:
    def current() -> str:
        return order.tickets.filter(voided_at=None, seat__isnull=False).get().code

    for _ in range(reissue.BUYER_REISSUES_MAX):
        reissue.reissue_ticket(order.pk, current(), reissue.BUYER)
    with pytest.raises(ReissueRefused, match="within a day"):
        reissue.reissue_ticket(order.pk, current(), reissue.BUYER)
    reissue.reissue_ticket(order.pk, current(), "staff:1")
    yesterday = clock.now() - reissue.BUYER_PERIOD
    Ticket.objects.filter(replaced_by=reissue.BUYER).update(voided_at=yesterday)
    reissue.reissue_ticket(order.pk, current(), reissue.BUYER)
    assert_audit_clean()


def test_an_order_has_so_many_tickets_with_the_replaced_ones(order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reissue, "TICKETS_MAX", 5)
    assert reissue.reissue_order(order.pk, "staff:1") == 2
    with pytest.raises(ReissueRefused, match="too often"):
        reissue.reissue_order(order.pk, "staff:1")
    with pytest.raises(ReissueRefused, match="too often"):
        correct_buyer(order.pk, email="new@example.org", name="Ada", why="a typo", who="staff:1")
    code = order.tickets.filter(voided_at=None).first().code
    reissue.reissue_ticket(order.pk, code, "staff:1")
    with pytest.raises(ReissueRefused, match="too often"):
        reissue.reissue_ticket(order.pk, order.tickets.filter(voided_at=None).first().code, reissue.BUYER)
    reissue.reissue_ticket(order.pk, code, "staff:1")  # Repeated: nothing to do.
    assert order.tickets.count() == 5
    assert_audit_clean()


def test_a_checked_in_ticket_is_not_reissued(order) -> None:
    ticket = order.tickets.order_by("id").first()
    sent = Scan("scan-0001", ticket.code, anyway=True)
    assert scan(events.get_event("concert"), sent, "staff:1").outcome == Outcome.WELCOME
    with pytest.raises(ReissueRefused, match="already checked in"):
        reissue.reissue_ticket(order.pk, ticket.code, "staff:1")
    assert reissue.reissue_order(order.pk, "staff:1") == 1, "only the one that is not checked in"


def test_a_refunded_ticket_and_one_of_another_order_are_not_reissued(order) -> None:
    ticket = order.tickets.order_by("id").first()
    with pytest.raises(TicketNotFound):
        reissue.reissue_ticket(order.pk, "A" * 28, "staff:1")
    order_cancellation.refund_order(order.pk, "staff:1")
    with pytest.raises(ReissueRefused, match="no longer valid"):
        reissue.reissue_ticket(order.pk, ticket.code, "staff:1")
    with pytest.raises(ReissueRefused):
        reissue.reissue_order(order.pk, "staff:1")


def test_the_database_refuses_a_replaced_ticket_that_is_valid(order) -> None:
    one, other = order.tickets.order_by("id")
    with pytest.raises(IntegrityError, match="ticket_replaced_is_void"), transaction.atomic():
        Ticket.objects.filter(pk=one.pk).update(successor=other, replaced_by="buyer")
