"""Money back: asked for in the transaction that decides it, sent by the outbox, once."""

from uuid import UUID

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.http import problems
from apps.kernel.outbox import facade as outbox
from apps.orders import topics
from apps.orders.errors import RefundNotFailed
from apps.orders.invoices import invoices
from apps.orders.locks import lock_order
from apps.orders.models import Order, Payment, PaymentDifference, ProviderMessage, Refund
from apps.orders.payments import circuit_breaker
from apps.orders.payments.providers import get_provider
from apps.orders.payments.providers.protocol import Kind, RefundAnswer, RefundRequest, RefundState

PAID_OUT_NOTE_MAX = 200


def request(payment: Payment, reason: str, requested_by: str, *, amount_minor: int | None = None) -> int:
    """So much of what this payment still holds, or all of it, is on its way back once the caller commits; how much that
    is. Joins the caller's transaction, which holds the order's lock. Nothing left: nothing happens."""
    transactions.require_transaction()
    left_minor = payment.captured_minor - payment.refunded_minor
    back_minor = left_minor if amount_minor is None else min(amount_minor, left_minor)
    if back_minor == 0:
        return 0
    payment.refunded_minor += back_minor
    payment.save(update_fields=["refunded_minor"])
    _create_refund(payment, back_minor, reason, requested_by)
    invoices.request_invoices(payment.order)
    return back_minor


def request_of_order(order: Order, amount_minor: int, reason: str, requested_by: str) -> None:
    """So much of the order's money is on its way back, from whichever of its payments holds it. Joins the caller's
    transaction, which holds the order's lock and knows that the order keeps as much."""
    left_minor = amount_minor
    for payment in Payment.objects.filter(order=order, status=Payment.Status.SUCCEEDED).order_by("attempt"):
        left_minor -= request(payment, reason, requested_by, amount_minor=left_minor)
    assert left_minor == 0, f"order {order.number} keeps {left_minor} less than {amount_minor}"


def _create_refund(
    payment: Payment, amount_minor: int, reason: str, requested_by: str, replaces: Refund | None = None
) -> Refund:
    refund = Refund.objects.create(
        order_id=payment.order_id,
        payment=payment,
        amount_minor=amount_minor,
        currency=payment.currency,
        replaces=replaces,
        reason=reason,
        requested_by=requested_by,
        requested_at=clock.now(),
    )
    outbox.publish(topics.REFUND, str(payment.order_id), {"refund": str(refund.pk)})
    return refund


def retry_refund(refund_id: UUID, who: str) -> Refund:
    """The failed refund's amount is on its way once more, committed, as a refund with a key of its own: under the old
    key the provider would only say again that it failed. Asked twice, the second finds it replaced.

    Raises RefundNotFailed.
    """
    with transactions.write():
        failed = _lock_failed(refund_id)
        _settle_difference(failed, who, "sent again")
        return _create_refund(failed.payment, failed.amount_minor, failed.reason, who, replaces=failed)


def record_payout(refund_id: UUID, note: str, who: str) -> Refund:
    """The failed refund has reached its buyer by other means, as this note says, committed. Whoever says so has paid;
    nothing is sent. The order owes and keeps what it did, since its payment counts the refund already.

    Of this and another try at once the second reads what the first one did: nobody is paid twice. Raises
    RefundNotFailed, and Invalid without a note.
    """
    words = " ".join("".join(letter if letter.isprintable() else " " for letter in note).split())[:PAID_OUT_NOTE_MAX]
    if not words:
        raise problems.Invalid({"note": "say how it was paid out, and to whom"})
    with transactions.write():
        refund = _lock_failed(refund_id)
        refund.status, refund.settled_at = Refund.Status.PAID_OUT, clock.now()
        refund.paid_out_by, refund.paid_out_note = who, words
        refund.save(update_fields=["status", "settled_at", "paid_out_by", "paid_out_note"])
        _settle_difference(refund, who, f"paid out by other means: {words}")
        return refund


def _lock_failed(refund_id: UUID) -> Refund:
    """The refund that failed and was not sent again, with its order locked. Joins the caller's transaction. Raises
    RefundNotFailed."""
    order_id = Refund.objects.filter(pk=refund_id).values_list("order_id", flat=True).first()
    if order_id is None:
        raise RefundNotFailed
    lock_order(order_id)
    failed = Refund.objects.select_related("payment").get(pk=refund_id)
    if failed.status != Refund.Status.FAILED or Refund.objects.filter(replaces=failed).exists():
        raise RefundNotFailed
    return failed


def _settle_difference(failed: Refund, who: str, note: str) -> None:
    PaymentDifference.objects.filter(
        kind=PaymentDifference.Kind.FAILED_REFUND, reference=str(failed.pk), settled_at=None
    ).update(settled_at=clock.now(), settled_by=who, note=note)


def send(message: outbox.Message) -> None:
    """The provider has given the money back, once per refund: its id is the provider's idempotency key, so a second
    delivery of this message asks for the same refund, not for another."""
    refund = Refund.objects.select_related("payment").get(pk=UUID(message.body["refund"]))
    if refund.status != Refund.Status.REQUESTED:
        return
    provider = get_provider(refund.payment.provider)
    with circuit_breaker.postpone_if_unavailable(), circuit_breaker.guard_call(provider.name):
        answer = provider.refund(provider_request(refund))
    record_refund_answer(refund.pk, refund.order_id, answer)


def provider_request(refund: Refund) -> RefundRequest:
    """What the provider is asked for with this refund: the same each time, because its key is."""
    return RefundRequest(
        key=refund.pk,
        charge_reference=refund.payment.reference,
        amount_minor=refund.amount_minor,
        currency=refund.currency,
    )


def record_refund_answer(refund_id: UUID, order_id: UUID, answer: RefundAnswer) -> None:
    """The refund says what the provider answered, committed. Own transaction."""
    with transactions.write():
        lock_order(order_id)
        _apply_answer(Refund.objects.get(pk=refund_id), answer)


def settle(payment: Payment, message: ProviderMessage) -> str:
    """The refund that this message speaks of says so; in words, what changed. Joins the caller's transaction, which
    holds the order's lock."""
    transactions.require_transaction()
    state = {
        Kind.REFUND_PENDING: RefundState.PENDING,
        Kind.REFUNDED: RefundState.SUCCEEDED,
        Kind.REFUND_FAILED: RefundState.FAILED,
    }[Kind(message.kind)]
    refund = find(payment, message)
    if refund is None:
        return "a refund that we did not ask for"
    return _apply_answer(refund, RefundAnswer(message.refund_reference, state, message.failure))


def find(payment: Payment, message: ProviderMessage) -> Refund | None:
    """The refund of ours that this message speaks of."""
    try:
        return payment.refunds.filter(pk=UUID(message.refund_key)).first()
    except ValueError:
        return payment.refunds.filter(reference=message.refund_reference).first()


def _apply_answer(refund: Refund, answer: RefundAnswer) -> str:
    """Joins a transaction that holds the order's lock. What the provider says first may arrive last: pending never
    takes a decision back, and a failure is the last word, because a refund that succeeded may still come back."""
    came_back = refund.status == Refund.Status.SUCCEEDED and answer.state == RefundState.FAILED
    if refund.status == answer.state or not (refund.status in Refund.OPEN or came_back):
        return "known already"
    refund.status = Refund.Status(answer.state)
    refund.reference = answer.reference or refund.reference
    refund.failure = answer.failure
    refund.settled_at = None if refund.status in Refund.OPEN else clock.now()
    refund.save(update_fields=["status", "reference", "failure", "settled_at"])
    return f"refund {refund.status}"
