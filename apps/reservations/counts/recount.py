"""Free counts, recounted only in sections with changes: a full count of a large venue takes long, and most sections
do not change between two counts.

Changes are read from the ledger and the inventory log, which are written in the transactions that change the stock.
Their ids are not in commit order: a transaction may commit a lower id later. So each read starts at the last position
below which everything is known to be committed, by transaction ids (`_Checkpoint`). A change without a log row (a
manual correction) is seen by the next full count.
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
"""The interval between full counts."""
CHANGES_MAX = 5_000
"""If more rows than this are new, all sections are counted instead of looking up the changed ones."""
_CHECKPOINTS_MAX = 1_000

_moved_sections = sql.load("apps.reservations", "moved_sections")


class _LogPositions(NamedTuple):
    """The last ids that were assigned, whether or not they are committed."""

    ledger: int
    record: int


class _Checkpoint(NamedTuple):
    """End positions, and a transaction id assigned after they were read. A transaction that wrote a row up to these
    positions has a lower id, which it got by locking a row before it wrote to the log. So once all transactions with
    lower ids have ended, no row up to these positions is missing."""

    transaction: int
    ends: _LogPositions


class Recount:
    """The counts of one process, and its read position."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Make the next count a full one."""
        self._counts: dict[int, int] = {}
        self._full_count_at = float("-inf")
        self._last: _LogPositions | None = None
        self._start_positions: _LogPositions | None = None
        self._marks: deque[_Checkpoint] = deque(maxlen=_CHECKPOINTS_MAX)
        self.changed_sections: set[int] | None = None
        """The sections that may have changed between the last two counts; None: any section."""
        self.changed_reservations: list[tuple[int, UUID]] = []
        """Pairs of section and changed reservation; incomplete if there were more than CHANGES_MAX rows."""

    def free(self, section_ids: Iterable[int]) -> dict[int, int]:
        """Return the free count of each of these sections, like `availability.free_counts`."""
        moment = time.monotonic()
        wanted = list(section_ids)
        try:
            moved = self._find_changed_sections()
            if moved is None or moment - self._full_count_at >= FULL_COUNT_SECONDS:
                known, self._full_count_at = {}, moment
            else:
                known = {one: self._counts[one] for one in wanted if one in self._counts and one not in moved}
            # Drop all other sections: their changes would not be counted from now on.
            self._counts = known | free_counts(one for one in wanted if one not in known)
        except BaseException:
            self.forget()  # The changes were read but not counted.
            raise
        return {section_id: self._counts[section_id] for section_id in wanted}

    def _find_changed_sections(self) -> set[int] | None:
        """Return the sections that may have changed since the last call; None if unknown."""
        begin = self._start_positions
        with connection.cursor() as cursor:
            ((moved, sections, reservations, news, ledger, record, transaction, oldest),) = _moved_sections.rows(
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
        self.changed_reservations = list(zip(sections, reservations, strict=True)) if begin is not None else []
        self.changed_sections = None if begin is None or news >= CHANGES_MAX else set(moved)
        return self.changed_sections
