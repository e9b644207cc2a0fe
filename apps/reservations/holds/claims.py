"""What it means that a wanted seat is not free: judged by whose it is, and what that claim is worth."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from apps.kernel.db import sql
from apps.kernel.http import problems
from apps.reservations.errors import SeatsUnavailable
from apps.reservations.holds.outcomes import Contended, Refused, Shortage, Verdict

_claims_of_owners = sql.load("apps.reservations", "claims_of_owners", prepared=True)


@dataclass(frozen=True, slots=True)
class _Claim:
    is_standing: bool
    lapsed: bool


_BLOCKED = _Claim(is_standing=True, lapsed=False)
_ENDED = _Claim(is_standing=False, lapsed=False)


@dataclass(slots=True)
class Claims:
    """What one transaction knows of reservations that have seats which somebody wants."""

    cursor: sql.Cursor
    _known: dict[UUID, _Claim] = field(default_factory=dict)

    def load(self, owners: Iterable[UUID | None]) -> None:
        """What these reservations' claims are worth is known."""
        unknown = sorted({owner for owner in owners if owner is not None} - self._known.keys())
        if unknown:
            rows = _claims_of_owners.rows(self.cursor, reservation_ids=unknown)
            # One that is not there at all can free nothing: the auditor tells of it.
            self._known |= dict.fromkeys(unknown, _Claim(is_standing=True, lapsed=False))
            self._known |= {owner: _Claim(claims, lapsed) for owner, claims, lapsed in rows}

    def judge(
        self, names: Mapping[int, str], gone: Mapping[int, UUID | None], given_up: Collection[int] = ()
    ) -> Verdict:
        """For who wants the seats of these names, some of which are not free: final if one of those is sold, or held by
        somebody in time, or blocked. Who has ended since they were read, or in this very batch, gives them back."""
        claims = {
            seat: _ENDED if seat in given_up else _BLOCKED if owner is None else self._known[owner]
            for seat, owner in gone.items()
        }
        for_good = [seat for seat, claim in claims.items() if claim.is_standing and not claim.lapsed]
        problem = SeatsUnavailable(unavailable=[names[seat] for seat in for_good or gone])
        if for_good:
            return Refused(problem)
        lapsed = tuple(owner for seat, owner in gone.items() if owner is not None and claims[seat].lapsed)
        return Shortage(problem, lapsed) if lapsed else Contended(problems.Busy())
