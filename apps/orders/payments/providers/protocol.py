"""What a payment provider is to us: a few calls, and one form for whatever it says.

A provider is always called with no transaction and no lock open: it is the slow outside world.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID


class Kind(StrEnum):
    """What a provider can say of a charge, of a refund of it, and of a dispute about it."""

    PENDING = "payment.pending"
    SUCCEEDED = "payment.succeeded"
    DECLINED = "payment.declined"
    CANCELED = "payment.canceled"
    """It has not happened and never will."""
    REFUND_PENDING = "refund.pending"
    REFUNDED = "refund.succeeded"
    REFUND_FAILED = "refund.failed"
    DISPUTED = "dispute.opened"
    """Its buyer has asked the bank for the money."""
    DISPUTE_WITHDRAWN = "dispute.withdrawn"
    """The bank has taken the money, until it is decided."""
    DISPUTE_REINSTATED = "dispute.reinstated"
    DISPUTE_CLOSED = "dispute.closed"

    @property
    def is_dispute(self) -> bool:
        return self in _DISPUTE_DESCRIPTIONS

    @property
    def words(self) -> str:
        """Of a dispute: what staff reads."""
        return _DISPUTE_DESCRIPTIONS[self]

    @property
    def is_refund(self) -> bool:
        return self in (Kind.REFUND_PENDING, Kind.REFUNDED, Kind.REFUND_FAILED)


_DISPUTE_DESCRIPTIONS = {
    Kind.DISPUTED: "the buyer disputes the payment",
    Kind.DISPUTE_WITHDRAWN: "the disputed money was withdrawn",
    Kind.DISPUTE_REINSTATED: "the disputed money is back",
    Kind.DISPUTE_CLOSED: "the bank has decided the dispute",
}


@dataclass(frozen=True, slots=True)
class ChargeRequest:
    """`key` is the provider's idempotency key: asked twice with the same one, it charges once."""

    key: UUID
    method: str
    amount_minor: int
    currency: str
    description: str
    counts_until: datetime
    return_url: str = ""
    """Where a buyer who was sent away to confirm comes back to."""


@dataclass(frozen=True, slots=True)
class ProviderEvent:
    """One thing that happened at the provider; `occurred_at` is its word for when, and decides (I8)."""

    message_id: str
    kind: Kind
    key: str
    """The idempotency key of the charge it speaks of: our payment's id, if it is ours."""
    reference: str
    """The provider's own id of that charge, also where it speaks of a refund or a dispute."""
    amount_minor: int
    """Of the refund or the dispute, if it speaks of one."""
    currency: str
    occurred_at: datetime
    raw: bytes
    next_action: Mapping[str, str] | None = None
    """What the buyer must do now for a pending charge: {"type": "redirect", "url"}, or {"type": "stripe",
    "client_secret", "publishable_key"}."""
    refund_key: str = ""
    """Of a refund: our refund's id, if it is ours. Somebody may give money back by hand, at the provider."""
    refund_reference: str = ""
    failure: str = ""
    """Why a refund failed, or how a dispute stands, in the provider's words."""
    dispute_reference: str = ""


@dataclass(frozen=True, slots=True)
class RefundRequest:
    key: UUID
    charge_reference: str
    amount_minor: int
    currency: str


class RefundState(StrEnum):
    PENDING = "pending"
    """The provider has taken it on and says later, by a webhook or when asked, what came of it."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RefundAnswer:
    """What became of a refund so far."""

    reference: str
    """The provider's own id; empty where it refused to begin."""
    state: RefundState
    failure: str = ""


class MovementKind(StrEnum):
    CAPTURE = "capture"
    REFUND = "refund"


@dataclass(frozen=True, slots=True)
class Movement:
    """Money that went one way or the other, as the provider's books have it."""

    kind: MovementKind
    reference: str
    """The provider's own id of the charge, or of the refund."""
    key: str
    """Our payment's or refund's id, if it is ours."""
    charge_reference: str
    amount_minor: int
    currency: str
    occurred_at: datetime


class ProviderFault(Exception):
    """No answer, or none that can be understood. Nothing is known about the charge: ask again."""


class Provider(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def methods(self) -> Mapping[str, str]:
        """Payment methods it takes: name to what a buyer reads, the default first."""
        ...

    def find_charge(self, key: UUID, reference: str = "") -> ProviderEvent | None:
        """What became of the charge with this key, or None if it never heard of it. `reference`: the provider's own id
        of it, where we know it. Raises ProviderFault."""
        ...

    def charge(self, request: ChargeRequest) -> ProviderEvent:
        """The charge exists, once per key; what became of it so far. Raises ProviderFault."""
        ...

    def cancel(self, request: ChargeRequest, reference: str = "") -> ProviderEvent:
        """A charge that has not happened never will, also one the provider had not heard of: then the answer's kind is
        CANCELED, and certain. Else what became of the charge: SUCCEEDED, or PENDING where it is under way and cannot be
        stopped. Once more changes nothing. Raises ProviderFault."""
        ...

    def refund(self, request: RefundRequest) -> RefundAnswer:
        """The money is on its way back, once per key, or the provider says why not. Raises ProviderFault."""
        ...

    def find_refund(self, key: UUID, charge_reference: str) -> RefundAnswer | None:
        """What became of the refund with this key, or None if the provider never heard of it. Raises ProviderFault."""
        ...

    def movements(self, day: date) -> Iterator[Movement]:
        """All captures and refunds of this day in UTC, read in pieces. Raises ProviderFault, also in the middle."""
        ...

    def read_webhook(self, raw: bytes, headers: Mapping[str, str]) -> ProviderEvent | None:
        """What a delivery says, its signature and age checked on the raw bytes; None for what is of no interest to us.
        Raises SignatureInvalid, and MalformedBody when the provider signed something that cannot be read."""
        ...
