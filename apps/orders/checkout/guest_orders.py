"""What a guest bought becomes an account's."""

from apps.kernel.db import transactions
from apps.orders.locks import lock_unattached_orders
from apps.orders.models import Order


def attach_orders(visitor_id: str, account_id: int) -> int:
    """The orders that this browser placed as a guest are recorded for the account, committed; how many are new there.

    An order that has an account keeps it, so that a shared computer hands nobody what somebody else bought. The buyer
    that purchase caps count stays the browser. Two at once: the second waits at the rows and then finds them taken.
    """
    if not visitor_id:
        return 0
    with transactions.write():
        orders = lock_unattached_orders(f"visitor:{visitor_id}")
        return Order.objects.filter(pk__in=[order.pk for order in orders], account=None).update(account=account_id)
