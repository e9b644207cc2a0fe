"""What a payment provider is to us: five calls, and one form for whatever it says.

A provider is always called with no transaction and no lock open: it is the slow outside world.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID


class Kind(StrEnum):
    """What a provider can say of a charge."""

    PENDING = "payment.pending"
    SUCCEEDED = "payment.succeeded"
    DECLINED = "payment.declined"


@dataclass(frozen=True, slots=True)
class ChargeRequest:
    """`key` is the provider's idempotency key: asked twice with the same one, it charges once."""

    key: UUID
    method: str
    amount_minor: int
    currency: str
    description: str
    counts_until: datetime


@dataclass(frozen=True, slots=True)
class ProviderEvent:
    """One thing that happened at the provider; `occurred_at` is its word for when, and decides (I8)."""

    message_id: str
    kind: Kind
    key: str
    """The idempotency key of the charge it speaks of: our payment's id, if it is ours."""
    reference: str
    amount_minor: int
    currency: str
    occurred_at: datetime
    raw: bytes


@dataclass(frozen=True, slots=True)
class RefundRequest:
    key: UUID
    charge_reference: str
    amount_minor: int


class ProviderFault(Exception):
    """No answer, or none that can be understood. Nothing is known about the charge: ask again."""


class Provider(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def methods(self) -> Mapping[str, str]:
        """Payment methods it takes: name to what a buyer reads, the default first."""
        ...

    def find_charge(self, key: UUID) -> ProviderEvent | None:
        """What became of the charge with this key, or None if it never heard of it. Raises ProviderFault."""
        ...

    def charge(self, request: ChargeRequest) -> ProviderEvent:
        """The charge exists, once per key; what became of it so far. Raises ProviderFault."""
        ...

    def refund(self, request: RefundRequest) -> str:
        """The money is on its way back, once per key; the provider's reference. Raises ProviderFault."""
        ...

    def read_webhook(self, raw: bytes, headers: Mapping[str, str]) -> ProviderEvent:
        """What a delivery says, its signature and age checked on the raw bytes. Raises SignatureInvalid, and
        MalformedBody when the provider signed something that cannot be read."""
        ...
