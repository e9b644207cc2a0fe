"""Disputes: a buyer asks the bank instead of the organizer for the money back.

A dispute cancels nothing automatically and changes no amounts: the capture stays in the books, and staff decide whether
the tickets stay valid meanwhile. Each dispute is listed as up to two differences: one until the bank has decided, so
that staff respond to the dispute, and one while the money is withdrawn. Provider messages open and close them. The
message that occurred last decides, whatever the order of arrival.
"""

from apps.kernel.db import transactions
from apps.kernel.outbox import facade as outbox
from apps.orders import topics
from apps.orders.models import Payment, PaymentDifference, ProviderMessage
from apps.orders.payments.providers.protocol import Kind
from apps.orders.provider_sync import discrepancies

_DifferenceKind = PaymentDifference.Kind
_OPENED_AND_CLOSED = {
    _DifferenceKind.DISPUTE: (Kind.DISPUTED, Kind.DISPUTE_CLOSED),
    _DifferenceKind.DISPUTED_MONEY: (Kind.DISPUTE_WITHDRAWN, Kind.DISPUTE_REINSTATED),
}
_MAILED_KINDS = (Kind.DISPUTED, Kind.DISPUTE_CLOSED)
"""Staff get mail about these; withdrawn and reinstated money only shows in the list of differences."""


def settle(payment: Payment, message: ProviderMessage) -> str:
    """Apply the message to the differences listed for its dispute. Return a description of what changed. Joins the
    caller's transaction, which holds the order's lock."""
    transactions.require_transaction()
    kind = Kind(message.kind)
    listed = next(listed for listed, pair in _OPENED_AND_CLOSED.items() if kind in pair)
    opens, closes = _OPENED_AND_CLOSED[listed]
    received = ProviderMessage.objects.filter(
        provider=payment.provider, dispute_reference=message.dispute_reference, kind__in=(opens, closes)
    )
    # If two messages have the same time, the closing one counts as the later.
    latest = max(received, key=lambda each: (each.occurred_at, each.kind == closes))
    discrepancies.record_difference(
        listed,
        payment.provider,
        message.dispute_reference,
        order_id=payment.order_id,
        ours_minor=payment.captured_minor,
        theirs_minor=message.amount_minor,
        currency=message.currency,
        occurred_at=message.occurred_at,
    )
    if latest.kind == closes:
        discrepancies.close(
            listed, payment.provider, message.dispute_reference, f"{closes.description}: {latest.failure}."
        )
    else:
        discrepancies.reopen_difference(listed, payment.provider, message.dispute_reference)
    if kind in _MAILED_KINDS:
        outbox.publish(topics.SEND_DISPUTE_NOTICE, str(payment.order_id), {"message": message.pk})
    return f"{kind.description}: {message.failure}"
