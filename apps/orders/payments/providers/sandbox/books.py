"""The sandbox's books: what became of a charge, as the bank of the test card would have it.

Every function is a transaction of its own. What comes later is written down with the charge (`then_status`), so that
whoever asks is told the truth, whether or not the webhook of it was ever sent.
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
"""A call that got lost on its way: the books know of it, the bank does not."""
_TRANSITIONS = {"pending": ("succeeded", "declined"), "declined": ("succeeded",)}


def charge(request: ChargeRequest, card: Card) -> tuple[SandboxCharge, bool]:
    """The charge exists, once per key, and the webhooks that its card sends are on their way; whether it is new."""
    with transactions.write():
        pause = timedelta(seconds=settings.SANDBOX_PAUSE_SECONDS)
        said = {
            "idempotency_key": str(request.key),
            "method": request.method,
            "amount_minor": request.amount_minor + card.excess_minor,
            "currency": request.currency,
            "status": card.answer if card.is_heard else NOT_RECEIVED,
            "then_status": card.then,
            "return_url": request.return_url,
        }
        with connection.cursor() as cursor:
            booked = _book.rows(cursor, **said, then_after=pause if card.then else None)
        if booked:
            ((pk, now, then_at),) = booked
            row = SandboxCharge(pk=pk, occurred_at=now, then_at=then_at, **said)
            for word in card.words:
                _send(row, word.status, now + word.true_after * pause, delay=word.sent_after * pause)
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
    """What became of the charge with this key until now; None for one the bank never heard of."""
    row = SandboxCharge.objects.filter(idempotency_key=key).first()
    if row is not None and row.then_at is not None:
        with transactions.write():
            row = _apply_due_change(_lock(key), clock.now())
    return None if row is None or row.status == NOT_RECEIVED else row


def cancel(request: ChargeRequest) -> SandboxCharge:
    """What has not happened never will. Money that is under way arrives all the same: banks have such payments too."""
    with transactions.write():
        now = clock.now()
        # A charge that comes up after this meets the row, and is canceled too.
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
    """A charge that waited for its buyer is succeeded or declined, and the webhook that says so is on its way; one that
    no longer waits is left as it is. None: there is no such charge."""
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
    """The charge is what this webhook says, unless it is past that already; the webhook, unsigned. Of a canceled charge
    nothing else is said any more."""
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
    """So much of the captured charge has gone back, once per key; None where that is more than is left of it. Raises
    ProviderFault where there is no such charge."""
    with transactions.write():
        charge = _lock_captured(request.charge_reference)
        known = SandboxRefund.objects.filter(idempotency_key=str(request.key)).first()
        if known is not None:
            return known
        # Under the charge's lock: two refunds at once never take more of it together than there is.
        gone = charge.refunds.exclude(status=RefundState.FAILED).aggregate(minor=Sum("amount_minor"))["minor"] or 0
        if gone + request.amount_minor > charge.amount_minor:
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


def settle_late_charge(key: str, occurred_at: datetime) -> bytes:
    """The late charge has succeeded in the sandbox's books; the message that says so, unsigned."""
    return settle(key, "succeeded", occurred_at)


def _lock(key: str) -> SandboxCharge:
    with connection.cursor() as cursor:
        found = model_rows.build_instances(SandboxCharge, _lock_charge.rows(cursor, idempotency_key=key))
    if not found:
        raise SandboxCharge.DoesNotExist(key)
    return found[0]


def _apply_due_change(row: SandboxCharge, now: datetime) -> SandboxCharge:
    """The locked charge, with what has come to pass meanwhile."""
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
