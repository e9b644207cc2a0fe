"""The rows of the sandbox's books."""

from dataclasses import dataclass
from datetime import datetime

NOT_RECEIVED = "unheard"
"""The status of a charge whose request was lost on its way: it is in the books, but callers do not find it."""


@dataclass(slots=True)
class Charge:
    """A charge in the books. `status`: pending, succeeded, declined, canceled or NOT_RECEIVED."""

    pk: int
    """Random, so that no file of books repeats the ids of another."""
    idempotency_key: str
    method: str
    amount_minor: int
    currency: str
    status: str
    occurred_at: datetime
    then_status: str = ""
    """The status that it changes to by itself, at `then_at`."""
    then_at: datetime | None = None
    return_url: str = ""


@dataclass(slots=True)
class Refund:
    """A refund in the books. `status`: one of RefundState."""

    pk: int
    idempotency_key: str
    charge_pk: int
    amount_minor: int
    status: str
    failure: str
    occurred_at: datetime
