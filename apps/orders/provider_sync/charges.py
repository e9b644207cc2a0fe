"""Handles the outbox's charge message, then polls the provider until the payment is decided.

An order has three tries. A call without a response uses one try; the same charge, with the same key, is then retried
automatically. A decline also uses one; the next try is a new charge that the buyer starts. No charge starts while an
earlier one of the order can still succeed. The provider is called outside any transaction and without holding a lock.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic
from uuid import UUID

from django.conf import settings
from django.urls import reverse

from apps.kernel import clock, rate_limits
from apps.kernel.db import transactions
from apps.kernel.outbox.facade import Message, RetryLater
from apps.kernel.rate_limits.buckets import Buckets
from apps.orders.absolute_urls import absolute_url
from apps.orders.locks import lock_payment
from apps.orders.models import ATTEMPTS_MAX, Order, Payment
from apps.orders.payments import circuit_breaker, settlement
from apps.orders.payments.providers import get_provider
from apps.orders.payments.providers.protocol import ChargeRequest, Kind, ProviderEvent, RequestsLimited
from apps.orders.provider_sync.inbox import record_provider_answer

logger = logging.getLogger(__name__)

INQUIRY_SECONDS_MIN = 3.0
"""The first pause before the next inquiry; later pauses are half of the charge's age at the provider."""
INQUIRY_SECONDS_MAX = 30.0
"""From this age on, the reconciler inquires about a charge (status_inquiries.py)."""
_INQUIRIES_PER_SECOND = max(1, settings.PAYMENT_INQUIRIES_PER_SECOND)
_inquiries = rate_limits.share("inquiries", Buckets(_INQUIRIES_PER_SECOND, 5 * _INQUIRIES_PER_SECOND))
"""By provider. A provider limits all requests together, and orders that are never paid must not use up what charges
need: its webhooks report almost every payment."""


@dataclass(frozen=True, slots=True)
class _ProviderCall:
    """The next call to the provider for a payment, as decided under the order's lock."""

    request: ChargeRequest
    reference: str
    provider: str
    faults: int
    """The provider's consecutive faults before this call."""
    may_be_known: bool
    may_charge: bool
    is_unwanted: bool
    """The order no longer needs this charge: cancel it unless it has succeeded."""
    earlier: tuple[tuple[ChargeRequest, str], ...]
    """The order's declined charges, with their references: they must be canceled before another charge starts."""
    pause_seconds: float
    """The pause before the next inquiry if the charge is still pending after the call; 0: the reconciler inquires."""


def handle_charge(message: Message) -> None:
    """Charge the payment once and settle the result, however often this message is delivered.

    A worker may die at any line. `started_at` is committed before the call to the provider. If the next delivery finds
    it set, it looks the charge up by our key and settles it; it creates the charge only if the provider has none.
    """
    payment_id = UUID(message.body["payment"])
    step = _call_and_settle(payment_id)
    if step is not None and step.pause_seconds:
        # Still pending. The inquiry's message has a key of its own: under the order's key, which this message has, it
        # would delay the order's next try.
        with transactions.write():
            settlement.schedule_inquiry(payment_id, timedelta(seconds=step.pause_seconds))


def handle_inquiry(message: Message) -> None:
    """Settle a pending payment from its state at the provider, without waiting for a webhook. Cancel the charge if the
    order no longer needs it. The message is retried until the payment is decided or the reconciler takes over. It
    also waits, without a call, while this process makes too many inquiries."""
    payment_id = UUID(message.body["payment"])
    payment = Payment.objects.filter(pk=payment_id, status=Payment.Status.PENDING).first()
    if payment is None:
        # Decided already, as most payments are by the time this message is due.
        return
    if not _inquiries.take(payment.provider, monotonic()):
        pause_seconds = _pause_seconds(payment, clock.now())
        if pause_seconds:
            raise RetryLater(pause_seconds, "there are too many inquiries")
        return
    step = _call_and_settle(payment_id, is_charge=False)
    if step is not None and step.pause_seconds:
        raise RetryLater(step.pause_seconds, "the provider has not decided yet")


def handle_inquiries(messages: Sequence[Message]) -> set[int]:
    """Outbox list handler: return the messages whose payments are still pending. Most are decided by the time their
    inquiry is due."""
    payment_of = {message.id: UUID(message.body["payment"]) for message in messages}
    pending = set(
        Payment.objects.filter(pk__in=payment_of.values(), status=Payment.Status.PENDING).values_list("pk", flat=True)
    )
    return {message_id for message_id, payment_id in payment_of.items() if payment_id in pending}


def _call_and_settle(payment_id: UUID, *, is_charge: bool = True) -> _ProviderCall | None:
    """Call the provider and settle its response. Return the call if the payment is still pending. Raises RetryLater.
    `is_charge`: the call is due because of the charge, and not to inquire about one that is pending."""
    try:
        step = _start(payment_id)
    except circuit_breaker.ProviderUnavailable as error:
        raise RetryLater(_retry_seconds(payment_id, error.seconds), str(error)) from error
    if step is None:
        return None
    try:
        event = _call(step)
    except Exception as error:
        circuit_breaker.record_fault(step.provider, error, is_charge=is_charge)
        seconds = record_fault(payment_id, error, is_charge=is_charge)
        logger.warning("payment %s: no response from %s: %r", payment_id, step.provider, error)
        if seconds is None:
            return None
        raise RetryLater(seconds, f"{type(error).__name__}: {error}") from error
    circuit_breaker.record_success(step.provider, step.faults)
    record_provider_answer(step.provider, event)
    if event.kind == Kind.SUCCEEDED and event.key != str(payment_id) and _is_wanted(payment_id):
        # A declined charge had succeeded, at a price that this attempt has replaced: it is refunded, and this attempt
        # goes on.
        raise RetryLater(0.5, "an earlier charge of another amount was settled first")
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
                # The declined charge has succeeded since, or cannot be canceled: settle it, and charge nothing new.
                return earlier
        return provider.charge(step.request)
    # It is too late for a new charge, but an earlier request of ours may still be on its way and create one. Only a
    # cancellation prevents that.
    return provider.cancel(step.request, step.reference)


def _start(payment_id: UUID) -> _ProviderCall | None:
    """Set the order to paying, mark the payment as started, and commit. Return the call to make, or None if nothing is
    left to do. Raises ProviderUnavailable; then nothing is changed."""
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
        may_charge = order.status in Order.OPEN and has_tries and order.has_time_for_attempt(now)
        if not may_be_known and not may_charge:
            settlement.abandon_uncharged(order, payment)
            return None
        faults = circuit_breaker.require_available(payment.provider)
        declined = [each for each in payments if each.status == Payment.Status.DECLINED]
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
        earlier=tuple((charge_request(order, each), each.reference) for each in declined),
        pause_seconds=_pause_seconds(payment, now),
    )


def _may_still_count(order: Order, payment: Payment, now: datetime) -> bool:
    """Return whether this payment can still confirm its ended order: the order ran out of time, but the payment's grace
    period is not over (I8)."""
    is_out_of_time = order.status == Order.Status.FAILED and order.reason == Order.Reason.OUT_OF_TIME
    return is_out_of_time and now <= payment.counts_until


def _is_wanted(payment_id: UUID) -> bool:
    return Payment.objects.filter(pk=payment_id, status=Payment.Status.PENDING, order__status__in=Order.OPEN).exists()


def _pause_seconds(payment: Payment, now: datetime) -> float:
    if payment.started_at is None:
        return INQUIRY_SECONDS_MIN
    age_seconds = (now - payment.started_at).total_seconds()
    return max(age_seconds / 2, INQUIRY_SECONDS_MIN) if age_seconds < INQUIRY_SECONDS_MAX else 0


def charge_request(order: Order, payment: Payment) -> ChargeRequest:
    """Return the payment's request to the provider. It is identical on every retry, as its idempotency key requires."""
    return ChargeRequest(
        key=payment.pk,
        method=payment.method,
        amount_minor=payment.amount_minor,
        currency=payment.currency,
        description=f"Order {order.number}",
        counts_until=payment.counts_until,
        return_url=absolute_url(reverse("orders:order", args=[order.pk])),
    )


def record_fault(payment_id: UUID, error: BaseException, *, is_charge: bool = True) -> float | None:
    """Count a try without a response, and commit. Return the seconds until the next call, or None if this message makes
    no further call. A call that the provider did not take because there were too many is no try. After the last try one
    more call cancels the charge. If that call fails too, the order fails, and the reconciler's inquiries find out the
    state of the charge."""
    with transactions.write():
        locked = lock_payment(payment_id)
        if locked is None or locked.payment.status != Payment.Status.PENDING:
            return None
        order, payment, _ = locked
        is_limited = isinstance(error, RequestsLimited)
        if order.status not in Order.OPEN or (is_limited and not is_charge):
            return _pause_seconds(payment, clock.now()) or None
        if is_limited:
            return circuit_breaker.limited_pause_seconds()
        if payment.tries > ATTEMPTS_MAX:
            settlement.fail_order(order, Order.Reason.PROVIDER_AWAY)
            return None
        payment.faults_count += 1
        payment.save(update_fields=["faults_count"])
        return 2.0**payment.faults_count


def _retry_seconds(payment_id: UUID, seconds: int) -> float:
    """Return the provider's remaining pause, but at most the time in which a try can still start: the next delivery
    then fails the order with the right reason."""
    deadline = Payment.objects.filter(pk=payment_id).values_list("order__pay_deadline", flat=True).get()
    left = (deadline - clock.now()).total_seconds() - settings.PAYMENT_TIMEOUT_SECONDS
    return min(float(seconds), left + 0.5) if left > 0 else float(seconds)
