"""What can come of a request to hold: two answers, and two reasons to decide it once more."""

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from apps.kernel.http import idempotency, problems


class Held(NamedTuple):
    """The request won, now or when it was first sent: its answer, byte for byte the same each time."""

    reservation_id: UUID
    answer: idempotency.Answer


@dataclass(frozen=True, slots=True)
class Refused:
    problem: problems.Problem

    @property
    def is_final(self) -> bool:
        """Whether asking again with the same key is a new question."""
        return self.problem.retry_after_seconds is None


@dataclass(frozen=True, slots=True)
class Contended:
    """Only a lock was in the way. `problem` is the answer if it stays in the way to the end."""

    problem: problems.Problem


@dataclass(frozen=True, slots=True)
class Shortage:
    """Too little is free, but reservations past their deadline may still hold some of it. `problem` is the answer if
    sweeping them changes nothing."""

    problem: problems.Problem
    holders: tuple[UUID, ...] = ()
    """Those reservations, where it is known which: of general admission nobody can say."""


HoldOutcome = Held | Refused
Verdict = HoldOutcome | Contended | Shortage
