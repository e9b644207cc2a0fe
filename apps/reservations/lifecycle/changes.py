"""Committed changes with which the copies in Redis are updated. `transaction_id` names the transaction of PostgreSQL
that committed the change: a copy that was read with a snapshot can tell whether it includes the change already."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID


class Hold(NamedTuple):
    """A reservation that was just committed."""

    event_id: int
    reservation_id: UUID
    entry_id: UUID
    deadline: datetime
    taken: dict[int, int]
    """The number of seats and general-admission tickets by section id."""
    transaction_id: int | None = None
    """None: unknown."""


@dataclass(frozen=True, slots=True)
class DeadlineChange:
    """A live reservation's new deadline."""

    event_id: int
    reservation_id: UUID
    deadline: datetime


@dataclass(frozen=True, slots=True)
class Ended:
    """A reservation that has just ended, and the number of tickets that it returned by section."""

    event_id: int
    reservation_id: UUID
    returned: dict[int, int]
    lapsed: bool = False
    """True if it ended because its deadline had passed."""
    transaction_id: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class StockChange:
    """The number of tickets that staff put on sale, by section; negative if they took them off sale."""

    event_id: int
    free: dict[int, int]
    transaction_id: int | None = field(default=None, compare=False)
