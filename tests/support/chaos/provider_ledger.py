"""A payment provider with books of its own: what it has taken and given back is true whatever ours say.

It lives in memory, knows nothing of orders, and tells what happened as signed deliveries. What it answers, and where a
call fails, the test says beforehand.
"""

import json
from collections.abc import Callable, Iterator, Mapping
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

NAME = "books"
HEADERS = {"Books-Signature": "genuine"}
At = Callable[[str, str, str], None]
"""Told `(call, "before" | "after", key)` around what a call does to the books; what it raises is what we see of it."""


@dataclass(frozen=True)
class Fact:
    """Something that happened to a charge. Two deliveries of it are the same bytes."""

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
    """By idempotency key: how much, and when."""

    @property
    def capture(self) -> Fact | None:
        return next((fact for fact in self.facts if fact.kind == Kind.SUCCEEDED), None)

    @property
    def captured_minor(self) -> int:
        return 0 if self.capture is None else self.capture.amount_minor

    @property
    def is_settled(self) -> bool:
        """Whether there is more to say of it than that nothing is decided."""
        return any(fact.kind != Kind.PENDING for fact in self.facts)

    @property
    def kept_minor(self) -> int:
        return self.captured_minor - sum(amount_minor for amount_minor, _ in self.refunds.values())


class Books:
    """The provider. `answers` is what it says of a charge at once."""

    name = NAME
    methods: Mapping[str, str] = {NAME: "Whatever the test says"}

    def __init__(self) -> None:
        self.charges: dict[str, Charge] = {}
        self.answers: Kind = Kind.PENDING
        self.answers_of: dict[str, Kind] = {}
        """The same of one charge, by its key."""
        self.cancels = True
        """Whether a charge that is pending can be stopped."""
        self.at: At | None = None
        self._numbers = count(1)

    def find_charge(self, key: UUID, reference: str = "") -> ProviderEvent | None:
        self._reach("find_charge", "before", key)
        charge = self.charges.get(str(key))
        self._reach("find_charge", "after", key)
        return None if charge is None else self.event(charge, self._latest(charge))

    def charge(self, request: ChargeRequest) -> ProviderEvent:
        self._reach("charge", "before", request.key)
        charge = self._begun(request, self.answers_of.get(str(request.key), self.answers))
        self._reach("charge", "after", request.key)
        return self.event(charge, self._latest(charge))

    def cancel(self, request: ChargeRequest, reference: str = "") -> ProviderEvent:
        self._reach("cancel", "before", request.key)
        charge = self._begun(request, Kind.CANCELED)
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
                raise ProviderFault(f"{request.amount_minor} of {charge.kept_minor} cannot go back")
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

    def read_webhook(self, raw: bytes, headers: Mapping[str, str]) -> ProviderEvent:
        if headers.get("Books-Signature") != HEADERS["Books-Signature"]:
            raise SignatureInvalid
        try:
            return _read(raw)
        except (ValueError, KeyError, TypeError) as error:
            raise problems.MalformedBody from error

    def happen(
        self,
        key: str,
        kind: Kind,
        *,
        occurred_at: datetime | None = None,
        amount_minor: int | None = None,
        currency: str = "",
    ) -> Fact:
        """It is true from now on, whoever hears of it."""
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

    def word_of(self, key: str, fact: Fact) -> bytes:
        """The delivery that tells of it."""
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
        """What happened to these charges happened so much earlier."""
        for charge in self.charges.values():
            if charge.key in keys:
                charge.facts = [
                    Fact(each.message_id, each.kind, each.amount_minor, each.currency, each.occurred_at - by)
                    for each in charge.facts
                ]

    def _begun(self, request: ChargeRequest, kind: Kind) -> Charge:
        """The charge with this key; one it had not heard of begins so."""
        charge = self.charges.get(str(request.key))
        if charge is None:
            charge = self.charges[str(request.key)] = Charge(str(request.key), f"ch-{next(self._numbers)}", request)
            self.happen(charge.key, kind)
        return charge

    def _latest(self, charge: Charge) -> Fact:
        """What a charge is now: taken money stays taken, whatever was said before."""
        return next((each for each in charge.facts if each.kind == Kind.SUCCEEDED), charge.facts[-1])

    def _reach(self, call: str, when: str, key: Any) -> None:
        if self.at is not None:
            self.at(call, when, str(key))


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
