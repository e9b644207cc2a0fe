"""Differences between a provider's books and ours: listed once each, closed when the books agree again, or settled by
staff with a note."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection

from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.orders.errors import DifferenceNotSettled
from apps.orders.models import PaymentDifference

Kind = PaymentDifference.Kind
NOTE_MAX = 500
FAILED_REFUNDS_MAX = 100
SYSTEM_ACTOR = "system"
_failed_refunds = sql.load("apps.orders", "failed_refunds")


def record_difference(
    kind: PaymentDifference.Kind,
    provider: str,
    reference: str,
    *,
    currency: str,
    occurred_at: datetime,
    order_id: UUID | None = None,
    ours_minor: int | None = None,
    theirs_minor: int | None = None,
) -> None:
    """List the difference once; an already settled one stays settled. Joins the caller's transaction."""
    transactions.require_transaction()
    now = clock.now()
    seen, is_new = PaymentDifference.objects.get_or_create(
        kind=kind,
        provider=provider,
        reference=reference,
        defaults={
            "order_id": order_id,
            "ours_minor": ours_minor,
            "theirs_minor": theirs_minor,
            "currency": currency,
            "occurred_at": occurred_at,
            "first_seen_at": now,
            "last_seen_at": now,
        },
    )
    if not is_new:
        PaymentDifference.objects.filter(pk=seen.pk).update(last_seen_at=now)


def settle_agreed(provider: str, references: Collection[str]) -> None:
    """Close the open differences of these references, on which the books agree now, and commit."""
    with transactions.write():
        listed = PaymentDifference.objects.filter(provider=provider, reference__in=references, settled_at=None)
        listed.exclude(kind__in=PaymentDifference.NOT_COMPARED).update(
            settled_at=clock.now(), settled_by=SYSTEM_ACTOR, note="The books agree now."
        )


def close(kind: PaymentDifference.Kind, provider: str, reference: str, note: str) -> None:
    """Close the difference with this note. Joins the caller's transaction."""
    transactions.require_transaction()
    listed = PaymentDifference.objects.filter(kind=kind, provider=provider, reference=reference, settled_at=None)
    listed.update(settled_at=clock.now(), settled_by=SYSTEM_ACTOR, note=note[:NOTE_MAX])


def reopen_difference(kind: PaymentDifference.Kind, provider: str, reference: str) -> None:
    """List the difference again if the system had closed it. Joins the caller's transaction."""
    transactions.require_transaction()
    closed = PaymentDifference.objects.filter(
        kind=kind, provider=provider, reference=reference, settled_by=SYSTEM_ACTOR
    )
    closed.update(settled_at=None, settled_by="", note="")


def settle(difference_id: int, who: str, text: str) -> None:
    """Settle the difference with a note of what was done about it. Raises DifferenceNotSettled without a note."""
    note = " ".join(text.replace("\x00", "").split())[:NOTE_MAX]
    if not note:
        raise DifferenceNotSettled
    with transactions.write():
        PaymentDifference.objects.filter(pk=difference_id, settled_at=None).update(
            settled_at=clock.now(), settled_by=who, note=note
        )


@dataclass(frozen=True, slots=True)
class OpenCount:
    """The number of differences that wait for staff."""

    differences: int
    disputes: int
    """Open disputes among them, which have a deadline at the provider."""


def count_open(organizer_ids: frozenset[int] | None = None) -> OpenCount:
    """Count the differences that wait for staff, of these organizers' orders or, by default, all."""
    waiting = PaymentDifference.objects.filter(settled_at=None)
    if organizer_ids is not None:
        waiting = waiting.filter(order__event__organizer__in=organizer_ids)
    return OpenCount(waiting.count(), waiting.filter(kind=Kind.DISPUTE).count())


def record_failed_refunds(limit: int = FAILED_REFUNDS_MAX) -> int:
    """List failed refunds as differences; our refund's id is the reference. Return how many were new."""
    with connection.cursor() as cursor:
        rows = _failed_refunds.rows(cursor, limit=limit)
    for provider, refund_id, order_id, amount_minor, currency, settled_at in rows:
        with transactions.write():
            record_difference(
                Kind.FAILED_REFUND,
                provider,
                str(refund_id),
                order_id=order_id,
                ours_minor=amount_minor,
                currency=currency,
                occurred_at=settled_at,
            )
    return len(rows)
