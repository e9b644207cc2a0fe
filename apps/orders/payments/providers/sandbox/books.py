"""The sandbox's books: charges and refunds, with the outcome that the test card prescribes.

Every function runs in a transaction of its own. A charge's scheduled change is stored with the charge (`then_status`),
so that an inquiry returns the true state even if the change's webhook was never sent.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection
from django.db.models import Sum

from apps.kernel import clock
from apps.kernel.db import model_rows, sql, transactions
from apps.kernel.outbox import facade as outbox
from apps.orders.models import SandboxCharge, SandboxRefund
from apps.orders.payments.providers.protocol import ChargeRequest, ProviderFault, RefundRequest, RefundState
from apps.orders.payments.providers.sandbox import messages
from apps.orders.payments.providers.sandbox.cards import LATE, Card

_book = sql.load("apps.orders", "book_sandbox_charge")
_lock_charge = sql.load("apps.orders", "lock_sandbox_charge")
_move_charge = sql.load("apps.orders", "move_sandbox_charge")

LATE_BY = timedelta(seconds=1)
WEBHOOK_TOPIC = "sandbox.webhook"
NOT_RECEIVED = "unheard"
"""The status of a charge whose request was lost on its way: it is in the books, but callers do not find it."""
_TRANSITIONS = {"pending": ("succeeded", "declined"), "declined": ("succeeded",)}


def charge(request: ChargeRequest, card: Card) -> tuple[SandboxCharge, bool]:
    """Create the charge, once per key, and schedule its card's webhooks. Return the charge and whether it is new."""
    with transactions.write():
        pause = timedelta(seconds=settings.SANDBOX_PAUSE_SECONDS)
        columns = {
            "idempotency_key": str(request.key),
            "method": request.method,
            "amount_minor": request.amount_minor + card.excess_minor,
            "currency": request.currency,
            "status": card.answer if card.is_received else NOT_RECEIVED,
            "then_status": card.then,
            "return_url": request.return_url,
        }
        with connection.cursor() as cursor:
            booked = _book.rows(cursor, **columns, then_after=pause if card.then else None)
        if booked:
            ((pk, now, then_at),) = booked
            row = SandboxCharge(pk=pk, occurred_at=now, then_at=then_at, **columns)
            for webhook in card.webhooks:
                _send(row, webhook.status, now + webhook.true_after * pause, delay=webhook.sent_after * pause)
            if request.method == LATE:
                happens_at = max(request.counts_until, now) + LATE_BY
                _send(row, "succeeded", happens_at, delay=happens_at - now)
            return row, True
        row, now = _lock(str(request.key)), clock.now()
        row = _apply_due_change(row, now)
        if row.status == NOT_RECEIVED:
            row = _change_status(row, card.answer, now)
        return row, False


def find(key: str) -> SandboxCharge | None:
    """Return the charge with this key in its current state; None if it does not exist or its request was lost."""
    row = SandboxCharge.objects.filter(idempotency_key=key).first()
    if row is not None and row.then_at is not None:
        with transactions.write():
            row = _apply_due_change(_lock(key), clock.now())
    return None if row is None or row.status == NOT_RECEIVED else row


def cancel(request: ChargeRequest) -> SandboxCharge:
    """Cancel the charge unless it has succeeded, and return it. The late card's pending charge cannot be canceled: real
    banks have such payments too."""
    with transactions.write():
        now = clock.now()
        # A charge request that arrives later finds this row and its canceled status.
        SandboxCharge.objects.get_or_create(
            idempotency_key=str(request.key),
            defaults={
                "method": request.method,
                "amount_minor": request.amount_minor,
                "currency": request.currency,
                "status": "canceled",
                "occurred_at": now,
            },
        )
        row = _apply_due_change(_lock(str(request.key)), now)
        if row.status in ("declined", NOT_RECEIVED) or (row.status == "pending" and row.method != LATE):
            row = _change_status(row, "canceled", now)
        return row


def decide(charge_id: int, status: str) -> SandboxCharge | None:
    """Set a pending charge to this status and schedule its webhook; a decided charge stays unchanged. Return the
    charge, or None if there is none."""
    with transactions.write():
        key = SandboxCharge.objects.filter(pk=charge_id).values_list("idempotency_key", flat=True).first()
        if key is None:
            return None
        now = clock.now()
        row = _apply_due_change(_lock(key), now)
        if row.status == "pending":
            row = _change_status(row, status, now)
            _send(row, status, now, delay=timedelta())
        return row


def settle(key: str, status: str, occurred_at: datetime) -> bytes:
    """Set the charge to the webhook's status if its current status allows it. Return the unsigned webhook with this
    status, or with the cancellation if the charge is canceled."""
    with transactions.write():
        row = _apply_due_change(_lock(key), clock.now())
        if status in _TRANSITIONS.get(row.status, ()):
            row = _change_status(row, status, occurred_at)
        if row.status == "canceled":
            return messages.charge_event(row).raw
        if row.status == status:
            occurred_at = row.occurred_at
        return messages.charge_message(row, status, occurred_at)


def refund(request: RefundRequest) -> SandboxRefund | None:
    """Refund this amount of the captured charge, once per key. Return None if the charge has less left. Raises
    ProviderFault if there is no such charge."""
    with transactions.write():
        charge = _lock_captured(request.charge_reference)
        known = SandboxRefund.objects.filter(idempotency_key=str(request.key)).first()
        if known is not None:
            return known
        # Under the charge's lock: two concurrent refunds together never exceed the charge.
        refunded = charge.refunds.exclude(status=RefundState.FAILED).aggregate(minor=Sum("amount_minor"))["minor"] or 0
        if refunded + request.amount_minor > charge.amount_minor:
            return None
        return SandboxRefund.objects.create(
            idempotency_key=str(request.key),
            charge=charge,
            amount_minor=request.amount_minor,
            occurred_at=clock.now(),
        )


def _lock_captured(reference: str) -> SandboxCharge:
    prefix, _, number = reference.partition("_")
    charges = SandboxCharge.objects.select_for_update(no_key=True).filter(status="succeeded")
    charge = charges.filter(pk=int(number)).first() if prefix == "sc" and number.isdigit() else None
    if charge is None:
        raise ProviderFault(f"the sandbox has no captured charge {reference}")
    return charge


def _lock(key: str) -> SandboxCharge:
    with connection.cursor() as cursor:
        found = model_rows.build_instances(SandboxCharge, _lock_charge.rows(cursor, idempotency_key=key))
    if not found:
        raise SandboxCharge.DoesNotExist(key)
    return found[0]


def _apply_due_change(row: SandboxCharge, now: datetime) -> SandboxCharge:
    """Apply the locked charge's scheduled change if it is due. Return the charge."""
    if row.then_at is None or row.then_at > now:
        return row
    status, occurred_at = row.then_status, row.then_at
    row.then_status, row.then_at = "", None
    if status in _TRANSITIONS.get(row.status, ()):
        row.status, row.occurred_at = status, occurred_at
    return _save(row)


def _change_status(row: SandboxCharge, status: str, occurred_at: datetime) -> SandboxCharge:
    row.status, row.occurred_at, row.then_status, row.then_at = status, occurred_at, "", None
    return _save(row)


def _save(row: SandboxCharge) -> SandboxCharge:
    with connection.cursor() as cursor:
        _move_charge.count(
            cursor,
            charge_id=row.pk,
            status=str(row.status),
            occurred_at=row.occurred_at,
            then_status=row.then_status,
            then_at=row.then_at,
        )
    return row


def _send(row: SandboxCharge, status: str, occurred_at: datetime, *, delay: timedelta) -> None:
    body = {"key": row.idempotency_key, "status": status, "occurred_at": occurred_at.isoformat()}
    outbox.publish(WEBHOOK_TOPIC, row.idempotency_key, body, delay=delay)
