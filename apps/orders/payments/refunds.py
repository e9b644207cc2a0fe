"""Refunds: the deciding transaction requests them, and the outbox sends them to the provider."""

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
from apps.orders.payments.providers.protocol import RefundAnswer, RefundRequest, RefundState

PAID_OUT_NOTE_MAX = 200


def request(payment: Payment, reason: str, requested_by: str, *, amount_minor: int | None = None) -> int:
    """Request a refund of this amount, limited to what the payment still keeps, which is also the default. Return the
    requested amount; if nothing is left, return 0 and create no refund. Joins the caller's transaction, which holds the
    order's lock; the outbox sends the refund after its commit."""
    transactions.require_transaction()
    left_minor = payment.captured_minor - payment.refunded_minor
    back_minor = left_minor if amount_minor is None else min(amount_minor, left_minor)
    if back_minor == 0:
        return 0
    payment.refunded_minor += back_minor
    payment.save(update_fields=["refunded_minor"])
    _create_refund(payment, back_minor, reason, requested_by)
    outbox.publish_all([invoices.invoice_message(payment.order)])
    return back_minor


def request_of_order(order: Order, amount_minor: int, reason: str, requested_by: str) -> None:
    """Request refunds of this amount in total from the order's payments. Joins the caller's transaction, which holds
    the order's lock and has checked that the payments keep at least this amount."""
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


def retry_refund(order_id: UUID, refund_id: UUID, who: str) -> Refund:
    """Replace the order's failed refund by a new one of the same amount, and commit. The new refund has its own key:
    under the old key the provider would only return the failure again.

    Raises RefundNotFailed, also if the refund is already replaced or another order's.
    """
    with transactions.write():
        failed = _lock_failed(order_id, refund_id)
        _settle_difference(failed, who, "requested again")
        return _create_refund(failed.payment, failed.amount_minor, failed.reason, who, replaces=failed)


def record_payout(order_id: UUID, refund_id: UUID, note: str, who: str) -> Refund:
    """Record that staff paid the order's failed refund to its buyer by other means, which the note describes, and
    commit. Nothing is sent to the provider. The order's balance does not change: its payment already counts the refund.

    If `retry_refund` runs concurrently, the second of the two calls is refused, so no buyer is paid twice. Raises
    RefundNotFailed, and Invalid without a note.
    """
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in note).split())[:PAID_OUT_NOTE_MAX]
    if not text:
        raise problems.Invalid({"note": "enter how it was paid out, and to whom"})
    with transactions.write():
        refund = _lock_failed(order_id, refund_id)
        refund.status, refund.settled_at = Refund.Status.PAID_OUT, clock.now()
        refund.paid_out_by, refund.paid_out_note = who, text
        refund.save(update_fields=["status", "settled_at", "paid_out_by", "paid_out_note"])
        _settle_difference(refund, who, f"paid out by other means: {text}")
        return refund


def _lock_failed(order_id: UUID, refund_id: UUID) -> Refund:
    """Lock the order and return its refund. Joins the caller's transaction. Raises RefundNotFailed if the refund is
    another order's, has not failed or is already replaced."""
    lock_order(order_id)
    failed = Refund.objects.select_related("payment").filter(pk=refund_id, order_id=order_id).first()
    if failed is None or failed.status != Refund.Status.FAILED or Refund.objects.filter(replaces=failed).exists():
        raise RefundNotFailed
    return failed


def _settle_difference(failed: Refund, who: str, note: str) -> None:
    PaymentDifference.objects.filter(
        kind=PaymentDifference.Kind.FAILED_REFUND, reference=str(failed.pk), settled_at=None
    ).update(settled_at=clock.now(), settled_by=who, note=note)


def send(message: outbox.Message) -> None:
    """Request the refund from the provider. The refund's id is the provider's idempotency key, so a second delivery of
    this message requests the same refund, not another one."""
    refund = Refund.objects.select_related("payment").get(pk=UUID(message.body["refund"]))
    if refund.status != Refund.Status.REQUESTED:
        return
    provider = get_provider(refund.payment.provider)
    with circuit_breaker.postpone_if_unavailable(), circuit_breaker.guard_call(provider.name):
        answer = provider.refund(provider_request(refund))
    record_refund_answer(refund.pk, refund.order_id, answer)


def provider_request(refund: Refund) -> RefundRequest:
    """Return the refund's request to the provider. It is identical on every retry, as its idempotency key requires."""
    return RefundRequest(
        key=refund.pk,
        charge_reference=refund.payment.reference,
        amount_minor=refund.amount_minor,
        currency=refund.currency,
    )


def record_refund_answer(refund_id: UUID, order_id: UUID, answer: RefundAnswer) -> None:
    """Apply the provider's response to the refund, in a transaction of its own."""
    with transactions.write():
        lock_order(order_id)
        _apply_answer(Refund.objects.get(pk=refund_id), answer)


def settle(refund: Refund, message: ProviderMessage) -> str:
    """Apply the message to the refund. Return a description of what changed. Joins the caller's transaction, which
    holds the order's lock."""
    transactions.require_transaction()
    state = RefundState(message.kind.removeprefix("refund."))
    return _apply_answer(refund, RefundAnswer(message.refund_reference, state, message.failure))


def find(payment: Payment, message: ProviderMessage) -> Refund | None:
    """Return our refund that this message is about, if there is one."""
    try:
        return payment.refunds.filter(pk=UUID(message.refund_key)).first()
    except ValueError:
        return payment.refunds.filter(reference=message.refund_reference).first()


def _apply_answer(refund: Refund, answer: RefundAnswer) -> str:
    """Apply the provider's answer to the refund. Joins a transaction that holds the order's lock.

    Messages may arrive out of order, so `pending` never reverts a decision. A failure overrides even a success, because
    a bank may return a refund days later, and is final.
    """
    came_back = refund.status == Refund.Status.SUCCEEDED and answer.state == RefundState.FAILED
    if refund.status == answer.state or not (refund.status in Refund.OPEN or came_back):
        return "known already"
    refund.status = Refund.Status(answer.state)
    refund.reference = answer.reference or refund.reference
    refund.failure = answer.failure
    refund.settled_at = None if refund.status in Refund.OPEN else clock.now()
    refund.save(update_fields=["status", "reference", "failure", "settled_at"])
    return f"refund {refund.status}"
