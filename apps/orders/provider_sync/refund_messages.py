"""Provider messages about refunds: ours, and those that staff made by hand at the provider.

A manual refund has already moved the money. If it refunds all that its payment still kept, the order is refunded too,
so that no ticket stays valid without payment. A partial one does not show which tickets it was for, so it changes
nothing here: it is listed as a difference, and staff decide.
"""

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.orders.cancellation import order_cancellation
from apps.orders.models import Order, Payment, ProviderMessage, Refund
from apps.orders.payments import refunds
from apps.orders.payments.providers.protocol import Kind
from apps.orders.provider_sync import discrepancies
from apps.reservations import facade as reservations

MANUAL_REFUND = "refunded at the provider by hand"


def settle(order: Order, payment: Payment, message: ProviderMessage) -> str:
    """Apply the message to its refund, ours or made by hand. Return a description of what changed. Joins the caller's
    transaction, which holds the order's lock."""
    transactions.require_transaction()
    known = refunds.find(payment, message)
    if known is not None:
        return refunds.settle(known, message)
    if message.kind != Kind.REFUNDED:
        return "a refund that we did not request: not succeeded yet"
    left_minor = payment.captured_minor - payment.refunded_minor
    if payment.currency != message.currency or message.amount_minor > left_minor:
        # Staff may have repeated one of our failed refunds by hand, with the same amount of the same payment.
        failed = payment.refunds.filter(
            status=Refund.Status.FAILED,
            amount_minor=message.amount_minor,
            currency=message.currency,
            replaced_by=None,
        ).first()
        if failed is not None:
            return _settle_failed_refund(failed, message)
        return _record_unknown_refund(order, payment, message)
    if message.amount_minor < left_minor or order.status not in Order.STANDING:
        return _record_unknown_refund(order, payment, message)
    who = f"provider:{payment.provider}"
    _record_manual_refund(payment, message, who)
    reservations.cancel(order.reservation_id, who=who, why=f"order {order.number} {MANUAL_REFUND}")
    order_cancellation.cancel_or_refund(order, who)
    return f"order refunded: {MANUAL_REFUND}"


def _record_manual_refund(payment: Payment, message: ProviderMessage, who: str) -> None:
    now = clock.now()
    payment.refunded_minor += message.amount_minor
    payment.save(update_fields=["refunded_minor"])
    Refund.objects.create(
        order_id=payment.order_id,
        payment=payment,
        amount_minor=message.amount_minor,
        currency=message.currency,
        status=Refund.Status.SUCCEEDED,
        reason=MANUAL_REFUND,
        requested_by=who,
        reference=message.refund_reference,
        requested_at=now,
        settled_at=now,
    )


def _settle_failed_refund(failed: Refund, message: ProviderMessage) -> str:
    failed.status, failed.reference, failed.settled_at = Refund.Status.SUCCEEDED, message.refund_reference, clock.now()
    failed.save(update_fields=["status", "reference", "settled_at"])
    kind, provider = discrepancies.Kind.FAILED_REFUND, failed.payment.provider
    discrepancies.close(kind, provider, str(failed.pk), "Refunded at the provider by hand.")
    return "a failed refund was made by hand"


def _record_unknown_refund(order: Order, payment: Payment, message: ProviderMessage) -> str:
    discrepancies.record_difference(
        discrepancies.Kind.UNKNOWN_REFUND,
        payment.provider,
        message.refund_reference,
        order_id=order.pk,
        theirs_minor=message.amount_minor,
        currency=message.currency,
        occurred_at=message.occurred_at,
    )
    return "a refund that we did not request: listed"
