"""Day by day: a provider's captures and refunds against ours, in both directions.

What the provider has and we have not is first settled as if its word had come now; what we have and its list has not is
asked about one by one, because near midnight the two clocks may name two days. Only what is left then is listed for a
person. So comparing a day again finds the same, lists nothing twice, and a comparison that broke off begins anew.
"""

from collections.abc import Callable, Iterable, Iterator
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
"""What is older was compared, or is for a person to compare by hand."""
COMPARISON_INTERVAL = timedelta(hours=1)
"""Today is compared so often; a day that is over once more, as long after its end, and then no more."""
PIECE_MAX = 200

_Kind = discrepancies.Kind


Row = TypeVar("Row", Payment, Refund)


class ComparisonTakenOver(Exception):
    """Another has taken over the comparison."""


def schedule_comparisons() -> int:
    """The days whose comparison is due are being compared; how many. One after the other for each provider."""
    now = clock.now()
    return sum(_schedule_comparison(name, day, now) for name in _used_providers() for day in _days(name, now.date()))


def _used_providers() -> list[str]:
    return [name for name in NAMES if is_set_up(name) and _started_payments(name).exists()]


def _started_payments(provider: str) -> QuerySet[Payment]:
    """Payments that the provider may have taken, whatever we have heard of them: where every word was lost, none of
    ours says so."""
    return Payment.objects.filter(provider=provider, started_at__isnull=False)


def _days(provider: str, today: date) -> Iterator[date]:
    begin = today - timedelta(days=DAYS_MAX)
    if not ComparedDay.objects.filter(provider=provider, day__lte=begin).exists():
        # Only in the first days of a provider: all of its payments are looked through for the first.
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
    def go_on() -> None:
        if not outbox.prolong(message):
            raise ComparisonTakenOver

    with circuit_breaker.postpone_if_unavailable():
        compare_day(message.body["provider"], date.fromisoformat(message.body["day"]), go_on)


def compare_day(provider_name: str, day: date, go_on: Callable[[], None] = lambda: None) -> tuple[int, int]:
    """The provider's books of this day in UTC and ours agree, or where they differ is listed; how many captures and
    refunds it had. `go_on` is called between two pieces. Raises ProviderFault and ProviderUnavailable, with what was
    found so far listed."""
    provider, begun_at = get_provider(provider_name), clock.now()
    captures, given_back = set[str](), set[str]()
    for piece in _read_movements(provider, day):
        _compare_captures(provider, [move for move in piece if move.kind == MovementKind.CAPTURE])
        _compare_refunds(provider, [move for move in piece if move.kind == MovementKind.REFUND])
        for move in piece:
            (captures if move.kind == MovementKind.CAPTURE else given_back).add(move.reference)
        go_on()
    _find_missing_captures(provider, day, captures, go_on)
    _find_missing_refunds(provider, day, given_back, go_on)
    with transactions.write():
        ComparedDay.objects.update_or_create(
            provider=provider_name,
            day=day,
            defaults={
                "asked_at": begun_at,
                "compared_at": begun_at,
                "captures_count": len(captures),
                "refunds_count": len(given_back),
            },
        )
    return len(captures), len(given_back)


def _read_movements(provider: Provider, day: date) -> Iterator[list[Movement]]:
    with circuit_breaker.guard_call(provider.name):
        moves = iter(provider.movements(day))
        piece = list(islice(moves, PIECE_MAX))
    while piece:
        yield piece
        with circuit_breaker.guard_call(provider.name):
            piece = list(islice(moves, PIECE_MAX))


def _find_charge(provider: Provider, payment: Payment, reference: str) -> ProviderEvent | None:
    with circuit_breaker.guard_call(provider.name):
        return provider.find_charge(payment.pk, reference)


# --- what the provider has ------------------------------------------------------------------------------------------


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
    """The refund that the provider has and we had not, if it could be recorded; else it is listed."""
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


# --- what we have ---------------------------------------------------------------------------------------------------


def _find_missing_captures(provider: Provider, day: date, seen: set[str], go_on: Callable[[], None]) -> None:
    begin = datetime.combine(day, time(), UTC)
    of_day = Payment.objects.filter(
        provider=provider.name,
        status=Payment.Status.SUCCEEDED,
        occurred_at__gte=begin,
        occurred_at__lt=begin + timedelta(days=1),
    )
    for number, payment in enumerate(_exclude_seen(of_day, seen), 1):
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
        if number % PIECE_MAX == 0:
            go_on()


def _find_missing_refunds(provider: Provider, day: date, seen: set[str], go_on: Callable[[], None]) -> None:
    begin = datetime.combine(day, time(), UTC)
    of_day = Refund.objects.filter(
        payment__provider=provider.name,
        status=Refund.Status.SUCCEEDED,
        settled_at__gte=begin,
        settled_at__lt=begin + timedelta(days=1),
    ).select_related("payment")
    for number, refund in enumerate(_exclude_seen(of_day, seen), 1):
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
        if number % PIECE_MAX == 0:
            go_on()


def _is_listed_nearby(provider: Provider, refund: Refund) -> bool:
    """One made by hand carries no key of ours: then it is on the list of the day before or after, if at all."""
    day = (refund.settled_at or refund.requested_at).astimezone(UTC).date()
    others = (day - timedelta(days=1), day, day + timedelta(days=1))
    with circuit_breaker.guard_call(provider.name):
        return any(move.reference == refund.reference for other in others for move in provider.movements(other))


def _exclude_seen(rows: Iterable[Row], seen: set[str]) -> list[Row]:
    return [row for row in rows if row.reference not in seen]


def _match_rows(moves: list[Movement], ours: QuerySet[Row]) -> list[tuple[Movement, Row | None]]:
    """Each with the row of ours that carries its reference, or else its key."""
    keys = [_uuid(move.key) for move in moves]
    wanted = Q(reference__in=[move.reference for move in moves]) | Q(pk__in=[key for key in keys if key])
    rows = list(ours.filter(wanted)) if moves else []
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
