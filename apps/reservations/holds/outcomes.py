"""The possible results of a request to hold: two outcomes, and two reasons to decide it again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from apps.kernel.http import idempotency, problems
from apps.reservations.holds.requests import HoldRequest


class Held(NamedTuple):
    """The request won, now or when it was first sent. Its answer is the same each time, byte for byte."""

    reservation_id: UUID
    answer: idempotency.Answer


@dataclass(frozen=True, slots=True)
class Refused:
    problem: problems.Problem

    @property
    def is_final(self) -> bool:
        """False if the response asks for a retry of the same request."""
        return self.problem.retry_after_seconds is None


@dataclass(frozen=True, slots=True)
class Contended:
    """Blocked only by a lock. `problem` is the answer if it stays blocked to the end."""

    problem: problems.Problem


@dataclass(frozen=True, slots=True)
class Shortage:
    """Too little is free, but reservations past their deadline may still hold some of it. `problem` is the answer if
    sweeping them does not help."""

    problem: problems.Problem
    holders: tuple[UUID, ...] = ()
    """Those reservations, if known. For general admission they are not, since its stock is only counted."""


HoldOutcome = Held | Refused
Verdict = HoldOutcome | Contended | Shortage


@dataclass(frozen=True, slots=True)
class Undecided:
    """The requests of a batch that can still win, by index in arrival order, and the verdicts on the others."""

    requests: Mapping[int, HoldRequest]
    verdicts: Mapping[int, Verdict] = field(default_factory=dict)

    def without(self, verdicts: Mapping[int, Verdict]) -> "Undecided":
        """Return the requests that are still undecided after these further verdicts, and all verdicts."""
        if not verdicts:
            return self
        still_open = {index: request for index, request in self.requests.items() if index not in verdicts}
        return Undecided(still_open, {**self.verdicts, **verdicts})
