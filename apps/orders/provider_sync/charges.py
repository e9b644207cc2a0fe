"""Charging: what the outbox's charge message does, and the asking that goes on until the provider has decided.

An order has three tries. A call that brings no answer is one, and the same charge, with the same key, is asked for
again by itself; a decline is one, and the next try is the buyer's, a charge of its own. A charge is never begun anew
while an older one of the order may still happen. The provider is called with no transaction and no lock open.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.urls import reverse

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.outbox.facade import Message, RetryLater
from apps.orders.absolute_urls import absolute_url
from apps.orders.locks import lock_payment
from apps.orders.models import ATTEMPTS_MAX, Order, Payment
from apps.orders.payments import circuit_breaker, settlement
from apps.orders.payments.providers import get_provider
from apps.orders.payments.providers.protocol import ChargeRequest, Kind, ProviderEvent
from apps.orders.provider_sync.inbox import record_provider_answer

logger = logging.getLogger(__name__)

INQUIRY_SECONDS_MIN = 3.0
"""How long until the provider is asked again, at first; then half of how long it has had the charge."""
INQUIRY_SECONDS_MAX = 30.0
"""From this age on a charge is the reconciler's to ask about (status_inquiries.py)."""


@dataclass(frozen=True, slots=True)
class _ProviderCall:
    """What is to be asked of the provider now."""

    request: ChargeRequest
    reference: str
    provider: str
    faults: int
    """How many the provider had in a row."""
    may_be_known: bool
    may_charge: bool
    is_unwanted: bool
    """Nobody waits for this charge any more: what has not happened of it must not."""
    earlier: tuple[tuple[ChargeRequest, str], ...]
    """The order's declined charges, with their references: none of them may happen once another is begun."""
    pause_seconds: float
    """If it is still pending then: until it is asked about again. 0: no more."""


def handle_charge(message: Message) -> None:
    """The payment is charged once and its order says what came of it, however often this message is delivered.

    A worker may die anywhere here. Before the provider was called: the next delivery calls it. After: the next
    delivery finds `started_at`, asks the provider by our key first, and settles what it answers.
    """
    payment_id = UUID(message.body["payment"])
    step = _call_and_settle(payment_id)
    if step is not None and step.pause_seconds:
        # Still pending. In a message of its own: this one's key is the order's, and must not hold up its next try.
        with transactions.write():
            settlement.schedule_inquiry(payment_id, timedelta(seconds=step.pause_seconds))


def handle_inquiry(message: Message) -> None:
    """A payment that the provider has is settled as the provider says, without a webhook too; one that nobody waits
    for any more is canceled there. Put back until that is done, or until it is the reconciler's."""
    payment_id = UUID(message.body["payment"])
    if not Payment.objects.filter(pk=payment_id, status=Payment.Status.PENDING).exists():
        # Decided, for good: most are by the time that this is due.
        return
    step = _call_and_settle(payment_id)
    if step is not None and step.pause_seconds:
        raise RetryLater(step.pause_seconds, "the provider has not decided yet")


def _call_and_settle(payment_id: UUID) -> _ProviderCall | None:
    """The provider was asked and what it said is settled; the step, if the payment is pending still. Raises Later."""
    try:
        step = _start(payment_id)
    except circuit_breaker.ProviderUnavailable as resting:
        raise RetryLater(_retry_seconds(payment_id, resting.seconds), str(resting)) from resting
    if step is None:
        return None
    try:
        event = _call(step)
    except Exception as error:
        circuit_breaker.record_fault(step.provider)
        seconds = _record_fault(payment_id)
        logger.warning("payment %s: no answer from %s: %r", payment_id, step.provider, error)
        if seconds is None:
            return None
        raise RetryLater(seconds, f"{type(error).__name__}: {error}") from error
    circuit_breaker.record_success(step.provider, step.faults)
    record_provider_answer(step.provider, event)
    return step if event.kind == Kind.PENDING else None


def _call(step: _ProviderCall) -> ProviderEvent:
    provider = get_provider(step.provider)
    if step.is_unwanted:
        return provider.cancel(step.request, step.reference)
    event = provider.find_charge(step.request.key, step.reference) if step.may_be_known else None
    if event is not None:
        return event
    if step.may_charge:
        for request, reference in step.earlier:
            earlier = provider.cancel(request, reference)
            if earlier.kind not in (Kind.CANCELED, Kind.DECLINED):
                # Declined, and then paid after all, or not to be stopped. That one is settled instead of a second.
                return earlier
        return provider.charge(step.request)
    # Too late for a try. Not hearing of it is no certainty: a call of ours may still be on its way. Canceling is.
    return provider.cancel(step.request, step.reference)


def _start(payment_id: UUID) -> _ProviderCall | None:
    """The order is paying and the payment marked as started, committed; what to ask of the provider. None when there is
    nothing left to do. Raises ProviderUnavailable, nothing changed."""
    with transactions.write():
        locked = lock_payment(payment_id)
        if locked is None:
            return None
        order, payment, payments = locked
        if payment.status != Payment.Status.PENDING:
            return None
        now = clock.now()
        may_be_known = payment.started_at is not None
        has_tries = payment.tries <= ATTEMPTS_MAX
        may_charge = order.status in Order.OPEN and has_tries and settlement.has_time_for_attempt(order, now)
        if not may_be_known and not may_charge:
            settlement.abandon_unsent(order, payment)
            return None
        faults = circuit_breaker.require_available(payment.provider)
        declined = [one for one in payments if one.status == Payment.Status.DECLINED]
        if may_charge:
            order.status = Order.Status.PAYING
            order.save(update_fields=["status"])
            if not may_be_known:
                payment.started_at = now
                payment.save(update_fields=["started_at"])
    return _ProviderCall(
        request=charge_request(order, payment),
        reference=payment.reference,
        provider=payment.provider,
        faults=faults,
        may_be_known=may_be_known,
        may_charge=may_charge,
        is_unwanted=not has_tries if order.status in Order.OPEN else not _may_still_count(order, payment, now),
        earlier=tuple((charge_request(order, one), one.reference) for one in declined),
        pause_seconds=_pause_seconds(payment, now),
    )


def _may_still_count(order: Order, payment: Payment, now: datetime) -> bool:
    """Whether an ended order would still take this payment: its time ran out, the grace has not (I8)."""
    is_out_of_time = order.status == Order.Status.FAILED and order.reason == Order.Reason.OUT_OF_TIME
    return is_out_of_time and now <= payment.counts_until


def _pause_seconds(payment: Payment, now: datetime) -> float:
    if payment.started_at is None:
        return INQUIRY_SECONDS_MIN
    age_seconds = (now - payment.started_at).total_seconds()
    return max(age_seconds / 2, INQUIRY_SECONDS_MIN) if age_seconds < INQUIRY_SECONDS_MAX else 0


def charge_request(order: Order, payment: Payment) -> ChargeRequest:
    """What the provider is asked for with this payment: the same each time, because its key is."""
    return ChargeRequest(
        key=payment.pk,
        method=payment.method,
        amount_minor=payment.amount_minor,
        currency=payment.currency,
        description=f"Order {order.number}",
        counts_until=payment.counts_until,
        return_url=absolute_url(reverse("orders:order", args=[order.pk])),
    )


def _record_fault(payment_id: UUID) -> float | None:
    """The try that brought no answer is counted, committed; in how many seconds to ask again. None: by this message no
    more. After the last try comes one call that only makes sure; when that fails too, the order has failed, and the
    asking that goes on finds out what became of the charge."""
    with transactions.write():
        locked = lock_payment(payment_id)
        if locked is None or locked.payment.status != Payment.Status.PENDING:
            return None
        order, payment, _ = locked
        if order.status not in Order.OPEN:
            return _pause_seconds(payment, clock.now()) or None
        if payment.tries > ATTEMPTS_MAX:
            settlement.fail_order(order, Order.Reason.PROVIDER_AWAY)
            return None
        payment.faults_count += 1
        payment.save(update_fields=["faults_count"])
        return 2.0**payment.faults_count


def _retry_seconds(payment_id: UUID, seconds: int) -> float:
    """As long as the provider rests, and no longer than a try may still begin: then the order fails, and says why."""
    deadline = Payment.objects.filter(pk=payment_id).values_list("order__pay_deadline", flat=True).get()
    left = (deadline - clock.now()).total_seconds() - settings.PAYMENT_TIMEOUT_SECONDS
    return min(float(seconds), left + 0.5) if left > 0 else float(seconds)
