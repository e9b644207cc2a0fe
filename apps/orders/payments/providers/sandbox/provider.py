"""The sandbox as a `protocol.Provider`, backed by its books."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from datetime import date
from uuid import UUID

from django.conf import settings

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
from apps.orders.payments.providers.sandbox.rows import Charge, Refund

NAME = "sandbox"
NO_ANSWER = "the sandbox did not respond in time"


class Sandbox:
    name = NAME
    methods = METHODS

    def find_charge(self, key: UUID, reference: str = "") -> ProviderEvent | None:
        charge = books.find(str(key))
        return None if charge is None else messages.charge_event(charge)

    def charge(self, request: ChargeRequest) -> ProviderEvent:
        _check_configured()
        card = CARDS[request.method]
        charge, is_new = books.charge(request, card)
        if is_new and card.times_out:
            time.sleep(settings.SANDBOX_PAUSE_SECONDS)
            raise ProviderFault(NO_ANSWER)
        return messages.charge_event(charge)

    def begin_charges(self, requests: Sequence[ChargeRequest]) -> "Sequence[Future[ProviderEvent]]":
        """Write the charges into the books in one transaction. The answers that a card delays or loses end later."""
        _check_configured()
        booked = books.charge_all([(request, CARDS[request.method]) for request in requests])
        return [_answer(charge, is_new and CARDS[charge.method].times_out) for charge, is_new in booked]

    def cancel(self, request: ChargeRequest, reference: str = "") -> ProviderEvent:
        return messages.charge_event(books.cancel(request))

    def refund(self, request: RefundRequest) -> RefundAnswer:
        refund = books.refund(request)
        if refund is None:
            return RefundAnswer(reference="", state=RefundState.FAILED, failure="more than is left of the charge")
        return _refund_answer(refund)

    def find_refund(self, key: UUID, charge_reference: str) -> RefundAnswer | None:
        refund = books.find_refund(str(key))
        return None if refund is None else _refund_answer(refund)

    def movements(self, day: date) -> Iterator[Movement]:
        for charge in books.captures(day):
            yield Movement(
                kind=MovementKind.CAPTURE,
                reference=f"sc_{charge.pk}",
                key=charge.idempotency_key,
                charge_reference=f"sc_{charge.pk}",
                amount_minor=charge.amount_minor,
                currency=charge.currency,
                occurred_at=charge.occurred_at,
            )
        for refund, currency in books.refunds(day):
            yield Movement(
                kind=MovementKind.REFUND,
                reference=f"sr_{refund.pk}",
                key=refund.idempotency_key,
                charge_reference=f"sc_{refund.charge_pk}",
                amount_minor=refund.amount_minor,
                currency=currency,
                occurred_at=refund.occurred_at,
            )


def _check_configured() -> None:
    if settings.PAYMENT_PROVIDER != NAME:
        raise ProviderFault("the sandbox takes payments only as the configured provider")


def _answer(charge: Charge, is_lost: bool) -> "Future[ProviderEvent]":
    if is_lost:
        return event_loop.submit(_lose_answer())
    answered: Future[ProviderEvent] = Future()
    answered.set_result(messages.charge_event(charge))
    return answered


async def _lose_answer() -> ProviderEvent:
    await asyncio.sleep(settings.SANDBOX_PAUSE_SECONDS)
    raise ProviderFault(NO_ANSWER)


def _refund_answer(refund: Refund) -> RefundAnswer:
    return RefundAnswer(reference=f"sr_{refund.pk}", state=RefundState(refund.status), failure=refund.failure)
