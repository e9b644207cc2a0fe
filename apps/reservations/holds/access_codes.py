"""What lets a request into sections that want an access code: the codes of one transaction, under their locks.

A code's row is a cap row: after purchase caps, before seats. It holds no number: its uses are the standing reservations
that name it. Where those are limited it is locked, and whoever has it counts what everybody before committed; where
they are not, it is only kept from changing, and nobody waits for anybody. A request of sections that want no code
locks no code.
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
from apps.reservations.holds.replacement import Replaced
from apps.reservations.holds.requests import HoldRequest

SWEPT_MAX = 100
"""Lapsed uses of a code that one hold asks to have ended."""

_PACKAGE = "apps.reservations"
_lock_codes = sql.load(_PACKAGE, "lock_access_codes")
_lock_codes_skipping = sql.load(_PACKAGE, "lock_access_codes_skipping")
_share_codes = sql.load(_PACKAGE, "share_access_codes")
_share_codes_skipping = sql.load(_PACKAGE, "share_access_codes_skipping")
_codes = sql.load(_PACKAGE, "access_codes")
_uses_of_buyers = sql.load(_PACKAGE, "access_uses_of_buyers")

CodeRequest = tuple[HoldRequest, Replaced | None]
"""A request, and what it gives up."""
CodeKey = tuple[int, str]
"""A code as it is written, of an event."""


class _Code(NamedTuple):
    id: int
    event_id: int
    word: str
    is_active: bool
    is_early: bool
    is_over: bool
    section_ids: Sequence[int]
    """What it opens; empty: all."""
    uses_max: int | None
    uses_per_buyer_max: int | None
    standing: int
    """Of its uses, where they are limited, those in time,"""
    lapsed: Sequence[UUID] | None
    """and those past their deadline that nobody has ended yet."""

    def opens(self, section_ids: Collection[int]) -> bool:
        return self.is_active and (not self.section_ids or set(section_ids) <= set(self.section_ids))


class _Uses(NamedTuple):
    standing: int
    lapsed: Sequence[UUID]


def lock_codes_calls(asking: Iterable[CodeRequest], *, waiting: bool) -> dict[str, sql.Call]:
    """The locks of the codes that these requests name or keep, and under them what is to be known of each; nothing
    where none does. With `waiting` they wait, in the order of all locks; codes of a whole club are as hot as general
    admission."""
    named = [(code_key(request, given_up), request.buyer) for request, given_up in asking if request.guarded]
    pairs = sorted({(*word, buyer) for word, buyer in named if word[1]})
    if not pairs:
        return {}
    words = sorted({(event_id, word) for event_id, word, _ in pairs})
    codes = {"event_ids": arrays.numbers([one[0] for one in words]), "words": arrays.texts([one[1] for one in words])}
    return {
        "codes locked": (_lock_codes if waiting else _lock_codes_skipping).call(**codes),
        "codes shared": (_share_codes if waiting else _share_codes_skipping).call(**codes),
        "codes": _codes.call(**codes),
        "code uses": _uses_of_buyers.call(
            event_ids=arrays.numbers([one[0] for one in pairs]),
            words=arrays.texts([one[1] for one in pairs]),
            buyers=arrays.texts([one[2] for one in pairs]),
        ),
    }


def code_key(request: HoldRequest, given_up: Replaced | None) -> CodeKey:
    """The code that the request names; else that of what it gives up, which it keeps."""
    kept = given_up.access_code if given_up is not None and given_up.event_id == request.event.id else None
    return request.event.id, request.access_code or kept or ""


def count_released_uses(replaced: Iterable[Replaced | None]) -> Mapping[CodeKey, int]:
    """How many uses of each code these have."""
    return Counter((one.event_id, one.access_code) for one in replaced if one is not None and one.access_code)


def opened_sections(event_id: int, word: str, buyer: str, guarded: Collection[int]) -> list[int]:
    """Those of these sections that the code opens for the buyer now, as far as can be told without a lock. Raises
    AccessCodeWrong and the other refusals of a code."""
    codes = {"event_ids": [event_id], "words": [word]}
    with connection.cursor() as cursor:
        found = [_Code(*row) for row in _codes.rows(cursor, **codes)]
        uses = {row[0]: _Uses(row[2], row[3] or ()) for row in _uses_of_buyers.rows(cursor, **codes, buyers=[buyer])}
    opened = [one for one in guarded if found and found[0].opens([one])]
    if not opened:
        raise AccessCodeWrong
    (code,) = found
    verdict: Refused | Shortage | None = _check_validity(code)
    if verdict is None and code.uses_max is not None:
        verdict = _check_limit(_Uses(code.standing, code.lapsed or ()), None, code.uses_max, AccessCodeUsedUp())
    if verdict is None and (cap := code.uses_per_buyer_max) is not None:
        verdict = _check_limit(uses.get(code.id, _Uses(0, ())), None, cap, AccessCodeLimitReached(cap=cap))
    if isinstance(verdict, Refused):
        raise verdict.problem
    return opened


def has_room(cursor: sql.Cursor, word: CodeKey, buyer: str) -> bool:
    """Whether one use more of the code by this buyer is within its limits, lapsed ones counted too; the code stays
    locked until the caller's transaction ends."""
    codes = {"event_ids": [word[0]], "words": [word[1]]}
    for lock in (_lock_codes, _share_codes):
        lock.rows(cursor, **codes)
    found = [_Code(*row) for row in _codes.rows(cursor, **codes)]
    of_buyer = {row[0]: row[2] + len(row[3] or ()) for row in _uses_of_buyers.rows(cursor, **codes, buyers=[buyer])}
    return all(
        (code.uses_max is None or code.standing + len(code.lapsed or ()) < code.uses_max)
        and (code.uses_per_buyer_max is None or of_buyer.get(code.id, 0) < code.uses_per_buyer_max)
        for code in found
    )


@dataclass(slots=True)
class Codes:
    """What one transaction knows of codes, and what its own winners have used of them."""

    _known: dict[CodeKey, _Code] = field(default_factory=dict)
    _ours: set[int] = field(default_factory=set)
    _of_buyers: dict[tuple[int, str], _Uses] = field(default_factory=dict)
    _added_uses: dict[CodeKey, int] = field(default_factory=dict)
    """Uses by winners of this transaction, less those they give up."""

    def read(self, done: Mapping[str, roundtrip.StatementResult]) -> None:
        """What `lock_codes_calls` gave is known."""
        if "codes" not in done:
            return
        self._ours = {row[0] for name in ("codes locked", "codes shared") for row in done[name].rows}
        for row in done["codes"].rows:
            code = _Code(*row)
            self._known[code.event_id, code.word] = code
        self._of_buyers = {(row[0], row[1]): _Uses(row[2], row[3] or ()) for row in done["code uses"].rows}

    def judge(
        self,
        request: HoldRequest,
        given_up: Replaced | None,
        section_ids: Collection[int],
        perhaps: Mapping[CodeKey, int] | None = None,
    ) -> Refused | Contended | Shortage | None:
        """Why the request may not hold in these sections, which want a code; None if it may. `perhaps`: so many uses
        this transaction may give up, which is known once all before it are decided."""
        word = code_key(request, given_up)
        written = word[1]
        if not written:
            return Refused(AccessCodeRequired(sections=[request.guarded[one] for one in sorted(section_ids)]))
        code = self._known.get(word)
        if code is None or not code.opens(section_ids):
            return Refused(AccessCodeWrong())
        if code.id not in self._ours:
            return Contended(problems.Busy())
        refused = _check_validity(code)
        if refused is not None:
            return refused
        own = given_up if given_up is not None and given_up.access_code == written else None
        if code.uses_max is not None:
            going = (perhaps or {}).get(word, 0) - (own is not None)
            more = self._added_uses.get(word, 0) - max(going, 0)
            uses = _Uses(code.standing + more, code.lapsed or ())
            limited = _check_limit(uses, own, code.uses_max, AccessCodeUsedUp())
            if limited is not None:
                return limited
        cap = code.uses_per_buyer_max
        if cap is not None:
            uses = self._of_buyers.get((code.id, request.buyer), _Uses(0, ()))
            mine = own if own is not None and own.buyer == request.buyer else None
            return _check_limit(uses, mine, cap, AccessCodeLimitReached(cap=cap))
        return None

    def use(self, request: HoldRequest, given_up: Replaced | None, section_ids: Collection[int]) -> int | None:
        """The request has won, by the code of this id if its sections want one."""
        if given_up is not None and given_up.access_code is not None:
            before = given_up.event_id, given_up.access_code
            self._added_uses[before] = self._added_uses.get(before, 0) - (given_up.id not in self._lapsed(before))
        if not section_ids:
            return None
        word = code_key(request, given_up)
        self._added_uses[word] = self._added_uses.get(word, 0) + 1
        return self._known[word].id

    def _lapsed(self, word: CodeKey) -> Collection[UUID]:
        code = self._known.get(word)
        return () if code is None else code.lapsed or ()


def _check_validity(code: _Code) -> Refused | None:
    """What refuses a code whoever asks with it."""
    if code.is_early:
        return Refused(AccessCodeNotValid("This access code is not valid yet."))
    if code.is_over:
        return Refused(AccessCodeNotValid("This access code is no longer valid."))
    return None


def _check_limit(uses: _Uses, own: Replaced | None, most: int, problem: problems.Problem) -> Refused | Shortage | None:
    """Whether one use more is within the limit, where `own` is given up for it. Lapsed uses count until somebody has
    ended them: a payment made in time may still confirm one."""
    standing = uses.standing - (own is not None and own.id not in uses.lapsed)
    others = [one for one in uses.lapsed if own is None or one != own.id]
    if standing >= most:
        return Refused(problem)
    return Shortage(problems.Busy(), tuple(others[:SWEPT_MAX])) if standing + len(others) >= most else None
