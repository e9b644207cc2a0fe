"""The response to a hold: the public contract's reservation, as a text that never changes."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from apps.kernel import clock


class _Reservation(msgspec.Struct, frozen=True):
    """A reservation as the public API shows it, its fields sorted by name as in the canonical text."""

    currency: str
    ga_quantity: int
    ga_section: str | None
    reservation_id: str
    reserved_until: str
    seats: Sequence[str]
    status: str
    total_minor: int


_encode = msgspec.json.Encoder().encode


def contract_answer(
    *,
    reservation_id: UUID,
    reserved_until: datetime,
    seats: Sequence[str],
    general_admission: Sequence[tuple[str, int]],
    total_minor: int,
    currency: str,
    status: str,
) -> dict[str, Any]:
    """Return a reservation as the public API shows it. Times are ISO 8601 UTC."""
    section, quantity = general_admission[0] if general_admission else (None, 0)
    return {
        "reservation_id": str(reservation_id),
        "reserved_until": clock.iso(reserved_until),
        "seats": list(seats),
        "ga_section": section,
        "ga_quantity": quantity,
        "total_minor": total_minor,
        "currency": currency,
        "status": status,
    }


def answer_text(
    *,
    reservation_id: UUID,
    reserved_until: str,
    seats: Sequence[str],
    ga_section: str | None,
    ga_quantity: int,
    total_minor: int,
    currency: str,
) -> str:
    """Return the same for a reservation just made, as canonical JSON, byte for byte as `idempotency.canonical`."""
    return _encode(
        _Reservation(
            currency,
            ga_quantity,
            ga_section,
            str(reservation_id),
            reserved_until,
            seats,
            "pending_payment",
            total_minor,
        )
    ).decode()


def reservation_of_answer(answer: str) -> UUID:
    """Return the id of the reservation in a remembered answer."""
    return UUID(json.loads(answer)["reservation_id"])
