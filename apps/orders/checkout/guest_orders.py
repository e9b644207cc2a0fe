"""Attach a guest's orders to an account."""

from django.http import HttpRequest

from apps.kernel.db import transactions
from apps.orders.locks import lock_unattached_orders
from apps.orders.models import Order
from apps.queue import facade as queue


def attach_orders_of_browser(request: HttpRequest, account_id: int) -> None:
    """Attach the guest orders of the request's browser to the account, at log-in."""
    attach_orders(queue.visitor_id_of(request), account_id)


def attach_orders(visitor_id: str, account_id: int) -> int:
    """Attach to the account the orders that this browser placed as a guest, and commit. Return how many there were.

    An order that has an account keeps it, so that on a shared computer no account gets another buyer's orders.
    Purchase caps still count the browser as the buyer. The second of two concurrent calls waits for the rows' locks,
    then finds the orders attached.
    """
    if not visitor_id:
        return 0
    with transactions.write():
        orders = lock_unattached_orders(f"visitor:{visitor_id}")
        return Order.objects.filter(pk__in=[order.pk for order in orders], account=None).update(account=account_id)
