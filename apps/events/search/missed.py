"""Searches that find nothing, counted by day, so that organizers see what people look for.

Each process counts in memory and writes now and then; a process that ends loses what it has not written. Caches in
front answer repeated searches, so the counts are lower bounds. Only folded words are kept, and rare searches are not
shown, since a search may contain a name.
"""

import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta

from django.db import DatabaseError, connection
from django.db.models import Sum

from apps.events.models import MissedSearch
from apps.events.search.words.vocabulary import words_of
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.observability.repeated_errors import RepeatedErrors

logger = logging.getLogger(__name__)

TEXTS_MAX = 500
"""Texts that a process counts between two writes; further ones are not counted."""
TEXTS_A_DAY_MAX = 5_000
WRITE_SECONDS = 10.0
TEXT_CHARACTERS_MAX = 80
SHOWN_COUNT_MIN = 3
_FAILING = "searches without results were not written"

_add_missed = sql.load("apps.events", "add_missed_searches")


class MissedSearches:
    """The counts of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._written_at = time.monotonic()
        self._errors = RepeatedErrors(logger)

    def record(self, text: str) -> None:
        """Count a search that has found nothing. Writes the counts if the last ones are old; never raises for the
        database."""
        words = " ".join(words_of(text))[:TEXT_CHARACTERS_MAX].strip()
        if not words:
            return
        with self._lock:
            if words in self._counts or len(self._counts) < TEXTS_MAX:
                self._counts[words] += 1
            is_due = time.monotonic() - self._written_at >= WRITE_SECONDS
        if is_due:
            try:
                self.write()
                self._errors.over(_FAILING)
            except DatabaseError as error:
                self._errors.record_failure(_FAILING, error)

    def write(self) -> None:
        """Add the counts to those of the day (UTC)."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
            self._written_at = time.monotonic()
        if not counts:
            return
        texts = sorted(counts)
        with transactions.write(), connection.cursor() as cursor:
            _add_missed.count(cursor, texts=texts, counts=[counts[text] for text in texts], texts_max=TEXTS_A_DAY_MAX)


missed_searches = MissedSearches()


@dataclass(frozen=True, slots=True)
class Missed:
    text: str
    count: int


def most_missed(days: int, limit: int) -> list[Missed]:
    """Return the texts that were searched most in the last days without a result, without rare ones."""
    since = clock.process_now().date() - timedelta(days=days)
    rows = MissedSearch.objects.filter(day__gt=since).values("text").annotate(sum=Sum("count"))
    found = rows.filter(sum__gte=SHOWN_COUNT_MIN).order_by("-sum", "text").values_list("text", "sum")[:limit]
    return [Missed(*row) for row in found]
