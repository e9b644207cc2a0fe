"""Disputes: a buyer asks the bank, and not the organizer, for the money back.

Nothing is canceled by itself and no money of ours moves: what was captured stays so in the books, and whether tickets
stay valid until the bank has decided is a person's to say. Two things are listed of each dispute: that somebody should
answer it, until the bank has decided; and that its money is away, until it is back. Each is opened and closed by a word
of the provider's, and which of the two came last is judged by when they occurred, not by when they reached us.
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
"""Of these staff has mail; how the money goes it sees in the list."""


def settle(payment: Payment, message: ProviderMessage) -> str:
    """What is listed of the dispute that this message speaks of says so; in words, what changed. Joins the caller's
    transaction, which holds the order's lock."""
    transactions.require_transaction()
    kind = Kind(message.kind)
    listed = next(listed for listed, pair in _OPENED_AND_CLOSED.items() if kind in pair)
    opens, closes = _OPENED_AND_CLOSED[listed]
    said = ProviderMessage.objects.filter(
        provider=payment.provider, dispute_reference=message.dispute_reference, kind__in=(opens, closes)
    )
    # Of two at one moment the one that closes is the later.
    latest = max(said, key=lambda one: (one.occurred_at, one.kind == closes))
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
