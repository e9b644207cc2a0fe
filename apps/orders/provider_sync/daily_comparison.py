"""Daily comparison of a provider's captures and refunds with ours, in both directions.

Movements that only the provider has are first settled as if their webhook had arrived now. Our movements that the
provider does not list are looked up one by one, because near midnight the two clocks may disagree about the day. Only
the remaining differences are listed for staff. A repeated comparison lists nothing twice, so an interrupted one simply
starts again.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from typing import TypeVar
from uuid import UUID

from django.db.models import Min, Q, QuerySet

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.outbox import facade as outbox
from apps.orders import topics
from apps.orders.models import ComparedDay, Payment, Refund
from apps.orders.payments import circuit_breaker, refunds
from apps.orders.payments.providers import NAMES, get_provider, is_set_up
from apps.orders.payments.providers.protocol import (
    Kind,
    Movement,
    MovementKind,
    Provider,
    ProviderEvent,
    RefundAnswer,
    RefundState,
)
from apps.orders.provider_sync import discrepancies, inbox

DAYS_MAX = 7
"""Older days have been compared, or are left to staff."""
COMPARISON_INTERVAL = timedelta(hours=1)
"""The current day is compared this often. A past day is compared for the last time this long after its end."""
BATCH_MAX = 200

_Kind = discrepancies.Kind


Row = TypeVar("Row", Payment, Refund)


class ComparisonTakenOver(Exception):
    """Another worker has taken over the comparison."""


def schedule_comparisons() -> int:
    """Schedule the comparison of each day that is due. Return how many. A provider's days are compared one after the
    other."""
    now = clock.now()
    return sum(_schedule_comparison(name, day, now) for name in _used_providers() for day in _days(name, now.date()))


def _used_providers() -> list[str]:
    return [name for name in NAMES if is_set_up(name) and _started_payments(name).exists()]


def _started_payments(provider: str) -> QuerySet[Payment]:
    """Return the payments that the provider may have charged. They may have any status: if all messages of the provider
    were lost, no payment is marked as succeeded."""
    return Payment.objects.filter(provider=provider, started_at__isnull=False)


def _days(provider: str, today: date) -> Iterator[date]:
    begin = today - timedelta(days=DAYS_MAX)
    if not ComparedDay.objects.filter(provider=provider, day__lte=begin).exists():
        # The provider is new: begin with its first payment. This scans all its payments, but only in its first days.
        first = _started_payments(provider).aggregate(first=Min("started_at"))["first"]
        begin = max(first.astimezone(UTC).date(), begin)
    yield from (begin + timedelta(days=number) for number in range((today - begin).days + 1))


def _schedule_comparison(provider: str, day: date, now: datetime) -> int:
    settles_at = datetime.combine(day, time(), UTC) + timedelta(days=1) + COMPARISON_INTERVAL
    with transactions.write():
        row, is_new = ComparedDay.objects.get_or_create(provider=provider, day=day, defaults={"asked_at": now})
        if row.compared_at is not None and row.compared_at >= settles_at:
            return 0
        if not is_new:
            due = ComparedDay.objects.filter(pk=row.pk, asked_at=row.asked_at, asked_at__lt=now - COMPARISON_INTERVAL)
            if not due.update(asked_at=now):
                return 0
        outbox.publish(topics.COMPARE_DAY, f"compare:{provider}", {"provider": provider, "day": day.isoformat()})
    return 1


def handle(message: outbox.Message) -> None:
    def extend_claim() -> None:
        if not outbox.prolong(message):
            raise ComparisonTakenOver

    with circuit_breaker.postpone_if_unavailable():
        compare_day(message.body["provider"], date.fromisoformat(message.body["day"]), extend_claim)


def compare_day(provider_name: str, day: date, on_batch: Callable[[], None] = lambda: None) -> tuple[int, int]:
    """Compare the provider's books of this UTC day with ours and list the differences. Return the provider's numbers of
    captures and of refunds. `on_batch` is called after each batch. Raises ProviderFault and ProviderUnavailable;
    differences found so far stay listed."""
    provider, started_at = get_provider(provider_name), clock.now()
    captures, refunded = set[str](), set[str]()
    for batch in _read_movements(provider, day):
        _compare_captures(provider, [move for move in batch if move.kind == MovementKind.CAPTURE])
        _compare_refunds(provider, [move for move in batch if move.kind == MovementKind.REFUND])
        for move in batch:
            (captures if move.kind == MovementKind.CAPTURE else refunded).add(move.reference)
        on_batch()
    _find_missing_captures(provider, day, captures, on_batch)
    _find_missing_refunds(provider, day, refunded, on_batch)
    with transactions.write():
        ComparedDay.objects.update_or_create(
            provider=provider_name,
            day=day,
            defaults={
                "asked_at": started_at,
                "compared_at": started_at,
                "captures_count": len(captures),
                "refunds_count": len(refunded),
            },
        )
    return len(captures), len(refunded)


def _read_movements(provider: Provider, day: date) -> Iterator[list[Movement]]:
    with circuit_breaker.guard_call(provider.name):
        moves = iter(provider.movements(day))
        batch = list(islice(moves, BATCH_MAX))
    while batch:
        yield batch
        with circuit_breaker.guard_call(provider.name):
            batch = list(islice(moves, BATCH_MAX))


def _find_charge(provider: Provider, payment: Payment, reference: str) -> ProviderEvent | None:
    with circuit_breaker.guard_call(provider.name):
        return provider.find_charge(payment.pk, reference)


# --- the provider's movements ---------------------------------------------------------------------------------------


def _compare_captures(provider: Provider, moves: list[Movement]) -> None:
    agreed = []
    for move, payment in _match_rows(moves, Payment.objects.filter(provider=provider.name)):
        if payment is not None and payment.status != Payment.Status.SUCCEEDED:
            event = _find_charge(provider, payment, move.reference)
            if event is not None:
                inbox.record_provider_answer(provider.name, event)
            payment = Payment.objects.get(pk=payment.pk)
        if payment is None:
            _record_difference(_Kind.UNKNOWN_CAPTURE, provider, move)
        elif payment.reference not in ("", move.reference):
            # Another charge with the payment's key: the payment's own charge is a movement of its own.
            _record_difference(_Kind.UNKNOWN_CAPTURE, provider, move, payment.order_id)
        elif payment.status != Payment.Status.SUCCEEDED:
            _record_difference(_Kind.UNSETTLED_CAPTURE, provider, move, payment.order_id)
        elif (payment.captured_minor, payment.currency) != (move.amount_minor, move.currency):
            _record_difference(_Kind.CAPTURE_AMOUNT, provider, move, payment.order_id, payment.captured_minor)
        else:
            agreed.append(move.reference)
    discrepancies.settle_agreed(provider.name, agreed)


def _compare_refunds(provider: Provider, moves: list[Movement]) -> None:
    agreed = []
    ours = Refund.objects.filter(payment__provider=provider.name).select_related("payment")
    for move, refund in _match_rows(moves, ours):
        if refund is None:
            refund = _record_unknown_refund(provider, move)
        elif refund.status in Refund.OPEN:
            answer = RefundAnswer(move.reference, RefundState.SUCCEEDED)
            refunds.record_refund_answer(refund.pk, refund.order_id, answer)
            refund = Refund.objects.get(pk=refund.pk)
        if refund is None:
            continue
        if refund.status != Refund.Status.SUCCEEDED:
            _record_difference(_Kind.UNSETTLED_REFUND, provider, move, refund.order_id, refund.amount_minor)
        elif (refund.amount_minor, refund.currency) != (move.amount_minor, move.currency):
            _record_difference(_Kind.REFUND_AMOUNT, provider, move, refund.order_id, refund.amount_minor)
        else:
            agreed.append(move.reference)
    discrepancies.settle_agreed(provider.name, agreed)


def _record_unknown_refund(provider: Provider, move: Movement) -> Refund | None:
    """Record a refund that only the provider has, and return it. If that is impossible, list the difference and return
    None."""
    payment = Payment.objects.filter(provider=provider.name, reference=move.charge_reference).first()
    if payment is None:
        _record_difference(_Kind.UNKNOWN_REFUND, provider, move)
        return None
    event = ProviderEvent(
        message_id=f"{move.reference}:listed",
        kind=Kind.REFUNDED,
        key=str(payment.pk),
        reference=move.charge_reference,
        amount_minor=move.amount_minor,
        currency=move.currency,
        occurred_at=move.occurred_at,
        raw=b"",
        refund_key=move.key,
        refund_reference=move.reference,
    )
    inbox.record_provider_answer(provider.name, event)
    return Refund.objects.filter(payment=payment, reference=move.reference).first()


# --- our movements --------------------------------------------------------------------------------------------------


def _find_missing_captures(provider: Provider, day: date, seen: set[str], on_batch: Callable[[], None]) -> None:
    ours = Payment.objects.filter(provider=provider.name, status=Payment.Status.SUCCEEDED)
    of_day = ours.filter(**_within("occurred_at", day))
    for number, payment in enumerate([row for row in of_day if row.reference not in seen], 1):
        event = _find_charge(provider, payment, payment.reference)
        if event is None or event.kind != Kind.SUCCEEDED:
            with transactions.write():
                discrepancies.record_difference(
                    _Kind.MISSING_CAPTURE,
                    provider.name,
                    payment.reference,
                    order_id=payment.order_id,
                    ours_minor=payment.captured_minor,
                    currency=payment.currency,
                    occurred_at=payment.occurred_at or payment.created_at,
                )
        else:
            discrepancies.settle_agreed(provider.name, [payment.reference])
        if number % BATCH_MAX == 0:
            on_batch()


def _find_missing_refunds(provider: Provider, day: date, seen: set[str], on_batch: Callable[[], None]) -> None:
    ours = Refund.objects.filter(payment__provider=provider.name, status=Refund.Status.SUCCEEDED)
    of_day = ours.filter(**_within("settled_at", day)).select_related("payment")
    for number, refund in enumerate([row for row in of_day if row.reference not in seen], 1):
        with circuit_breaker.guard_call(provider.name):
            answer = provider.find_refund(refund.pk, refund.payment.reference)
        if answer is not None and answer.state == RefundState.FAILED:
            refunds.record_refund_answer(refund.pk, refund.order_id, answer)
        elif answer is None and not _is_listed_nearby(provider, refund):
            with transactions.write():
                discrepancies.record_difference(
                    _Kind.MISSING_REFUND,
                    provider.name,
                    refund.reference,
                    order_id=refund.order_id,
                    ours_minor=refund.amount_minor,
                    currency=refund.currency,
                    occurred_at=refund.settled_at or refund.requested_at,
                )
        else:
            discrepancies.settle_agreed(provider.name, [refund.reference])
        if number % BATCH_MAX == 0:
            on_batch()


def _is_listed_nearby(provider: Provider, refund: Refund) -> bool:
    """Return whether the provider lists the refund on its day or a neighboring one. A refund made by hand at the
    provider does not have our key, so it cannot be looked up."""
    day = (refund.settled_at or refund.requested_at).astimezone(UTC).date()
    others = (day - timedelta(days=1), day, day + timedelta(days=1))
    with circuit_breaker.guard_call(provider.name):
        return any(move.reference == refund.reference for other in others for move in provider.movements(other))


def _within(field: str, day: date) -> dict[str, datetime]:
    begin = datetime.combine(day, time(), UTC)
    return {f"{field}__gte": begin, f"{field}__lt": begin + timedelta(days=1)}


def _match_rows(moves: list[Movement], ours: QuerySet[Row]) -> list[tuple[Movement, Row | None]]:
    """Pair each movement with our row that has the movement's reference, or else its key, or with None."""
    keys = [_uuid(move.key) for move in moves]
    matches = Q(reference__in=[move.reference for move in moves]) | Q(pk__in=[key for key in keys if key])
    rows = list(ours.filter(matches)) if moves else []
    by_reference = {row.reference: row for row in rows if row.reference}
    by_key: dict[UUID | None, Row] = {row.pk: row for row in rows}
    pairs = zip(moves, keys, strict=True)
    return [(move, by_reference.get(move.reference) or by_key.get(key)) for move, key in pairs]


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _record_difference(
    kind: discrepancies.Kind, provider: Provider, move: Movement, order_id: UUID | None = None, ours: int | None = None
) -> None:
    with transactions.write():
        discrepancies.record_difference(
            kind,
            provider.name,
            move.reference,
            order_id=order_id,
            ours_minor=ours,
            theirs_minor=move.amount_minor,
            currency=move.currency,
            occurred_at=move.occurred_at,
        )
