"""The oracle of the chaos runs finds each wrong end when it is planted: so a run that it lets pass has none."""

from collections.abc import Callable
from uuid import uuid4

import pytest

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.outbox.models import OutboxMessage
from apps.orders.cancellation import event_cancellation
from apps.orders.models import InvoiceCounter, OrganizerMessage, Ticket, WebhookDelivery
from apps.orders.provider_sync import discrepancies
from apps.reservations.models import SeatInventory
from tests.support.chaos.convergence import find_wrong
from tests.support.chaos.harness import INCLUDED, House, OpenHouse, Sale
from tests.support.chaos.operations import SEATS, bought, return_some, to_return
from tests.support.chaos.provider_ledger import NAME
from tests.support.orders.sale import deliver_outbox
from tests.support.reservations.buyers import run_sql

# Each test is undone with its transaction.
pytestmark = pytest.mark.django_db
Harm = Callable[[House, Sale], object]


def returned(house: House) -> Sale:
    """Of two tickets one, which took a credit note and three messages to an organizer with it."""
    sale = to_return(house, "sale")
    return_some(house, sale)()
    deliver_outbox()
    return sale


def unguarded(table: str, statement: str) -> None:
    """The statement has run with the table's triggers out of the way."""
    run_sql("SET CONSTRAINTS ALL IMMEDIATE")
    run_sql(f"ALTER TABLE {table} DISABLE TRIGGER USER")
    run_sql(statement)
    run_sql(f"ALTER TABLE {table} ENABLE TRIGGER USER")


def leave_open(house: House, sale: Sale) -> None:
    with transactions.write():
        discrepancies.record_difference(
            discrepancies.Kind.MISSING_CAPTURE, NAME, "ch-1", currency="USD", occurred_at=clock.now(), ours_minor=1
        )


def skip_a_number(house: House, sale: Sale) -> None:
    InvoiceCounter.objects.filter(kind="invoice").update(last=2)


def lose_a_credit_note(house: House, sale: Sale) -> None:
    unguarded("orders_invoice", "DELETE FROM orders_invoice WHERE kind = 'credit_note'")


def write_another_sum(house: House, sale: Sale) -> None:
    unguarded("orders_invoice", "UPDATE orders_invoice SET total_minor = total_minor + 1 WHERE kind = 'credit_note'")


def write_no_invoice(house: House, sale: Sale) -> None:
    unguarded("orders_invoice", "DELETE FROM orders_invoice")


def revive_a_ticket(house: House, sale: Sale) -> None:
    Ticket.objects.update(voided_at=None)


def give_the_seat_away(house: House, sale: Sale) -> None:
    SeatInventory.objects.filter(reservation_id=sale.reservation.id).update(status=0, reservation_id=None)


def keep_the_returned_seat(house: House, sale: Sale) -> None:
    SeatInventory.objects.filter(seat__guid__in=sale.seats).update(status=2, reservation_id=sale.reservation.id)


def give_back_by_hand(house: House, sale: Sale) -> None:
    house.books.charges[str(sale.payment().pk)].refunds[str(uuid4())] = (1, clock.now())


def take_twice(house: House, sale: Sale) -> None:
    """Another charge of the provider's that no payment of ours knows of."""
    charge = house.books.charges[str(sale.payment().pk)]
    house.books.charges["other"] = type(charge)("other", "ch-other", charge.request, list(charge.facts))


def tell_nobody(house: House, sale: Sale) -> None:
    latest = OrganizerMessage.objects.latest("created_at")
    WebhookDelivery.objects.filter(message=latest).delete()


def never_announce(house: House, sale: Sale) -> None:
    for message in OrganizerMessage.objects.all():
        WebhookDelivery.objects.filter(message=message).delete()
        run_sql("DELETE FROM orders_feedmessage WHERE message_id = %s", [message.pk])
        message.delete()


def say_it_was_told(house: House, sale: Sale) -> None:
    house.organizer.told.popitem()


def tell_in_another_order(house: House, sale: Sale) -> None:
    told = list(house.organizer.told.items())
    house.organizer.told.clear()
    house.organizer.told.update(reversed(told))


def forget_to_tell(house: House, sale: Sale) -> None:
    WebhookDelivery.objects.update(status="pending", delivered_at=None)


def give_up(house: House, sale: Sale) -> None:
    OutboxMessage.objects.filter(topic="orders.invoice").update(done_at=None, dead_at=clock.now())


def call_off_in_part(house: House, sale: Sale) -> None:
    event_cancellation.begin(sale.reservation.event_id, "It rains.", "staff:1")


HARMS: dict[str, tuple[Harm, str]] = {
    "a difference left open": (leave_open, "difference left open: missing_capture ch-1: nobody can settle it"),
    "a number skipped": (skip_a_number, "has a gap"),
    "a credit note lost": (lose_a_credit_note, "credit notes over []"),
    "a credit note over another sum": (write_another_sum, "credit notes over"),
    "no invoice": (write_no_invoice, "0 invoices"),
    "a returned seat's ticket": (revive_a_ticket, "which was returned"),
    "a ticket of a free seat": (give_the_seat_away, "which is not its buyer's"),
    "a seat kept by who returned it": (keep_the_returned_seat, "was returned and is its buyer's still"),
    "a refund by hand": (give_back_by_hand, "the provider keeps"),
    "a sum that does not fit": (give_back_by_hand, "in all the provider keeps"),
    "a second charge": (take_twice, "is of no payment"),
    "an organizer left out": (tell_nobody, "deliveries"),
    "nothing announced": (never_announce, "organizers were told []"),
    "delivered to nobody": (say_it_was_told, "nobody heard it"),
    "another order": (tell_in_another_order, "were heard in another order"),
    "nothing waits": (forget_to_tell, "nothing waits to be"),
    "given up": (give_up, "dead"),
    "an event half canceled": (call_off_in_part, "is not done"),
}


@pytest.mark.parametrize("name", HARMS)
def test_a_planted_wrong_is_found(name: str, open_house: OpenHouse) -> None:
    house = open_house(SEATS, INCLUDED)
    sale = returned(house)
    assert list(find_wrong(house.books, house.organizer, {})) == []
    harm, said = HARMS[name]
    harm(house, sale)
    found = list(find_wrong(house.books, house.organizer, {}))
    assert any(said in line for line in found), found


def test_what_a_person_must_settle_is_allowed_where_the_run_says_so(open_house: OpenHouse) -> None:
    """Staff of the provider sent a part back by hand: nobody here can tell for which places."""
    house = open_house(SEATS, INCLUDED)
    bought(house, "sale")
    with transactions.write():
        discrepancies.record_difference(
            discrepancies.Kind.UNKNOWN_REFUND, NAME, "re-1", currency="USD", occurred_at=clock.now(), theirs_minor=1
        )
    assert len(list(find_wrong(house.books, house.organizer, {}))) == 1
    assert list(find_wrong(house.books, house.organizer, {}, ["unknown_refund"])) == []
    with pytest.raises(AssertionError):
        list(find_wrong(house.books, house.organizer, {}, ["missing_capture"]))


def test_an_organizer_who_never_takes_a_message_keeps_nothing_else_waiting(open_house: OpenHouse) -> None:
    """It is put aside in the end, which is no wrong; so it is told again at a click."""
    house = open_house(SEATS, INCLUDED)
    house.organizer.status = 500
    bought(house, "sale")
    OutboxMessage.objects.filter(topic="orders.webhook").update(attempts=11, available_at=clock.now())
    deliver_outbox()
    assert WebhookDelivery.objects.get().status == "given_up"
    assert list(find_wrong(house.books, house.organizer, {})) == []
