"""The interface of a payment provider: its calls, and one type for all its messages.

Call a provider outside any transaction and without holding a lock: a call may take seconds.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID


class Kind(StrEnum):
    """Types of provider messages: about a charge, its refunds, and disputes about it."""

    PENDING = "payment.pending"
    SUCCEEDED = "payment.succeeded"
    DECLINED = "payment.declined"
    CANCELED = "payment.canceled"
    """The charge has not succeeded and never will."""
    REFUND_PENDING = "refund.pending"
    REFUNDED = "refund.succeeded"
    REFUND_FAILED = "refund.failed"
    DISPUTED = "dispute.opened"
    """The buyer disputes the charge at the bank."""
    DISPUTE_WITHDRAWN = "dispute.withdrawn"
    """The bank has withdrawn the money until it decides the dispute."""
    DISPUTE_REINSTATED = "dispute.reinstated"
    DISPUTE_CLOSED = "dispute.closed"

    @property
    def is_dispute(self) -> bool:
        return self in _DISPUTE_DESCRIPTIONS

    @property
    def description(self) -> str:
        """The text for staff about a dispute message."""
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
    """A charge to create. `key` is the provider's idempotency key: two requests with one key create one charge."""

    key: UUID
    method: str
    amount_minor: int
    currency: str
    description: str
    counts_until: datetime
    return_url: str = ""
    """Where the provider redirects a buyer after a confirmation on its page."""


@dataclass(frozen=True, slots=True)
class ProviderEvent:
    """One event at the provider. `occurred_at` is the provider's time, which decides if a payment was in time (I8)."""

    message_id: str
    kind: Kind
    key: str
    """The idempotency key of the charge: our payment's id, if we created it."""
    reference: str
    """The provider's id of the charge, also for a refund or a dispute."""
    amount_minor: int
    """The amount of the charge, or of the refund or dispute that the event is about."""
    currency: str
    occurred_at: datetime
    raw: bytes = field(repr=False)
    next_action: Mapping[str, str] | None = field(default=None, repr=False)
    """For a pending charge, what the buyer must do: {"type": "redirect", "url"}, or {"type": "stripe",
    "client_secret", "publishable_key"}."""
    refund_key: str = ""
    """For a refund: our refund's id, if we requested it. Staff can also create refunds at the provider by hand."""
    refund_reference: str = ""
    failure: str = ""
    """The provider's text: why a refund failed, or the state of a dispute."""
    dispute_reference: str = ""


@dataclass(frozen=True, slots=True)
class RefundRequest:
    key: UUID
    charge_reference: str
    amount_minor: int
    currency: str


class RefundState(StrEnum):
    PENDING = "pending"
    """The provider has accepted the refund and reports the result later, by webhook or on inquiry."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RefundAnswer:
    """The current state of a refund at the provider."""

    reference: str
    """The provider's id of the refund; empty if the provider refused to create it."""
    state: RefundState
    failure: str = ""


class MovementKind(StrEnum):
    CAPTURE = "capture"
    REFUND = "refund"


@dataclass(frozen=True, slots=True)
class Movement:
    """One capture or refund in the provider's books."""

    kind: MovementKind
    reference: str
    """The provider's id of the charge or of the refund."""
    key: str
    """The id of our payment or refund, if we created it."""
    charge_reference: str
    amount_minor: int
    currency: str
    occurred_at: datetime


class ProviderFault(Exception):
    """No response, or one that cannot be parsed. The state of the charge is unknown: retry."""


class RequestFault(ProviderFault):
    """The provider responds, and refuses this request. That is no reason to pause the provider for other requests."""


class RequestsLimited(RequestFault):
    """The provider responds, and takes no more requests at the moment. It has not executed this one."""


class Headers(Protocol):
    """A request's headers by case-insensitive name."""

    def get(self, name: str, default: str, /) -> str: ...


WebhookReader = Callable[[bytes, Headers], ProviderEvent | None]
"""Verifies a delivery's signature and age on the raw bytes, and returns its event; None for event types that we ignore.
Raises SignatureInvalid, and MalformedBody for signed bytes that cannot be parsed. It runs in the process `web`, without
any query or call."""


class Provider(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def methods(self) -> Mapping[str, str]:
        """Payment methods: name to label for buyers, the default first."""
        ...

    def find_charge(self, key: UUID, reference: str = "") -> ProviderEvent | None:
        """Return the state of the charge with this key, or None if the provider does not know it. `reference` is the
        provider's id of the charge, if we know it. Raises ProviderFault."""
        ...

    def charge(self, request: ChargeRequest) -> ProviderEvent:
        """Create the charge, once per key, and return its current state. Raises ProviderFault."""
        ...

    def begin_charges(self, requests: Sequence[ChargeRequest]) -> Sequence["Future[ProviderEvent]"]:
        """Begin these charges as `charge` does, all at once, and return their results in the same order, without
        waiting for an answer. Each ends alone, within the provider's timeout, and fails as `charge` does."""
        ...

    def cancel(self, request: ChargeRequest, reference: str = "") -> ProviderEvent:
        """Cancel the charge unless it has succeeded, even if the provider does not know it yet. Return its state:
        CANCELED if it never will succeed, SUCCEEDED, or PENDING if it is under way and cannot be stopped. Idempotent.
        Raises ProviderFault."""
        ...

    def refund(self, request: RefundRequest) -> RefundAnswer:
        """Refund the amount, once per key. Return the refund's state, which may be a refusal. Raises ProviderFault."""
        ...

    def find_refund(self, key: UUID, charge_reference: str) -> RefundAnswer | None:
        """Return the state of the refund with this key, or None if the provider does not know it. Raises
        ProviderFault."""
        ...

    def movements(self, day: date) -> Iterator[Movement]:
        """Yield all captures and refunds of this UTC day, read page by page. Raises ProviderFault, also midway."""
        ...
