"""Provider messages and invoices in lists: plain cases are settled together, and every other one as it is alone."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from apps.events.facade import EventView
from apps.kernel import clock
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import locks, topics
from apps.orders.cancellation import order_cancellation
from apps.orders.invoices import invoice_lists, invoices
from apps.orders.models import Invoice, Order, Payment, ProviderMessage, Refund, Ticket
from apps.orders.payments import settlement_lists
from apps.orders.payments.providers import get_provider, sandbox
from apps.orders.payments.providers.protocol import Kind
from apps.orders.payments.providers.sandbox.cards import LATE
from apps.orders.provider_sync import event_storage, inbox
from apps.queue.models import QueueEntry
from apps.reservations import facade as reservations
from apps.reservations.errors import PaymentInProgress
from apps.reservations.lifecycle import confirmations
from apps.reservations.models import Reservation, ReservationTransition, SeatInventory
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import backdate_pay_deadline, deliver_outbox, late_webhook, make_code, place_order
from tests.support.races import (
    in_another_connection,
    rival_connection,
    rival_waiting_at,
    run_at,
    statements,
    storm,
    values,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


@pytest.fixture(autouse=True)
def _audit() -> Iterator[None]:
    yield
    deliver_outbox()
    assert_audit_clean()


def place_orders(event: EventView, count: int, **changes: Any) -> list[Order]:
    """Place orders of one seat each, whose charges are pending at the provider."""
    orders = []
    for number in range(count):
        row, seat = divmod(number, 10)
        reservation = hold(event, seats=[f"hall-{chr(ord('A') + row)}-{seat + 1}"])
        details = {"email": f"buyer{number}@example.org", **changes}
        orders.append(place_order(reservation, LATE, **details))
    Order.objects.update(origin="a network")  # As a client's checkout stores it.
    deliver_outbox()
    assert set(Payment.objects.values_list("status", flat=True)) == {"pending"}
    return orders


def store_webhook(order: Order, minutes: float = 0) -> ProviderMessage:
    """Store the webhook of the order's payment, which occurred `minutes` ago. Nothing processes it yet."""
    raw = late_webhook(order, clock.now() - timedelta(minutes=minutes))
    assert event_storage.receive(sandbox.NAME, raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(raw)})
    return ProviderMessage.objects.get(payment__order=order, processed_at=None)


def settle(orders: list[Order]) -> set[str]:
    """Settle the stored messages of these orders in one list; return the numbers of the orders that it settled."""
    messages = {
        message.pk: message.payment.order.number  # type: ignore[union-attr]
        for message in ProviderMessage.objects.filter(processed_at=None, payment__order__in=orders)
    }
    return {messages[pk] for pk in settlement_lists.settle_plain(list(messages))}


def numbers(orders: list[Order]) -> set[str]:
    return {order.number for order in orders}


def facts(order: Order) -> dict[str, Any]:
    """Return what is stored about a sale, without ids, times and codes."""
    order.refresh_from_db()
    payment = Payment.objects.get(order=order)
    reservation = Reservation.objects.get(pk=order.reservation_id)
    transition = ReservationTransition.objects.filter(reservation=reservation).order_by("-at").first()
    assert transition is not None
    message = ProviderMessage.objects.get(payment=payment, kind=Kind.SUCCEEDED)
    ticket_fields = ("section", "row", "category", "price_minor", "holder", "place", "replaced_by")
    return {
        "order": (order.status, order.reason, order.ended_at, order.confirmed_at is not None, order.origin),
        "payment": (payment.status, payment.captured_minor, payment.currency, payment.occurred_at is not None),
        "reference": payment.reference == message.reference != "",
        "message": (message.outcome, message.processed_at is not None, message.next_action),
        "reservation": (reservation.status, reservation.ended_at, reservation.confirmed_at is not None),
        "transition": (transition.from_status, transition.to_status, transition.who, transition.why[:17]),
        "seats": list(SeatInventory.objects.filter(reservation_id=reservation.pk).values_list("status", flat=True)),
        "tickets": list(Ticket.objects.filter(order=order).values_list(*ticket_fields)),
        "entry": QueueEntry.objects.get(pk=order.entry_id).status,
        "outbox": sorted(_topics_of(order)),
    }


def _topics_of(order: Order) -> list[str]:
    of_order = OutboxMessage.objects.filter(body__order=str(order.pk))
    return list(of_order.values_list("topic", flat=True))


def test_a_list_of_paid_orders_is_settled_with_as_many_statements_as_one() -> None:
    event = make_event()
    orders = place_orders(event, 12)
    for order in orders:
        store_webhook(order)
    with statements() as for_one:
        assert settle(orders[:1]) == numbers(orders[:1])
    with statements() as for_many:
        assert settle(orders[1:]) == numbers(orders[1:])
    # Events are cached for a moment.
    assert for_many == for_one
    assert Order.objects.filter(status="confirmed").count() == Ticket.objects.count() == 12
    assert set(QueueEntry.objects.values_list("status", flat=True)) == {"completed"}


def test_a_list_stores_what_the_single_path_stores() -> None:
    event = make_event()
    listed, other, alone = place_orders(event, 3)
    for order in (listed, other, alone):
        store_webhook(order)
    assert settle([listed, other]) == numbers([listed, other])
    message = outbox.Message(0, topics.PROVIDER_MESSAGE, "", {}, None, 2, None, None)  # type: ignore[arg-type]
    message.body["message"] = ProviderMessage.objects.get(payment__order=alone, processed_at=None).pk
    inbox.process(message)
    assert facts(listed) == facts(other) == facts(alone)


def too_late(order: Order) -> None:
    ProviderMessage.objects.filter(payment__order=order).update(occurred_at=clock.now() + timedelta(days=1))


def canceled(order: Order) -> None:
    # The charge is pending, so it may still succeed.
    order_cancellation.cancel_order_idempotently(order.pk, {}, f"key-{order.pk}")


def of_another_amount(order: Order) -> None:
    ProviderMessage.objects.filter(payment__order=order).update(amount_minor=1)


def too_early(order: Order) -> None:
    day_before = clock.now() - timedelta(days=1)
    ProviderMessage.objects.filter(payment__order=order, processed_at=None).update(occurred_at=day_before)


def about_another_charge(order: Order) -> None:
    ProviderMessage.objects.filter(payment__order=order, processed_at=None).update(reference="sc_another")


def declined(order: Order) -> None:
    ProviderMessage.objects.filter(payment__order=order, processed_at=None).update(kind=Kind.DECLINED)


def swept(order: Order) -> None:
    backdate_pay_deadline(order)
    reservations.sweep_all()


@pytest.mark.parametrize(
    "change", [too_late, too_early, canceled, of_another_amount, about_another_charge, declined, swept]
)
def test_an_unusual_message_is_left_to_the_single_path_and_the_others_are_settled(
    change: Callable[[Order], None],
) -> None:
    orders = place_orders(make_event(), 4)
    for order in orders:
        store_webhook(order)
    change(orders[1])
    assert settle(orders) == numbers(orders) - {orders[1].number}
    assert Ticket.objects.filter(order=orders[1]).count() == 0
    assert ProviderMessage.objects.filter(payment__order=orders[1], processed_at=None).count() == 1
    deliver_outbox()
    orders[1].refresh_from_db()
    assert orders[1].status in ("refunded", "placed", "paying", "confirmed", "canceled", "failed")


def test_an_order_that_another_transaction_has_locked_for_a_moment_is_settled_in_the_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A: has locked the first order, for example to store the direct answer to its charge
    B: settles the list without that order, and after a pause that order in a list of its own
    """
    orders = place_orders(make_event(), 3)
    for order in orders:
        store_webhook(order)
    pauses: list[float] = []
    with transaction.atomic():
        Order.objects.select_for_update(no_key=True).get(pk=orders[0].pk)
        monkeypatch.setattr(locks, "LOCKED_PAUSES", ())
        assert in_another_connection(lambda: settle(orders[:2])) == numbers(orders[1:2]), "control: it is left out"
    monkeypatch.undo()
    with rival_connection() as holder, holder.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT FROM orders_order WHERE id = %s FOR NO KEY UPDATE", [orders[0].pk])

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            cursor.execute("ROLLBACK")

        monkeypatch.setattr(locks.time, "sleep", pause)
        with statements() as sent:
            assert settle(orders) == numbers([orders[0], orders[2]])
    assert len(pauses) == 1
    assert sent.count("lock_orders_skipping") == 2


def test_orders_and_reservations_that_another_transaction_keeps_locked_are_left_out() -> None:
    orders = place_orders(make_event(), 4)
    for order in orders:
        store_webhook(order)
    with transaction.atomic():
        Order.objects.select_for_update(no_key=True).get(pk=orders[0].pk)
        Reservation.objects.select_for_update(no_key=True).get(pk=orders[1].reservation_id)
        assert in_another_connection(lambda: settle(orders)) == numbers(orders[2:])
    assert settle(orders) == numbers(orders[:2])


def test_two_workers_with_overlapping_lists_settle_each_message_once() -> None:
    orders = place_orders(make_event(), 10)
    for order in orders:
        store_webhook(order)
    lists = [orders[:7], list(reversed(orders[3:])), orders[::2]]
    settled = values(storm(3, lambda number: settle(lists[number])))
    found = [number for one in settled for number in one]
    assert len(found) == len(set(found))
    deliver_outbox()
    assert Order.objects.filter(status="confirmed").count() == Ticket.objects.count() == 10


def test_a_direct_answer_during_the_list_waits_and_then_finds_the_payment_settled() -> None:
    """A: has locked the orders and settles them
    B: receives the provider's direct answer about one of them, waits for its order, and changes nothing
    """
    orders = place_orders(make_event(), 3)
    for order in orders:
        store_webhook(order)
    payment = Payment.objects.get(order=orders[1])

    def answer() -> None:
        event = get_provider(sandbox.NAME).find_charge(payment.pk, "")
        assert event is not None
        inbox.record_provider_answer(sandbox.NAME, event)

    with rival_waiting_at("lock_orders_skipping", "after", answer) as rival:
        settled = settle(orders)
    rival.result()
    assert settled == numbers(orders)
    assert Ticket.objects.count() == 3


def test_two_orders_of_one_address_with_a_cap_are_not_decided_in_one_list() -> None:
    """Each is allowed alone, both together are one ticket above the cap: the second is decided by the single path."""
    orders = place_orders(make_event(per_buyer_max=1), 3, email="ann@example.org")
    for order in orders:
        store_webhook(order)
    assert len(settle(orders)) == 1
    deliver_outbox()
    assert sorted(Order.objects.values_list("status", flat=True)) == ["confirmed", "refunded", "refunded"]


def test_control_without_the_rule_one_list_confirms_an_address_above_its_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    event = make_event(per_buyer_max=1)
    orders = place_orders(event, 2, email="ann@example.org")
    monkeypatch.setattr(confirmations, "_within_caps", lambda cursor, rows, *rest: list(rows))
    given = [
        reservations.Confirmation(order.reservation_id, clock.now(), event, "provider:sandbox", "a test")
        for order in orders
    ]
    with transaction.atomic():
        assert len(reservations.confirm_plain(given)) == 2
        transaction.set_rollback(True)


def test_a_seat_that_is_not_held_for_its_reservation_stops_only_its_own_order() -> None:
    """The inventory is wrong: it must not sell the seat, and must not stop the other orders of the list."""
    orders = place_orders(make_event(), 3)
    for order in orders:
        store_webhook(order)
    SeatInventory.objects.filter(reservation_id=orders[0].reservation_id).update(status=0, reservation_id=None)
    assert settle(orders) == numbers(orders[1:])
    # Repaired for the audit at the end.
    line = Reservation.objects.get(pk=orders[0].reservation_id).lines.get()
    SeatInventory.objects.filter(seat=line.seat_id).update(status=1, reservation_id=orders[0].reservation_id)


def test_a_list_that_fails_halfway_changes_nothing_and_each_message_is_settled_alone() -> None:
    orders = place_orders(make_event(), 3)
    for order in orders:
        store_webhook(order)

    def fail() -> None:
        raise RuntimeError("the server is out of memory")

    with run_at("issue_tickets", "before", fail), pytest.raises(RuntimeError):
        settle(orders)
    assert not Ticket.objects.exists()
    assert not Order.objects.filter(status="confirmed").exists()
    deliver_outbox()
    assert Ticket.objects.count() == 3


def test_an_order_with_a_promo_code_and_general_admission_are_plain() -> None:
    event = make_event(general_admission=20)
    make_code(event)
    reservation = hold(event, ga_section="floor", ga_quantity=3)
    order = place_order(reservation, LATE, code="HALFPRICE")
    deliver_outbox()
    store_webhook(order)
    assert settle([order]) == {order.number}
    assert Ticket.objects.filter(order=order).count() == 3


# --- invoices -------------------------------------------------------------------------------------------------------


def sold(count: int) -> list[Order]:
    """Return confirmed orders without their invoices."""
    orders = place_orders(make_event(), count)
    for order in orders:
        store_webhook(order)
    settle(orders)
    return orders


def sequences() -> list[int]:
    return sorted(Invoice.objects.filter(kind="invoice").values_list("sequence", flat=True))


def test_the_invoices_of_a_list_have_numbers_without_a_gap() -> None:
    orders = sold(6)
    first, second = {order.pk for order in orders[:2]}, {order.pk for order in orders[2:]}
    assert invoice_lists.issue_plain(first) == first
    assert invoice_lists.issue_plain(second) == second
    assert sequences() == [1, 2, 3, 4, 5, 6]
    assert invoice_lists.issue_plain(first | second) == set()
    alone = Invoice.objects.get(order=orders[0])
    assert alone.number.endswith("-000001") or alone.sequence in (1, 2)
    assert alone.total_minor == orders[0].total_minor


def test_a_list_of_invoices_that_is_rolled_back_leaves_no_gap() -> None:
    orders = sold(4)

    def fail() -> None:
        raise RuntimeError("the server is out of memory")

    with run_at("count_papers", "after", fail), pytest.raises(RuntimeError):
        invoice_lists.issue_plain({order.pk for order in orders[:3]})
    assert invoice_lists.issue_plain({order.pk for order in orders}) == {order.pk for order in orders}
    assert sequences() == [1, 2, 3, 4]


def test_lists_and_single_invoices_at_once_leave_no_gap_and_write_none_twice() -> None:
    orders = sold(8)
    ids = [order.pk for order in orders]

    def write(number: int) -> None:
        if number == 0:
            for order_id in ids:
                invoices.issue(order_id)
        else:
            invoice_lists.issue_plain(set(ids[:6] if number == 1 else ids[2:]))

    values(storm(3, write))
    for order_id in ids:
        invoices.issue(order_id)
    assert sequences() == list(range(1, 9))


def test_an_order_with_a_return_gets_its_documents_from_the_single_path() -> None:
    orders = sold(2)
    assert order_cancellation.refund_order(orders[0].pk, "staff:1")
    assert invoice_lists.issue_plain({order.pk for order in orders}) == {orders[1].pk}
    deliver_outbox()
    assert Invoice.objects.filter(order=orders[0]).count() == 2
    assert Refund.objects.filter(payment__order=orders[0]).exists()


def test_the_message_of_a_locked_order_is_left_to_the_transaction_that_has_locked_it() -> None:
    """A: handles the message of one order alone: locks the order, and then the cap row of its address
    L: a list with that message and another of the address: leaves the order out, waits for the cap row
    A: notes the outcome at its message, which L must not have locked
    """
    orders = place_orders(make_event(per_buyer_max=10), 2, email="buyer@example.org")
    for order in orders:
        store_webhook(order)
    alone = orders[0]
    with rival_connection() as rival:
        rival.set_autocommit(False)
        with rival.cursor() as cursor:
            cursor.execute("SET lock_timeout = '2s'")
            cursor.execute("SELECT FROM orders_order WHERE id = %s FOR NO KEY UPDATE", [alone.pk])

            def note_outcome() -> None:
                cursor.execute(
                    "UPDATE orders_providermessage SET outcome = outcome WHERE payment_id IN "
                    "(SELECT id FROM orders_payment WHERE order_id = %s)",
                    [alone.pk],
                )

            with run_at("lock_provider_messages_skipping", "after", note_outcome):
                assert settle(orders) == numbers(orders[1:])
        rival.rollback()


def test_staff_who_cancel_a_reservation_wait_for_its_settlement_and_find_it_paid() -> None:
    """The action of the admin has read that it is not paid. Without another look under the lock it ended the
    reservation of a confirmed order, and its tickets were sold twice."""
    (order,) = place_orders(make_event(), 1)
    store_webhook(order)
    with rival_waiting_at(
        "confirm_orders", "after", lambda: reservations.cancel_unpaid(order.reservation_id, "staff:1", "by mistake")
    ) as staff:
        assert settle([order]) == {order.number}
    with pytest.raises(PaymentInProgress, match="is paid"):
        staff.result()
    assert facts(order)["order"][0] == Order.Status.CONFIRMED
    assert reservations.get_reservation(order.reservation_id).status == "confirmed"
