"""What is free, counted again only in the sections in which something has happened since: in a huge house a count takes
long, and most of it stands still.

That something has happened is read from the ledger and from the record of the inventory, which are written in the very
transactions that change what is free. Their numbers do not come in the order of the commits: a transaction may commit
a lower number later. So the reading begins where everything lower was committed when it was read last, which is known
by the transactions' own numbers (`_Checkpoint`). What is on no record (a row put right by hand) is seen with the next
count of everything.
"""

import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from django.db import connection

from apps.kernel.db import sql
from apps.reservations.inventory.availability import free_counts

FULL_COUNT_SECONDS = 10.0
"""So often everything is counted."""
CHANGES_MAX = 5_000
"""Reservations whose sections are looked up; where there is more news, everything is counted."""
_CHECKPOINTS_MAX = 1_000

_moved_sections = sql.load("apps.reservations", "moved_sections")


class _LogPositions(NamedTuple):
    """The last numbers that were given out, whoever has committed by now."""

    ledger: int
    record: int


class _Checkpoint(NamedTuple):
    """Ends, and a transaction that began to write after they were read. Whoever got a number up to these ends is older,
    since a row is locked before anything is put on record: once all older ones have ended, nothing up to there is
    missing."""

    transaction: int
    ends: _LogPositions


class Recount:
    """One process's counts, and how far it has read."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """The next count is of everything."""
        self._counts: dict[int, int] = {}
        self._full_count_at = float("-inf")
        self._last: _LogPositions | None = None
        self._start_positions: _LogPositions | None = None
        self._marks: deque[_Checkpoint] = deque(maxlen=_CHECKPOINTS_MAX)
        self.changed_sections: set[int] | None = None
        """The sections in which something may have happened, as the last count found; None: in any of them."""
        self.changed_reservations: list[tuple[int, UUID]] = []
        """Sections and the reservations of which something was heard there; of some, where there was too much news."""

    def free(self, section_ids: Iterable[int]) -> dict[int, int]:
        """What is free in each of these sections, as `availability.free_counts`."""
        moment = time.monotonic()
        wanted = list(section_ids)
        try:
            moved = self._find_changed_sections()
            if moved is None or moment - self._full_count_at >= FULL_COUNT_SECONDS:
                known, self._full_count_at = {}, moment
            else:
                known = {one: self._counts[one] for one in wanted if one in self._counts and one not in moved}
            # Nothing else is remembered: of what nobody asks about now, what moves is not counted either.
            self._counts = known | free_counts(one for one in wanted if one not in known)
        except BaseException:
            self.forget()  # What has moved was read, and is not counted.
            raise
        return {section_id: self._counts[section_id] for section_id in wanted}

    def _find_changed_sections(self) -> set[int] | None:
        """The sections in which something may have happened since this was asked last; None: nobody can tell."""
        begin = self._start_positions
        with connection.cursor() as cursor:
            ((moved, places, reservations, news, ledger, record, transaction, oldest),) = _moved_sections.rows(
                cursor,
                ledger_end=begin.ledger if begin else None,
                record_end=begin.record if begin else None,
                most=CHANGES_MAX,
            )
        if self._last is not None:
            self._marks.append(_Checkpoint(transaction, self._last))
        self._last = _LogPositions(ledger, record)
        while self._marks and self._marks[0].transaction <= oldest:
            self._start_positions = self._marks.popleft().ends
        self.changed_reservations = list(zip(places, reservations, strict=True)) if begin is not None else []
        self.changed_sections = None if begin is None or news >= CHANGES_MAX else set(moved)
        return self.changed_sections
