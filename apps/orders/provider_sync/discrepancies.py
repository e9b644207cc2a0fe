"""Differences between a provider's books and ours: noted once each, gone when they are no more, or settled by a person
who says what was done."""

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
    """The difference is listed, once; one that a person has settled stays settled. Joins the caller's transaction."""
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
    """About these the books agree now: what was listed of them has settled itself. Own transaction."""
    with transactions.write():
        listed = PaymentDifference.objects.filter(provider=provider, reference__in=references, settled_at=None)
        listed.exclude(kind__in=PaymentDifference.NOT_COMPARED).update(
            settled_at=clock.now(), settled_by=SYSTEM_ACTOR, note="The books agree by now."
        )


def settle_failed(refund_id: UUID, provider: str) -> None:
    """The failed refund, which somebody has sent otherwise, is listed no more. Joins the caller's transaction."""
    transactions.require_transaction()
    listed = PaymentDifference.objects.filter(provider=provider, kind=Kind.FAILED_REFUND, reference=str(refund_id))
    listed.filter(settled_at=None).update(
        settled_at=clock.now(), settled_by=SYSTEM_ACTOR, note="Refunded at the provider by hand."
    )


def close(kind: PaymentDifference.Kind, provider: str, reference: str, words: str) -> None:
    """The difference is listed no more, for the reason that these words say. Joins the caller's transaction."""
    transactions.require_transaction()
    listed = PaymentDifference.objects.filter(kind=kind, provider=provider, reference=reference, settled_at=None)
    listed.update(settled_at=clock.now(), settled_by=SYSTEM_ACTOR, note=words[:NOTE_MAX])


def reopen_difference(kind: PaymentDifference.Kind, provider: str, reference: str) -> None:
    """The difference is listed again, if it had settled itself. Joins the caller's transaction."""
    transactions.require_transaction()
    closed = PaymentDifference.objects.filter(
        kind=kind, provider=provider, reference=reference, settled_by=SYSTEM_ACTOR
    )
    closed.update(settled_at=None, settled_by="", note="")


def settle(difference_id: int, who: str, text: str) -> None:
    """The difference is settled, with a person's word for what was done. Raises DifferenceNotSettled without one."""
    words = " ".join(text.replace("\x00", "").split())[:NOTE_MAX]
    if not words:
        raise DifferenceNotSettled
    with transactions.write():
        PaymentDifference.objects.filter(pk=difference_id, settled_at=None).update(
            settled_at=clock.now(), settled_by=who, note=words
        )


@dataclass(frozen=True, slots=True)
class OpenCount:
    """How many wait for a person."""

    differences: int
    disputes: int
    """Of them; these have a deadline at the provider."""


def count_open() -> OpenCount:
    waiting = PaymentDifference.objects.filter(settled_at=None)
    return OpenCount(waiting.count(), waiting.filter(kind=Kind.DISPUTE).count())


def record_failed_refunds(limit: int = FAILED_REFUNDS_MAX) -> int:
    """Refunds that failed are listed, by our own id of them; how many were not yet."""
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
