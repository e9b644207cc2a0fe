"""Oversell compensation of orders: refund the order, or reissue its tickets for other seats. All functions join the
compensation's transaction, which locks the order before the reservation."""

from typing import Any
from uuid import UUID

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.outbox import facade as outbox
from apps.orders import topics
from apps.orders.cancellation import order_cancellation
from apps.orders.locks import lock_order_of_reservation
from apps.orders.models import Order
from apps.orders.tickets import ticket_issuance
from apps.orders.webhooks import messages
from apps.reservations import facade as reservations


class OrderSales:
    """The hooks for `reservations.provide_compensation_hooks`."""

    def lock(self, reservation_id: UUID) -> Order | None:
        return lock_order_of_reservation(reservation_id)

    def is_placed(self, reservation_id: UUID) -> bool:
        return Order.objects.filter(reservation_id=reservation_id).exists()

    def cancel_or_refund(self, order: Any, who: str) -> None:
        order_cancellation.cancel_or_refund(order, who)

    def reissue(self, order: Any, reservation_id: UUID) -> None:
        """Void a paid order's tickets and issue new ones for its present seats. The buyer gets them by mail, even if
        tickets were sent before."""
        transactions.require_transaction()
        if order.status not in Order.STANDING:
            return
        ticket_issuance.reissue_for_seats(order, reservations.get_reservation(reservation_id), clock.now())
        key = topics.tickets_key(order.pk, order.link_version, is_of_staff=True)
        outbox.publish(topics.SEND_TICKETS, key, {"order": str(order.pk), "again": True})
        messages.publish_message(order, messages.Kind.TICKET_REISSUED)
