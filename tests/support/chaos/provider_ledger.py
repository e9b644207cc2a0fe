"""A payment provider with independent accounts: its charges and refunds are true whatever our rows contain.

It lives in memory, knows nothing of orders, and reports events by signed webhooks. The test determines its answers and
which calls fail.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

from apps.kernel import clock
from apps.kernel.http import problems
from apps.orders.errors import SignatureInvalid
from apps.orders.payments.providers.protocol import (
    ChargeRequest,
    Kind,
    Movement,
    MovementKind,
    ProviderEvent,
    ProviderFault,
    RefundAnswer,
    RefundRequest,
    RefundState,
)

NAME = "fake"
HEADERS = {"Fake-Signature": "genuine"}
At = Callable[[str, str, str], None]
"""Called with `(call, "before" | "after", key)` around a call's effect; an exception it raises is what our side
sees."""


@dataclass(frozen=True)
class Fact:
    """An event of a charge. Two deliveries of it are the same bytes."""

    message_id: str
    kind: Kind
    amount_minor: int
    currency: str
    occurred_at: datetime


@dataclass
class Charge:
    key: str
    reference: str
    request: ChargeRequest
    facts: list[Fact] = field(default_factory=list)
    refunds: dict[str, tuple[int, datetime]] = field(default_factory=dict)
    """Amount and time by idempotency key."""

    @property
    def capture(self) -> Fact | None:
        return next((fact for fact in self.facts if fact.kind == Kind.SUCCEEDED), None)

    @property
    def captured_minor(self) -> int:
        return 0 if self.capture is None else self.capture.amount_minor

    @property
    def is_settled(self) -> bool:
        """Whether it is decided, and not only pending."""
        return any(fact.kind != Kind.PENDING for fact in self.facts)

    @property
    def kept_minor(self) -> int:
        return self.captured_minor - sum(amount_minor for amount_minor, _ in self.refunds.values())


class FakeProvider:
    """The provider. `answers` is its immediate answer to a charge."""

    name = NAME
    methods: Mapping[str, str] = {NAME: "Whatever the test requires"}

    def __init__(self) -> None:
        self.charges: dict[str, Charge] = {}
        self.answers: Kind = Kind.PENDING
        self.answers_of: dict[str, Kind] = {}
        """The same for single charges, by key."""
        self.cancels = True
        """Whether a pending charge can be canceled."""
        self.at: At | None = None
        self._numbers = count(1)

    def find_charge(self, key: UUID, reference: str = "") -> ProviderEvent | None:
        self._reach("find_charge", "before", key)
        charge = self.charges.get(str(key))
        self._reach("find_charge", "after", key)
        return None if charge is None else self.event(charge, self._latest(charge))

    def charge(self, request: ChargeRequest) -> ProviderEvent:
        self._reach("charge", "before", request.key)
        charge = self._get_or_begin(request, self.answers_of.get(str(request.key), self.answers))
        self._reach("charge", "after", request.key)
        return self.event(charge, self._latest(charge))

    def begin_charges(self, requests: Sequence[ChargeRequest]) -> list["Future[ProviderEvent]"]:
        """Answer each charge at once."""
        begun: list[Future[ProviderEvent]] = []
        for request in requests:
            future: Future[ProviderEvent] = Future()
            try:
                future.set_result(self.charge(request))
            except Exception as error:
                future.set_exception(error)
            begun.append(future)
        return begun

    def cancel(self, request: ChargeRequest, reference: str = "") -> ProviderEvent:
        self._reach("cancel", "before", request.key)
        charge = self._get_or_begin(request, Kind.CANCELED)
        if not charge.is_settled and self.cancels:
            self.happen(charge.key, Kind.CANCELED)
        self._reach("cancel", "after", request.key)
        return self.event(charge, self._latest(charge))

    def refund(self, request: RefundRequest) -> RefundAnswer:
        self._reach("refund", "before", request.key)
        charge = next((each for each in self.charges.values() if each.reference == request.charge_reference), None)
        if charge is None:
            raise ProviderFault(f"no charge {request.charge_reference}")
        if str(request.key) not in charge.refunds:
            if request.amount_minor > charge.kept_minor:
                raise ProviderFault(f"{request.amount_minor} of {charge.kept_minor} cannot be refunded")
            charge.refunds[str(request.key)] = (request.amount_minor, clock.process_now())
        self._reach("refund", "after", request.key)
        return RefundAnswer(f"re-{request.key}", RefundState.SUCCEEDED)

    def find_refund(self, key: UUID, charge_reference: str) -> RefundAnswer | None:
        self._reach("find_refund", "before", key)
        known = any(str(key) in charge.refunds for charge in self.charges.values())
        self._reach("find_refund", "after", key)
        return RefundAnswer(f"re-{key}", RefundState.SUCCEEDED) if known else None

    def movements(self, day: date) -> Iterator[Movement]:
        self._reach("movements", "before", day)
        for charge in self.charges.values():
            currency = charge.request.currency if charge.capture is None else charge.capture.currency
            moved = [(MovementKind.REFUND, f"re-{key}", key, *refund) for key, refund in charge.refunds.items()]
            if charge.capture is not None:
                taken = (charge.captured_minor, charge.capture.occurred_at)
                moved.insert(0, (MovementKind.CAPTURE, charge.reference, charge.key, *taken))
            for kind, reference, key, amount_minor, occurred_at in moved:
                if occurred_at.astimezone(UTC).date() == day:
                    yield Movement(kind, reference, key, charge.reference, amount_minor, currency, occurred_at)

    def happen(
        self,
        key: str,
        kind: Kind,
        *,
        occurred_at: datetime | None = None,
        amount_minor: int | None = None,
        currency: str = "",
    ) -> Fact:
        """Record that it happened, whether or not a message of it arrives."""
        charge = self.charges[key]
        fact = Fact(
            message_id=f"msg-{next(self._numbers)}",
            kind=kind,
            amount_minor=charge.request.amount_minor if amount_minor is None else amount_minor,
            currency=currency or charge.request.currency,
            occurred_at=clock.process_now() if occurred_at is None else occurred_at,
        )
        charge.facts.append(fact)
        return fact

    def payload_of(self, key: str, fact: Fact) -> bytes:
        """Return the webhook payload that reports it."""
        return self.event(self.charges[key], fact).raw

    def event(self, charge: Charge, fact: Fact) -> ProviderEvent:
        return _read(
            json.dumps(
                {
                    "id": fact.message_id,
                    "kind": fact.kind,
                    "key": charge.key,
                    "reference": charge.reference,
                    "amount_minor": fact.amount_minor,
                    "currency": fact.currency,
                    "occurred_at": fact.occurred_at.isoformat(),
                }
            ).encode()
        )

    def age(self, keys: set[str], by: timedelta) -> None:
        """Move the events of these charges into the past."""
        for charge in self.charges.values():
            if charge.key in keys:
                charge.facts = [
                    Fact(each.message_id, each.kind, each.amount_minor, each.currency, each.occurred_at - by)
                    for each in charge.facts
                ]

    def _get_or_begin(self, request: ChargeRequest, kind: Kind) -> Charge:
        """Return the charge with this key; create it in this state if it is new."""
        charge = self.charges.get(str(request.key))
        if charge is None:
            charge = self.charges[str(request.key)] = Charge(str(request.key), f"ch-{next(self._numbers)}", request)
            self.happen(charge.key, kind)
        return charge

    def _latest(self, charge: Charge) -> Fact:
        """Return the current state of a charge: captured money stays captured, whatever was reported before."""
        return next((each for each in charge.facts if each.kind == Kind.SUCCEEDED), charge.facts[-1])

    def _reach(self, call: str, when: str, key: Any) -> None:
        if self.at is not None:
            self.at(call, when, str(key))


def read_webhook(raw: bytes, headers: Mapping[str, str]) -> ProviderEvent:
    if headers.get("Fake-Signature") != HEADERS["Fake-Signature"]:
        raise SignatureInvalid
    try:
        return _read(raw)
    except (ValueError, KeyError, TypeError) as error:
        raise problems.MalformedBody from error


def _read(raw: bytes) -> ProviderEvent:
    body = json.loads(raw)
    return ProviderEvent(
        message_id=body["id"],
        kind=Kind(body["kind"]),
        key=body["key"],
        reference=body["reference"],
        amount_minor=body["amount_minor"],
        currency=body["currency"],
        occurred_at=datetime.fromisoformat(body["occurred_at"]).astimezone(UTC),
        raw=raw,
    )
