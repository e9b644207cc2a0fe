"""The response to a hold: the public contract's reservation, as a text that never changes."""

from collections.abc import Sequence
from uuid import UUID

import msgspec

_encode = msgspec.json.Encoder().encode


class HoldAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A new reservation as the public API shows it, like `ReservationView.contract`. Its fields are sorted by name, so
    that its text is the canonical JSON, byte for byte as `idempotency.canonical`."""

    currency: str
    ga_quantity: int
    ga_section: str | None
    reservation_id: UUID
    reserved_until: str
    seats: Sequence[str]
    status: str = "pending_payment"
    total_minor: int

    @property
    def text(self) -> str:
        return _encode(self).decode()
