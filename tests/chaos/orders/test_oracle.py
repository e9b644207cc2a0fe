"""The oracle of the chaos runs finds each planted error, so a run that it accepts has none."""

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
from tests.support.chaos.convergence import find_errors
from tests.support.chaos.harness import INCLUDED, OpenScenario, Sale, Scenario
from tests.support.chaos.operations import SEATS, bought, return_some, to_return
from tests.support.chaos.provider_ledger import NAME
from tests.support.orders.sale import deliver_outbox
from tests.support.reservations.buyers import run_sql

# Each test is rolled back with its transaction.
pytestmark = pytest.mark.django_db
Harm = Callable[[Scenario, Sale], object]


def returned(scenario: Scenario) -> Sale:
    """Return one of two tickets, with a credit note and three messages to an organizer."""
    sale = to_return(scenario, "sale")
    return_some(scenario, sale)()
    deliver_outbox()
    return sale


def run_without_triggers(table: str, statement: str) -> None:
    """Run the statement with the table's triggers disabled."""
    run_sql("SET CONSTRAINTS ALL IMMEDIATE")
    run_sql(f"ALTER TABLE {table} DISABLE TRIGGER USER")
    run_sql(statement)
    run_sql(f"ALTER TABLE {table} ENABLE TRIGGER USER")


def leave_open(scenario: Scenario, sale: Sale) -> None:
    with transactions.write():
        discrepancies.record_difference(
            discrepancies.Kind.MISSING_CAPTURE, NAME, "ch-1", currency="USD", occurred_at=clock.now(), ours_minor=1
        )


def skip_a_number(scenario: Scenario, sale: Sale) -> None:
    InvoiceCounter.objects.filter(kind="invoice").update(last=2)


def lose_a_credit_note(scenario: Scenario, sale: Sale) -> None:
    run_without_triggers("orders_invoice", "DELETE FROM orders_invoice WHERE kind = 'credit_note'")


def write_another_sum(scenario: Scenario, sale: Sale) -> None:
    run_without_triggers(
        "orders_invoice", "UPDATE orders_invoice SET total_minor = total_minor + 1 WHERE kind = 'credit_note'"
    )


def write_no_invoice(scenario: Scenario, sale: Sale) -> None:
    run_without_triggers("orders_invoice", "DELETE FROM orders_invoice")


def revive_a_ticket(scenario: Scenario, sale: Sale) -> None:
    Ticket.objects.update(voided_at=None)


def free_the_seat(scenario: Scenario, sale: Sale) -> None:
    SeatInventory.objects.filter(reservation_id=sale.reservation.id).update(status=0, reservation_id=None)


def keep_the_returned_seat(scenario: Scenario, sale: Sale) -> None:
    SeatInventory.objects.filter(seat__guid__in=sale.seats).update(status=2, reservation_id=sale.reservation.id)


def refund_manually(scenario: Scenario, sale: Sale) -> None:
    scenario.provider.charges[str(sale.payment().pk)].refunds[str(uuid4())] = (1, clock.now())


def take_twice(scenario: Scenario, sale: Sale) -> None:
    """Add a charge at the provider that belongs to no payment of ours."""
    charge = scenario.provider.charges[str(sale.payment().pk)]
    scenario.provider.charges["other"] = type(charge)("other", "ch-other", charge.request, list(charge.facts))


def lose_the_delivery(scenario: Scenario, sale: Sale) -> None:
    latest = OrganizerMessage.objects.latest("created_at")
    WebhookDelivery.objects.filter(message=latest).delete()


def lose_all_messages(scenario: Scenario, sale: Sale) -> None:
    for message in OrganizerMessage.objects.all():
        WebhookDelivery.objects.filter(message=message).delete()
        run_sql("DELETE FROM orders_feedmessage WHERE message_id = %s", [message.pk])
        message.delete()


def pretend_delivery(scenario: Scenario, sale: Sale) -> None:
    scenario.organizer.received.popitem()


def deliver_in_another_order(scenario: Scenario, sale: Sale) -> None:
    received = list(scenario.organizer.received.items())
    scenario.organizer.received.clear()
    scenario.organizer.received.update(reversed(received))


def lose_the_outbox_row(scenario: Scenario, sale: Sale) -> None:
    WebhookDelivery.objects.update(status="pending", delivered_at=None)


def give_up(scenario: Scenario, sale: Sale) -> None:
    OutboxMessage.objects.filter(topic="orders.invoice").update(done_at=None, dead_at=clock.now())


def cancel_event_in_part(scenario: Scenario, sale: Sale) -> None:
    event_cancellation.begin(sale.reservation.event_id, "It rains.", "staff:1")


HARMS: dict[str, tuple[Harm, str]] = {
    "a difference left open": (leave_open, "difference left open: missing_capture ch-1: nothing settles it"),
    "a number skipped": (skip_a_number, "has a gap"),
    "a credit note lost": (lose_a_credit_note, "credit notes over []"),
    "a credit note over another sum": (write_another_sum, "credit notes over"),
    "no invoice": (write_no_invoice, "0 invoices"),
    "a returned seat's ticket": (revive_a_ticket, "which was returned"),
    "a ticket of a free seat": (free_the_seat, "whose seat is not its buyer's"),
    "a seat kept by the buyer that returned it": (
        keep_the_returned_seat,
        "was returned and still belongs to its buyer",
    ),
    "a manual refund": (refund_manually, "the provider keeps"),
    "a sum that does not fit": (refund_manually, "in all the provider keeps"),
    "a second charge": (take_twice, "belongs to no payment"),
    "an organizer left out": (lose_the_delivery, "deliveries"),
    "nothing announced": (lose_all_messages, "messages to organizers: []"),
    "a delivery that never happened": (pretend_delivery, "but never received"),
    "another order": (deliver_in_another_order, "were received in another order"),
    "nothing queued": (lose_the_outbox_row, "no outbox row"),
    "given up": (give_up, "dead"),
    "a half-canceled event": (cancel_event_in_part, "is not done"),
}


@pytest.mark.parametrize("name", HARMS)
def test_a_planted_error_is_found(name: str, open_scenario: OpenScenario) -> None:
    scenario = open_scenario(SEATS, INCLUDED)
    sale = returned(scenario)
    assert list(find_errors(scenario.provider, scenario.organizer, {})) == []
    harm, expected = HARMS[name]
    harm(scenario, sale)
    found = list(find_errors(scenario.provider, scenario.organizer, {}))
    assert any(expected in line for line in found), found


def test_a_difference_for_staff_is_allowed_if_the_run_expects_it(open_scenario: OpenScenario) -> None:
    """The provider's staff refunded a part manually: the system cannot know for which tickets."""
    scenario = open_scenario(SEATS, INCLUDED)
    bought(scenario, "sale")
    with transactions.write():
        discrepancies.record_difference(
            discrepancies.Kind.UNKNOWN_REFUND, NAME, "re-1", currency="USD", occurred_at=clock.now(), theirs_minor=1
        )
    assert len(list(find_errors(scenario.provider, scenario.organizer, {}))) == 1
    assert list(find_errors(scenario.provider, scenario.organizer, {}, ["unknown_refund"])) == []
    with pytest.raises(AssertionError):
        list(find_errors(scenario.provider, scenario.organizer, {}, ["missing_capture"]))


def test_an_organizer_that_never_accepts_a_message_delays_nothing_else(open_scenario: OpenScenario) -> None:
    """The delivery is given up in the end, which is no error; staff can send it again."""
    scenario = open_scenario(SEATS, INCLUDED)
    scenario.organizer.status = 500
    bought(scenario, "sale")
    OutboxMessage.objects.filter(topic="orders.webhook").update(attempts=11, available_at=clock.now())
    deliver_outbox()
    assert WebhookDelivery.objects.get().status == "given_up"
    assert list(find_errors(scenario.provider, scenario.organizer, {})) == []
