"""Access to sections behind an access code: the codes of one hold transaction, under their locks.

A code's row is locked after the purchase caps and before the seats. It has no counter: its uses are the live and
confirmed reservations with the code. A code with a limit is locked exclusively, and uses committed before are counted
under the lock. A code without one is locked FOR SHARE, so holds do not wait for one another. A request for sections
without a code locks no code.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from django.db import connection

from apps.kernel.db import arrays, roundtrip, sql
from apps.kernel.http import problems
from apps.reservations.errors import (
    AccessCodeLimitReached,
    AccessCodeNotValid,
    AccessCodeRequired,
    AccessCodeUsedUp,
    AccessCodeWrong,
)
from apps.reservations.holds.outcomes import Contended, Refused, Shortage
from apps.reservations.holds.replacement import Replaced, ReplacedById, replaced_by
from apps.reservations.holds.requests import HoldRequest

SWEPT_MAX = 100
"""The most lapsed uses of a code that are swept for one hold."""

_PACKAGE = "apps.reservations"
_lock_codes = sql.load(_PACKAGE, "lock_access_codes")
_lock_codes_skipping = sql.load(_PACKAGE, "lock_access_codes_skipping")
_share_codes = sql.load(_PACKAGE, "share_access_codes")
_share_codes_skipping = sql.load(_PACKAGE, "share_access_codes_skipping")
_codes = sql.load(_PACKAGE, "access_codes")
_uses_of_buyers = sql.load(_PACKAGE, "access_uses_of_buyers")

CodeKey = tuple[int, str]
"""Event id and code in its stored form."""


class _Code(NamedTuple):
    id: int
    event_id: int
    word: str
    is_active: bool
    is_early: bool
    is_over: bool
    section_ids: Sequence[int]
    """The sections it opens; empty: all."""
    uses_max: int | None
    uses_per_buyer_max: int | None
    standing: int
    """Uses by reservations that are not overdue; counted only if `uses_max` is set."""
    lapsed: Sequence[UUID] | None
    """Overdue reservations with the code that are not swept yet; also read only if `uses_max` is set."""

    def opens(self, section_ids: Collection[int]) -> bool:
        return self.is_active and (not self.section_ids or set(section_ids) <= set(self.section_ids))


class _Uses(NamedTuple):
    standing: int
    lapsed: Sequence[UUID]


def lock_codes_calls(requests: Iterable[HoldRequest], replaced: ReplacedById, *, waiting: bool) -> dict[str, sql.Call]:
    """Return the calls that lock the codes that these requests name or keep, and read them; empty if there is none.
    With `waiting` the locks wait, in the order of all locks: a code shared by a whole club is as contended as a
    general-admission row."""
    guarded = [request for request in requests if request.guarded]
    named = [(code_key(request, replaced_by(request, replaced)), request.buyer) for request in guarded]
    pairs = sorted({(*key, buyer) for key, buyer in named if key[1]})
    if not pairs:
        return {}
    keys = sorted({(event_id, word) for event_id, word, _ in pairs})
    codes = {"event_ids": arrays.numbers([key[0] for key in keys]), "words": arrays.texts([key[1] for key in keys])}
    return {
        "codes locked": (_lock_codes if waiting else _lock_codes_skipping).call(**codes),
        "codes shared": (_share_codes if waiting else _share_codes_skipping).call(**codes),
        "codes": _codes.call(**codes),
        "code uses": _uses_of_buyers.call(
            event_ids=arrays.numbers([pair[0] for pair in pairs]),
            words=arrays.texts([pair[1] for pair in pairs]),
            buyers=arrays.texts([pair[2] for pair in pairs]),
        ),
    }


def code_key(request: HoldRequest, replaced: Replaced | None) -> CodeKey:
    """Return the code that the request names, else the one that it keeps from the reservation it replaces."""
    kept = replaced.access_code if replaced is not None and replaced.event_id == request.event.id else None
    return request.event.id, request.access_code or kept or ""


def count_released_uses(replaced: Iterable[Replaced | None]) -> Mapping[CodeKey, int]:
    """Count the uses of each code that end with these reservations."""
    return Counter((one.event_id, one.access_code) for one in replaced if one is not None and one.access_code)


def guarded_sections(request: HoldRequest, section_of_seat: Mapping[int, int]) -> set[int]:
    """Return the sections of the request that are behind an access code. `section_of_seat`: of the seats that it names
    and, once they are chosen, of those chosen for it."""
    if not request.guarded:
        return set()
    wanted = {*request.quantities, *section_of_seat.values()}
    if request.best is not None and request.best.section_id is not None:
        wanted.add(request.best.section_id)
    return wanted & request.guarded.keys()


@dataclass(frozen=True, slots=True)
class FoundCode:
    """An access code that is valid now, as read without a lock."""

    id: int
    opened: Sequence[int]
    """The sections that it opens, of those that were asked for; at least one."""
    refusal: problems.Problem | None
    """Why the buyer cannot use it once more; None if it can."""


def opened_sections(event_id: int, word: str, buyer: str, guarded: Collection[int]) -> Sequence[int]:
    """Return those of these sections that the code opens for the buyer now, read without a lock. Raises
    AccessCodeWrong and the other refusals of a code."""
    found = find_code(event_id, word, buyer, guarded)
    if found.refusal is not None:
        raise found.refusal
    return found.opened


def find_code(event_id: int, word: str, buyer: str, guarded: Collection[int]) -> FoundCode:
    """Return the code if it opens one of these sections and is valid now, whether or not the buyer can use it once
    more. Raises AccessCodeWrong and AccessCodeNotValid."""
    codes = {"event_ids": [event_id], "words": [word]}
    with connection.cursor() as cursor:
        found = [_Code(*row) for row in _codes.rows(cursor, **codes)]
        uses = {row[0]: _Uses(row[2], row[3] or ()) for row in _uses_of_buyers.rows(cursor, **codes, buyers=[buyer])}
    opened = [section for section in guarded if found and found[0].opens([section])]
    if not opened:
        raise AccessCodeWrong
    (code,) = found
    invalid = _check_validity(code)
    if invalid is not None:
        raise invalid.problem
    verdict: Refused | Shortage | None = None
    if code.uses_max is not None:
        verdict = _check_limit(_Uses(code.standing, code.lapsed or ()), None, code.uses_max, AccessCodeUsedUp())
    if verdict is None and (cap := code.uses_per_buyer_max) is not None:
        verdict = _check_limit(uses.get(code.id, _Uses(0, ())), None, cap, AccessCodeLimitReached(cap=cap))
    return FoundCode(code.id, opened, verdict.problem if isinstance(verdict, Refused) else None)


def has_room(cursor: sql.Cursor, word: CodeKey, buyer: str) -> bool:
    """Return whether one more use of the code by this buyer is within its limits; lapsed uses count. Locks the code
    until the caller's transaction ends."""
    codes = {"event_ids": [word[0]], "words": [word[1]]}
    for lock in (_lock_codes, _share_codes):
        lock.rows(cursor, **codes)
    found = [_Code(*row) for row in _codes.rows(cursor, **codes)]
    by_buyer = {row[0]: row[2] + len(row[3] or ()) for row in _uses_of_buyers.rows(cursor, **codes, buyers=[buyer])}
    return all(
        (code.uses_max is None or code.standing + len(code.lapsed or ()) < code.uses_max)
        and (code.uses_per_buyer_max is None or by_buyer.get(code.id, 0) < code.uses_per_buyer_max)
        for code in found
    )


@dataclass(frozen=True, slots=True)
class LockedCodes:
    """The access codes of one transaction, as read under their locks."""

    by_key: Mapping[CodeKey, _Code] = field(default_factory=dict)
    locked: frozenset[int] = frozenset()
    """Ids of the codes that this transaction has locked; other transactions have locked the rest."""
    by_buyer: Mapping[tuple[int, str], _Uses] = field(default_factory=dict)

    def judge(
        self,
        request: HoldRequest,
        replaced: Replaced | None,
        section_ids: Collection[int],
        *,
        added: Mapping[CodeKey, int],
        releasable: Mapping[CodeKey, int],
    ) -> Refused | Contended | Shortage | None:
        """Return why the request may not hold in these sections, which need a code; None if it may. `added`: the uses
        by earlier winners of the batch. `releasable`: uses that the batch may yet release."""
        key = code_key(request, replaced)
        if not key[1]:
            return Refused(AccessCodeRequired(sections=[request.guarded[one] for one in sorted(section_ids)]))
        code = self.by_key.get(key)
        if code is None or not code.opens(section_ids):
            return Refused(AccessCodeWrong())
        if code.id not in self.locked:
            return Contended(problems.Busy())
        invalid = _check_validity(code)
        if invalid is not None:
            return invalid
        own = replaced if replaced is not None and replaced.access_code == key[1] else None
        if code.uses_max is not None:
            others_release = max(releasable.get(key, 0) - (own is not None), 0)
            uses = _Uses(code.standing + added.get(key, 0) - others_release, code.lapsed or ())
            limited = _check_limit(uses, own, code.uses_max, AccessCodeUsedUp())
            if limited is not None:
                return limited
        cap = code.uses_per_buyer_max
        if cap is not None:
            uses = self.by_buyer.get((code.id, request.buyer), _Uses(0, ()))
            own_use = own if own is not None and own.buyer == request.buyer else None
            return _check_limit(uses, own_use, cap, AccessCodeLimitReached(cap=cap))
        return None

    def uses_changed_by(
        self, request: HoldRequest, replaced: Replaced | None, section_ids: Collection[int]
    ) -> tuple[Mapping[CodeKey, int], int | None]:
        """Return by how much a winning request changes the uses of each code, and the id of the code that admitted it
        if its sections need one. Releasing a lapsed use changes nothing, since it was not counted as standing."""
        changes: Counter[CodeKey] = Counter()
        if replaced is not None and replaced.access_code is not None:
            before = replaced.event_id, replaced.access_code
            code = self.by_key.get(before)
            changes[before] -= code is None or replaced.id not in (code.lapsed or ())
        if not section_ids:
            return changes, None
        key = code_key(request, replaced)
        changes[key] += 1
        return changes, self.by_key[key].id


def read_codes(results: Mapping[str, roundtrip.StatementResult]) -> LockedCodes:
    """Return the codes from the results of `lock_codes_calls`."""
    if "codes" not in results:
        return LockedCodes()
    codes = [_Code(*row) for row in results["codes"].rows]
    return LockedCodes(
        {(code.event_id, code.word): code for code in codes},
        frozenset(row[0] for name in ("codes locked", "codes shared") for row in results[name].rows),
        {(row[0], row[1]): _Uses(row[2], row[3] or ()) for row in results["code uses"].rows},
    )


def _check_validity(code: _Code) -> Refused | None:
    """Return the refusal of a code outside its period."""
    if code.is_early:
        return Refused(AccessCodeNotValid("This access code is not valid yet."))
    if code.is_over:
        return Refused(AccessCodeNotValid("This access code is no longer valid."))
    return None


def _check_limit(uses: _Uses, own: Replaced | None, most: int, problem: problems.Problem) -> Refused | Shortage | None:
    """Return why one more use would exceed the limit, not counting `own`, which it replaces; None if it would not.
    Lapsed uses count until they are swept, because a payment made in time may still confirm them."""
    standing = uses.standing - (own is not None and own.id not in uses.lapsed)
    others = [one for one in uses.lapsed if own is None or one != own.id]
    if standing >= most:
        return Refused(problem)
    return Shortage(problems.Busy(), tuple(others[:SWEPT_MAX])) if standing + len(others) >= most else None
