"""Why a requested seat is not free: which reservation holds it, and whether that reservation is still valid."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from apps.kernel.db import sql
from apps.kernel.http import problems
from apps.reservations.errors import SeatsUnavailable
from apps.reservations.holds.outcomes import Contended, Refused, Shortage, Verdict

_claims_of_owners = sql.load("apps.reservations", "claims_of_owners", prepared=True)


class Claim(NamedTuple):
    is_standing: bool
    has_lapsed: bool


Claims = Mapping[UUID, Claim]
"""By the id of the reservation that owns a requested seat."""

_BLOCKED = Claim(is_standing=True, has_lapsed=False)
_ENDED = Claim(is_standing=False, has_lapsed=False)


def read_claims(cursor: sql.Cursor, owners: Iterable[UUID | None], known: Claims) -> Claims:
    """Return the claims of these reservations; those that are `known` are not read again."""
    unknown = sorted({owner for owner in owners if owner is not None} - known.keys())
    if not unknown:
        return known
    # A reservation that does not exist can release nothing: its seats count as blocked. The audit reports it.
    missing = dict.fromkeys(unknown, _BLOCKED)
    found = {row[0]: Claim(*row[1:]) for row in _claims_of_owners.rows(cursor, reservation_ids=unknown)}
    return {**known, **missing, **found}


def judge_claims(
    claims: Claims, names: Mapping[int, str], taken: Mapping[int, UUID | None], released: Collection[int] = ()
) -> Verdict:
    """Return the verdict on a request for seats (`names`: id to public id) of which some are `taken` (id to owner). The
    verdict is final if a taken seat is sold, blocked, or held by a reservation before its deadline. It is not final for
    a seat whose owner has ended since it was read, or that this batch releases by a replacement (`released`)."""
    by_seat = {
        seat: _ENDED if seat in released else _BLOCKED if owner is None else claims[owner]
        for seat, owner in taken.items()
    }
    final = [seat for seat, claim in by_seat.items() if claim.is_standing and not claim.has_lapsed]
    problem = SeatsUnavailable(unavailable=[names[seat] for seat in final or taken])
    if final:
        return Refused(problem)
    lapsed = tuple(owner for seat, owner in taken.items() if owner is not None and by_seat[seat].has_lapsed)
    return Shortage(problem, lapsed) if lapsed else Contended(problems.Busy())
