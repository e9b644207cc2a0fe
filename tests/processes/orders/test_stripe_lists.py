"""Charges in lists at Stripe: the SDK's async client against a localstripe server."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from apps.kernel import clock
from apps.kernel.outbox.delivery import Delivery
from apps.kernel.outbox.models import OutboxMessage
from apps.orders.models import Order
from apps.orders.payments.providers import get_provider, stripe
from tests.processes.orders import stripe_account
from tests.processes.orders.stripe_account import Account
from tests.support.batches import wait_until
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import deliver_outbox, payment_of, place_order

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def server() -> Iterator[Account]:
    with stripe_account.serving() as account:
        yield account


@pytest.fixture(autouse=True)
def account(server: Account, settings: Any) -> Account:
    stripe_account.connect(server, settings)
    return server


def status_of(order: Order) -> str:
    order.refresh_from_db()
    return order.status


def test_charges_in_a_list_wait_on_one_event_loop_and_keep_their_connections(account: Account) -> None:
    """Two lists: each order has its own intent, found by its key, and the second list keeps the connections in use."""
    event = make_event()
    opened: list[set[Any]] = []
    for number in range(2):
        orders = [place_order(hold(event, seats=[f"hall-{'AB'[number]}-{seat}"]), "card") for seat in (1, 2, 3)]
        deliver_in_lists(lambda orders=orders: all(payment_of(order).reference for order in orders))
        assert {status_of(order) for order in orders} == {Order.Status.PAYING}
        assert len({payment_of(order).reference for order in orders}) == 3
        for order in orders:
            found = get_provider("stripe").find_charge(payment_of(order).pk, payment_of(order).reference)
            assert found is not None
            assert found.key == str(payment_of(order).pk)
            action = payment_of(order).next_action
            assert action is not None
            assert action["client_secret"].startswith(payment_of(order).reference)
        (client,) = stripe._async_clients.values()
        connector = client._requestor._get_http_client()._session.connector
        opened.append({connection for kept in connector._conns.values() for connection, _ in kept})
    # The first list may have needed fewer than three at once.
    assert opened[0]
    assert opened[0] <= opened[1]
    assert len(opened[1]) <= 3
    assert_audit_clean()


def test_a_charge_in_a_list_whose_call_fails_is_repeated_alone(account: Account, settings: Any) -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]), "card")
    settings.STRIPE_API_BASE = "http://127.0.0.1:1"
    deliver_in_lists(lambda: payment_of(order).faults_count == 1)
    settings.STRIPE_API_BASE = account.base
    OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now())
    deliver_outbox()
    assert payment_of(order).reference
    assert status_of(order) == Order.Status.PAYING


def deliver_in_lists(is_over: Callable[[], bool]) -> None:
    """Deliver as a worker does until it is over."""
    delivery = Delivery(2)
    try:
        delivery.wake()
        wait_until(is_over, "the list is over")
    finally:
        assert delivery.close(20)
