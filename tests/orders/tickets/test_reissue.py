"""New codes for tickets that somebody else has seen."""

import pytest
from django.core import mail
from django.db import IntegrityError, transaction

from apps.events import facade as events
from apps.kernel import clock
from apps.orders.cancellation import order_cancellation
from apps.orders.checkin.check_in import Outcome, Scan, scan
from apps.orders.errors import ReissueRefused, TicketNotFound
from apps.orders.models import Order, Ticket
from apps.orders.tickets import reissue
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import buy, deliver_outbox

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def order() -> Order:
    return buy(hold(make_event("concert", general_admission=5), seats=["hall-A-1"], ga_section="floor", ga_quantity=1))


def test_the_place_has_a_new_code_and_the_old_one_opens_nothing(order) -> None:
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


def test_asking_again_for_the_same_old_code_changes_nothing(order) -> None:
    old = order.tickets.order_by("id").first()
    for _ in range(3):
        reissue.reissue_ticket(order.pk, old.code, reissue.BUYER)
    assert order.tickets.count() == 3


def test_the_buyer_may_do_so_a_few_times_a_day_and_staff_always(order) -> None:
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


def test_who_is_in_has_no_new_code(order) -> None:
    ticket = order.tickets.order_by("id").first()
    assert scan(events.get_event("concert"), Scan("scan-0001", ticket.code), "staff:1").outcome == Outcome.WELCOME
    with pytest.raises(ReissueRefused, match="Somebody is in"):
        reissue.reissue_ticket(order.pk, ticket.code, "staff:1")
    assert reissue.reissue_order(order.pk, "staff:1") == 1, "only the one that is not in"


def test_a_ticket_given_back_and_one_of_another_order_have_no_new_code(order) -> None:
    ticket = order.tickets.order_by("id").first()
    with pytest.raises(TicketNotFound):
        reissue.reissue_ticket(order.pk, "A" * 28, "staff:1")
    order_cancellation.refund_order(order.pk, "staff:1")
    with pytest.raises(ReissueRefused, match="given back"):
        reissue.reissue_ticket(order.pk, ticket.code, "staff:1")
    with pytest.raises(ReissueRefused):
        reissue.reissue_order(order.pk, "staff:1")


def test_a_ticket_replaced_and_valid_is_refused_by_the_database(order) -> None:
    one, other = order.tickets.order_by("id")
    with pytest.raises(IntegrityError, match="ticket_replaced_is_void"), transaction.atomic():
        Ticket.objects.filter(pk=one.pk).update(successor=other, replaced_by="buyer")
