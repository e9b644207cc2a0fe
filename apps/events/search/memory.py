"""The copy of the index that a process answers from: the facts of all documents, the vocabulary, and the postings of
common words and of those that were searched for.

A search reads the index's version, at most once a second, and applies what has changed since. Everything else is in
memory, except the postings of rare words that this process has not needed before, which it reads by their keys.
"""

import threading
import time
from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from apps.events.models import SearchDocument, SearchPosting, SearchTerm, Synonym
from apps.events.search import bits
from apps.events.search.documents import OVER
from apps.events.search.postings import CHANGED_TEXTS_MAX, Levels, Postings, common_terms
from apps.events.search.words.vocabulary import Row, Synonyms, Vocabulary
from apps.kernel.db import sql
from apps.kernel.fastpath.cache import register

CHECK_SECONDS = 1.0
RANK_SECONDS = 3_600.0
"""The nearness of dates is computed anew after this time."""
REMEMBERED_MAX = 64
"""Sets of documents that many searches need, such as those of the next seven days."""
EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
MINUTES_UNIT = 5
TIME_BITS, PRICE_BITS, RANK_BITS = 25, 28, 5
NEAR_POINTS, NEAR_DAYS, AVAILABLE_POINTS, UPCOMING_POINTS, TREND_POINTS = 14, 30, 6, 5, 8
"""Points in the order of results: for the date, for tickets that are left, and for the trend. All of them together are
less than the difference between two weights of a word."""

_state = sql.load("apps.events", "search_state")
FACTS = (
    "number", "event_id", "is_live", "starts_at", "starts_local", "ends_sale_at", "opens_at", "is_canceled", "city",
    "price_minor", "available", "accessible", "trend", "text_version",
)  # fmt: skip


def time_unit(moment: datetime) -> int:
    """Return the moment in units of five minutes, as the planes of times have it."""
    return max(0, min(int((moment - EPOCH).total_seconds()) // (60 * MINUTES_UNIT), 2**TIME_BITS - 1))


def rank_of(starts_at: datetime, opens_at: datetime, now: datetime, *, is_left: bool, trend: int) -> int:
    """Return the points of an event in the order of results, beside those of its words."""
    days = max((starts_at - now) / timedelta(days=1), 0.0)
    near = round(NEAR_POINTS * NEAR_DAYS / (NEAR_DAYS + days)) if starts_at > now else 0
    left = 0 if not is_left else AVAILABLE_POINTS if opens_at <= now else UPCOMING_POINTS
    return min(near + left + min(trend, TREND_POINTS), 2**RANK_BITS - 1)


class Documents:
    """The facts of all documents, by number."""

    def __init__(self, rows: Sequence[tuple[Any, ...]], now: datetime) -> None:
        size = 1 + max((row[0] for row in rows), default=-1)
        self.event_ids = array("q", bytes(8 * size))
        self.starts = [EPOCH] * size
        self._opens = [EPOCH] * size
        self._trends = array("B", bytes(size))
        self._cities = [""] * size
        self.live = self.left = self.accessible = self.priced = 0
        self.cities: dict[str, int] = {}
        starts, locals_, ends, prices, ranks = ([0] * size for _ in range(5))
        sets: dict[str, list[int]] = {"live": [], "left": [], "accessible": [], "priced": []}
        cities: dict[str, list[int]] = {}
        for row in rows:
            number, event_id, is_live, starts_at, local, ends_at, opens_at, is_canceled, city, price, *rest = row
            available, accessible, trend, _ = rest
            self.event_ids[number], self.starts[number] = event_id, starts_at
            self._opens[number], self._trends[number], self._cities[number] = opens_at, trend, city
            is_left = not is_canceled and available != 0
            starts[number], locals_[number], ends[number] = time_unit(starts_at), time_unit(local), time_unit(ends_at)
            prices[number] = price or 0
            ranks[number] = rank_of(starts_at, opens_at, now, is_left=is_left, trend=trend)
            for name, holds in (
                ("live", is_live), ("left", is_left), ("accessible", accessible > 0), ("priced", price is not None)
            ):  # fmt: skip
                if holds:
                    sets[name].append(number)
            cities.setdefault(city, []).append(number)
        self.size = size
        self._change_count = 0
        self._remembered: dict[tuple[Hashable, ...], int] = {}
        for name, numbers in sets.items():
            setattr(self, name, bits.set_of(numbers, size))
        self.cities = {city: bits.set_of(numbers, size) for city, numbers in cities.items() if city}
        self.start_planes = bits.planes_of(starts, TIME_BITS)
        self.local_planes = bits.planes_of(locals_, TIME_BITS)
        self.end_planes = bits.planes_of(ends, TIME_BITS)
        self.price_planes = bits.planes_of(prices, PRICE_BITS)
        self.rank_planes = bits.planes_of(ranks, RANK_BITS)

    def remember(self, key: tuple[Hashable, ...], compute: Callable[[], int]) -> int:
        """Return the set that `compute` returns, computed once until a document changes."""
        # With the number of changes in the key, a set that was computed during a change is never used after it.
        whole = (self._change_count, *key)
        found = self._remembered.get(whole)
        if found is None:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            found = self._remembered[whole] = compute()
        return found

    def upcoming(self, now: datetime) -> int:
        """Return the documents that have not started."""
        unit = time_unit(now)
        return self.remember(("upcoming", unit), lambda: bits.at_least(self.start_planes, self.live, unit))

    def city_of(self, number: int) -> str:
        return self._cities[number]

    def change(self, row: tuple[Any, ...], now: datetime) -> None:
        """Apply the present values of one document."""
        self._change_count += 1
        self._apply(row, now)
        self._change_count += 1
        self._remembered.clear()

    def _apply(self, row: tuple[Any, ...], now: datetime) -> None:
        number, event_id, is_live, starts_at, local, ends_at, opens_at, is_canceled, city, price, *rest = row
        available, accessible, trend, _ = rest
        while self.size <= number:
            self.event_ids.append(0)
            self.starts.append(EPOCH)
            self._opens.append(EPOCH)
            self._trends.append(0)
            self._cities.append("")
            self.size += 1
        mark = 1 << number
        is_left = not is_canceled and available != 0
        self.live = self.live | mark if is_live else self.live & ~mark
        self.left = self.left | mark if is_left else self.left & ~mark
        self.accessible = self.accessible | mark if accessible > 0 else self.accessible & ~mark
        self.priced = self.priced | mark if price is not None else self.priced & ~mark
        before = self._cities[number]
        if before != city:
            if before:
                self.cities[before] &= ~mark
            if city:
                self.cities[city] = self.cities.get(city, 0) | mark
        elif city:
            self.cities[city] = self.cities.get(city, 0) | mark
        self.event_ids[number], self.starts[number] = event_id, starts_at
        self._opens[number], self._trends[number], self._cities[number] = opens_at, trend, city
        for planes, value in (
            (self.start_planes, time_unit(starts_at)),
            (self.local_planes, time_unit(local)),
            (self.end_planes, time_unit(ends_at)),
            (self.price_planes, price or 0),
            (self.rank_planes, rank_of(starts_at, opens_at, now, is_left=is_left, trend=trend)),
        ):
            bits.put(planes, number, value)

    def rank_again(self, now: datetime) -> None:
        """Compute the points of all documents for this moment."""
        ranks = [
            rank_of(starts_at, opens_at, now, is_left=bool(self.left >> number & 1), trend=trend)
            for number, (starts_at, opens_at, trend) in enumerate(
                zip(self.starts, self._opens, self._trends, strict=False)
            )
        ]
        self.rank_planes = bits.planes_of(ranks, RANK_BITS)


@dataclass(frozen=True, slots=True)
class View:
    """The index as one search uses it: what belongs together stays together when the index is read anew meanwhile."""

    documents: Documents
    vocabulary: Vocabulary
    synonyms: Synonyms
    generation: int
    now: datetime
    """The time by the database's clock, as far as the last refresh and the time since know it."""
    read_levels: Callable[[Iterable[int], int], dict[int, Levels]]

    def levels_of(self, term_ids: Iterable[int]) -> dict[int, Levels]:
        """Return the documents of these terms by weight; nothing once the index has been read anew."""
        return self.read_levels(term_ids, self.generation)


class Index:
    """What one process has of the index. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._refreshing = threading.RLock()
        """Held while the index is read. Searches use what is there meanwhile."""
        self._lock = threading.RLock()
        """Held while what is in memory changes."""
        self.clear()

    def clear(self) -> None:
        """Forget everything: the next search reads the index."""
        with self._refreshing, self._lock:
            self.version = self.generation = -1
            self._synonyms_version = ""
            self.documents = Documents((), EPOCH)
            self.vocabulary = Vocabulary(())
            self.synonyms = Synonyms(())
            self._postings = Postings()
            self._checked_at = self._ranked_at = -float("inf")
            self._read_at, self._read_at_monotonic = EPOCH, 0.0

    def view(self) -> View:
        """Return the index as it is now, refreshed if that is due."""
        self.refresh()
        with self._lock:
            now = self._read_at + timedelta(seconds=time.monotonic() - self._read_at_monotonic)
            return View(self.documents, self.vocabulary, self.synonyms, self.generation, now, self.levels_of)

    def refresh(self, *, at_once: bool = False) -> None:
        """Apply what has changed since the last look, unless that was less than a second ago (`at_once`: always), or
        another thread is doing it and there is an index to search meanwhile."""
        if not at_once and time.monotonic() - self._checked_at < CHECK_SECONDS:
            return
        if not self._refreshing.acquire(blocking=at_once or self.version < 0):
            return
        try:
            if not at_once and time.monotonic() - self._checked_at < CHECK_SECONDS:
                return
            with connection.cursor() as cursor:
                ((version, generation, synonyms, self._read_at),) = _state.rows(cursor)
            self._read_at_monotonic = time.monotonic()
            if generation != self.generation or version < self.version:
                self._load(version, generation)
            elif version != self.version:
                self._apply_changes(version, generation)
            if synonyms != self._synonyms_version:
                groups = Synonym.objects.values_list("words", flat=True)
                self.synonyms = Synonyms(groups, self.vocabulary.languages, self.vocabulary.stop_words)
                self._synonyms_version = synonyms
            if time.monotonic() - self._ranked_at > RANK_SECONDS:
                self.documents.rank_again(self._read_at)
                self._ranked_at = time.monotonic()
            self._checked_at = time.monotonic()
        finally:
            self._refreshing.release()

    def _load(self, version: int, generation: int) -> None:
        # Rows that are committed between these reads have higher versions, and are read again by the next refresh.
        upcoming = SearchDocument.objects.filter(starts_at__gt=self._read_at - OVER)
        rows = list(upcoming.values_list(*FACTS).iterator(chunk_size=5_000))
        terms = SearchTerm.objects.filter(document_count__gt=0).order_by("pk")
        vocabulary = Vocabulary(Row(*row) for row in terms.values_list(*Row._fields).iterator(chunk_size=5_000))
        documents = Documents(rows, self._read_at)
        with self._lock:
            self.documents, self.vocabulary = documents, vocabulary
            self._postings = Postings()
            self.version, self.generation, self._synonyms_version = version, generation, ""
            self._ranked_at = time.monotonic()

    def _apply_changes(self, version: int, generation: int) -> None:
        languages, additions_max = set(self.vocabulary.languages), self.vocabulary.additions_max
        terms = SearchTerm.objects.filter(pk__gt=self.vocabulary.last_term_id).order_by("pk")
        new = [Row(*row) for row in terms.values_list(*Row._fields)[: additions_max + 1]]
        if len(new) > additions_max:
            self._load(version, generation)
            return
        if new:
            self.vocabulary.add(new)
        if self.vocabulary.languages != languages:
            self._synonyms_version = ""
        rows = list(SearchDocument.objects.filter(version__gt=self.version).values_list(*FACTS))
        texts = [row[0] for row in rows if row[-1] > self.version]
        postings = SearchPosting.objects.filter(number__in=texts).values_list("term_id", "number", "weight")
        changed = list(postings) if 0 < len(texts) <= CHANGED_TEXTS_MAX else []
        with self._lock:
            for row in rows:
                self.documents.change(row, self._read_at)
            if texts and not self._postings.is_empty:
                is_kept = len(texts) <= CHANGED_TEXTS_MAX and self._postings.change(texts, changed)
                if not is_kept:
                    self._postings = Postings()
            self.version = version

    def levels_of(self, term_ids: Iterable[int], generation: int) -> dict[int, Levels]:
        """Return the documents of these terms by weight; nothing if the index has another generation by now. Terms
        that are not in memory are read, all in one query."""
        # Under the lock: otherwise changes could be applied between the read of a term and the store of its result.
        with self._lock:
            if generation != self.generation:
                return {}
            return self._postings.of(term_ids, self.documents.size)

    def warm(self) -> None:
        """Read what searches need before the first one does: the index, what corrections need, and the postings of
        common words. Returns early if another thread reads the index anew or forgets the postings meanwhile."""
        self.refresh()
        with self._refreshing:
            self.vocabulary.prepare()
        with self._lock:
            vocabulary, postings, size = self.vocabulary, self._postings, self.documents.size
        if postings.is_warm:
            return
        for term_ids in common_terms(list(vocabulary.words.values()), size):
            with self._lock:
                if self._postings is not postings:
                    return
                postings.read(term_ids, self.documents.size)
        postings.is_warm = True


index = register(Index())
