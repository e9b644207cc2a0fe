"""The postings that a process keeps: the documents of each term by weight, within a limit of memory.

A large set is kept as an integer, as searches use it; a small one as packed numbers, because a set of one document
among 100,000 would take 12 kB. Documents whose texts have changed since their terms were read are corrected as terms
are asked for: their old postings are masked, and their present ones added.
"""

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from django.db import connection

from apps.events.search import bits
from apps.events.search.documents import WEIGHTS
from apps.events.search.words.vocabulary import Word
from apps.kernel.db import sql

BYTES_MAX = 64 * 1024 * 1024
COMMON_BYTES_MAX = BYTES_MAX * 3 // 4
"""Of the terms that are read before a search needs them."""
CHANGED_TEXTS_MAX = 500
"""More changed texts empty the copy of the postings instead of correcting it."""
CHANGED_POSTINGS_MAX = 50_000
_PACKED_SHARE = 200
"""A set of fewer than one document in this many is packed."""
_TERM_BYTES = 300
"""Of a term without its sets."""
_BATCH_POSTINGS, _BATCH_TERMS = 50_000, 1_000

Levels = tuple[int, int, int, int]
"""The documents of a term by weight, heaviest first."""

_postings = sql.load("apps.events", "search_postings")


class Postings:
    """The caller has the index locked."""

    def __init__(self) -> None:
        self.is_warm = False
        """Whether the common terms have been read."""
        self._kept: OrderedDict[int, tuple[int | bytes, ...]] = OrderedDict()
        self._bytes = 0
        self._unchanged = -1
        """All documents but those whose texts have changed."""
        self._changed: dict[int, dict[int, int]] = {}
        """The weights' positions of the changed documents, by term and document."""
        self._changed_numbers: set[int] = set()

    @property
    def is_empty(self) -> bool:
        return not self._kept

    def of(self, term_ids: Iterable[int], size: int) -> dict[int, Levels]:
        """Return the documents of these terms by weight, among the first `size`. Terms that are not kept are read, all
        in one query."""
        wanted = list(dict.fromkeys(term_ids))
        missing = [term_id for term_id in wanted if term_id not in self._kept]
        read = self._read(missing, size) if missing else {}
        found = {}
        for term_id in wanted:
            kept = read.get(term_id)
            if kept is None:
                kept = self._kept[term_id]
                self._kept.move_to_end(term_id)
            found[term_id] = self._present(term_id, kept, size)
        self._keep(read)
        return found

    def read(self, term_ids: Sequence[int], size: int) -> None:
        """Read and keep those of these terms that are not kept yet."""
        self._keep(self._read([term_id for term_id in term_ids if term_id not in self._kept], size))

    def change(self, numbers: Sequence[int], postings: Iterable[tuple[int, int, int]]) -> bool:
        """Replace all postings of these documents by these: term, document, weight. Return False if too many have
        changed since the terms were read: the caller then forgets them all."""
        if not self._changed_numbers.isdisjoint(numbers):
            for of_term in self._changed.values():
                for number in numbers:
                    of_term.pop(number, None)
        self._changed_numbers.update(numbers)
        for term_id, number, weight in postings:
            self._changed.setdefault(term_id, {})[number] = WEIGHTS.index(weight)
        self._unchanged = ~bits.set_of(list(self._changed_numbers), max(self._changed_numbers) + 1)
        return (
            len(self._changed_numbers) <= CHANGED_TEXTS_MAX
            and sum(map(len, self._changed.values())) <= CHANGED_POSTINGS_MAX
        )

    def _present(self, term_id: int, kept: tuple[int | bytes, ...], size: int) -> Levels:
        levels = [one if isinstance(one, int) else bits.set_of(memoryview(one).cast("I"), size) for one in kept]
        if self._changed_numbers:
            levels = [level & self._unchanged for level in levels]
            changed = self._changed.get(term_id)
            if changed:
                for position in range(len(WEIGHTS)):
                    numbers = [number for number, at in changed.items() if at == position]
                    if numbers:
                        levels[position] |= bits.set_of(numbers, max(numbers) + 1)
        return tuple(levels)  # type: ignore[return-value]

    def _read(self, term_ids: list[int], size: int) -> dict[int, tuple[int | bytes, ...]]:
        by_term: dict[int, list[int | bytes]] = {term_id: [0] * len(WEIGHTS) for term_id in term_ids}
        if not term_ids:
            return {}
        with connection.cursor() as cursor:
            for term_id, weight, packed in _postings.rows(cursor, term_ids=term_ids):
                numbers = array("I", bytes(packed))
                numbers.byteswap()
                # Documents that were indexed after the last refresh are added by the next one.
                if numbers and numbers[-1] >= size:
                    numbers = numbers[: bisect_left(numbers, size)]
                is_small = len(numbers) * _PACKED_SHARE < size
                kept = numbers.tobytes() if is_small else bits.set_of(numbers, size)
                by_term[term_id][WEIGHTS.index(weight)] = kept
        return {term_id: tuple(levels) for term_id, levels in by_term.items()}

    def _keep(self, terms: Mapping[int, tuple[int | bytes, ...]]) -> None:
        """Add these terms, and drop those that were not asked for for the longest time."""
        for term_id, levels in terms.items():
            self._kept[term_id] = levels
            self._bytes += _byte_count(levels)
        while self._bytes > BYTES_MAX:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= _byte_count(dropped)


def _byte_count(levels: Sequence[int | bytes]) -> int:
    return _TERM_BYTES + sum(
        len(level) if isinstance(level, bytes) else level.bit_length() // 7 if level else 0 for level in levels
    )


def common_terms(words: Iterable[Word], size: int) -> Iterator[list[int]]:
    """Yield the terms of the words of most documents, among `size`, in lists for one query each: as many as fit in
    COMMON_BYTES_MAX. Those of fewest documents come first, since the first are the first to be dropped."""
    chosen, left = [], COMMON_BYTES_MAX
    for word in sorted(words, key=lambda word: -word.document_count):
        left -= _TERM_BYTES * len(word.term_ids) + min(4 * word.document_count, len(WEIGHTS) * size // 7)
        if left < 0:
            break
        chosen.append(word)
    batch: list[int] = []
    postings = 0
    for word in reversed(chosen):
        batch += word.term_ids
        postings += word.document_count
        if postings >= _BATCH_POSTINGS or len(batch) >= _BATCH_TERMS:
            yield batch
            batch, postings = [], 0
    if batch:
        yield batch
