"""The sandbox as a `protocol.Provider`, backed by its books."""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from uuid import UUID

from django.conf import settings

from apps.kernel.http import problems
from apps.orders.errors import ProviderNotFound
from apps.orders.models import SandboxCharge, SandboxRefund
from apps.orders.payments.providers import event_loop
from apps.orders.payments.providers.protocol import (
    ChargeRequest,
    Movement,
    MovementKind,
    ProviderEvent,
    ProviderFault,
    RefundAnswer,
    RefundRequest,
    RefundState,
)
from apps.orders.payments.providers.sandbox import books, messages
from apps.orders.payments.providers.sandbox.cards import CARDS, METHODS

NAME = "sandbox"
NO_ANSWER = "the sandbox did not respond in time"


class Sandbox:
    name = NAME
    methods = METHODS

    def find_charge(self, key: UUID, reference: str = "") -> ProviderEvent | None:
        charge = books.find(str(key))
        return None if charge is None else messages.charge_event(charge)

    def charge(self, request: ChargeRequest) -> ProviderEvent:
        charge, is_lost = self._book(request)
        if is_lost:
            time.sleep(settings.SANDBOX_PAUSE_SECONDS)
            raise ProviderFault(NO_ANSWER)
        return messages.charge_event(charge)

    def _book(self, request: ChargeRequest) -> tuple[SandboxCharge, bool]:
        """Create the charge; return it, and whether its answer is lost."""
        if settings.PAYMENT_PROVIDER != NAME:
            raise ProviderFault("the sandbox takes payments only as the configured provider")
        card = CARDS[request.method]
        charge, is_new = books.charge(request, card)
        return charge, is_new and card.times_out

    def begin_charges(self, requests: Sequence[ChargeRequest]) -> "Sequence[Future[ProviderEvent]]":
        return [self._begin(request) for request in requests]

    def _begin(self, request: ChargeRequest) -> "Future[ProviderEvent]":
        begun: Future[ProviderEvent] = Future()
        try:
            charge, is_lost = self._book(request)
        except Exception as error:  # noqa: BLE001 - It is this call's result.
            begun.set_exception(error)
            return begun
        if is_lost:
            return event_loop.submit(_lose_answer())
        begun.set_result(messages.charge_event(charge))
        return begun

    def cancel(self, request: ChargeRequest, reference: str = "") -> ProviderEvent:
        return messages.charge_event(books.cancel(request))

    def refund(self, request: RefundRequest) -> RefundAnswer:
        refund = books.refund(request)
        if refund is None:
            return RefundAnswer(reference="", state=RefundState.FAILED, failure="more than is left of the charge")
        return _refund_answer(refund)

    def find_refund(self, key: UUID, charge_reference: str) -> RefundAnswer | None:
        refund = SandboxRefund.objects.filter(idempotency_key=str(key)).first()
        return None if refund is None else _refund_answer(refund)

    def movements(self, day: date) -> Iterator[Movement]:
        begin = datetime.combine(day, time_of_day(), UTC)
        of_day = {"occurred_at__gte": begin, "occurred_at__lt": begin + timedelta(days=1), "status": "succeeded"}
        for charge in SandboxCharge.objects.filter(**of_day).order_by("occurred_at", "pk").iterator(500):
            yield Movement(
                kind=MovementKind.CAPTURE,
                reference=f"sc_{charge.pk}",
                key=charge.idempotency_key,
                charge_reference=f"sc_{charge.pk}",
                amount_minor=charge.amount_minor,
                currency=charge.currency,
                occurred_at=charge.occurred_at,
            )
        refunds = SandboxRefund.objects.filter(**of_day).select_related("charge").order_by("occurred_at", "pk")
        for refund in refunds.iterator(500):
            yield Movement(
                kind=MovementKind.REFUND,
                reference=f"sr_{refund.pk}",
                key=refund.idempotency_key,
                charge_reference=f"sc_{refund.charge_id}",
                amount_minor=refund.amount_minor,
                currency=refund.charge.currency,
                occurred_at=refund.occurred_at,
            )

    def read_webhook(self, raw: bytes, headers: Mapping[str, str]) -> ProviderEvent:
        if settings.PAYMENT_PROVIDER != NAME:
            raise ProviderNotFound
        messages.check_signature(raw, headers.get(messages.SIGNATURE_HEADER, ""))
        try:
            return messages.parse_message(raw)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise problems.MalformedBody("The body is not a sandbox webhook.") from error


async def _lose_answer() -> ProviderEvent:
    await asyncio.sleep(settings.SANDBOX_PAUSE_SECONDS)
    raise ProviderFault(NO_ANSWER)


def _refund_answer(refund: SandboxRefund) -> RefundAnswer:
    return RefundAnswer(reference=f"sr_{refund.pk}", state=RefundState(refund.status), failure=refund.failure)
