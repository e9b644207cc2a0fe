"""What a hold is answered with: the public contract's reservation, one text for ever."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from ticketing.kernel import clock


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
    """A reservation as the public API shows it. Times are ISO 8601 UTC."""
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


def reservation_of_answer(answer: str) -> UUID:
    """The reservation a remembered answer speaks of."""
    return UUID(json.loads(answer)["reservation_id"])
