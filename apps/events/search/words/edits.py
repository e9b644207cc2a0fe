"""Words within a few edits of another, found by what is left of them after deletions.

Two words within k edits (insertions, deletions, replacements, transpositions) have in common what is left after at
most k deletions from each. All these remainders of the vocabulary are kept as hashes in one sorted array, so a lookup
takes a few dozen binary searches instead of a comparison with every word.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from zlib import crc32

PREFIX_CHARACTERS = 8
"""Remainders are those of the first characters only, which bounds their number; candidates are compared in full."""


def remainders(word: str, edits: int) -> set[str]:
    """Return the word's prefix and everything left of it after up to `edits` deletions."""
    found = {word[:PREFIX_CHARACTERS]}
    edge = found
    for _ in range(edits):
        edge = {part[:at] + part[at + 1 :] for part in edge for at in range(len(part))}
        found |= edge
    return found


class EditIndex:
    """The remainders of many words. `begin` builds the sorted array; words that come later are kept beside it."""

    def __init__(self, words: Sequence[str], edits: int) -> None:
        self._edits = edits
        rows = sorted(
            crc32(part.encode()) << 32 | number for number, word in enumerate(words) for part in remainders(word, edits)
        )
        self._rows = array("Q", rows)
        self._later: dict[str, list[int]] = {}

    def add(self, number: int, word: str) -> None:
        for part in remainders(word, self._edits):
            self._later.setdefault(part, []).append(number)

    def near(self, word: str, edits: int | None = None) -> set[int]:
        """Return the numbers of words that may be within the edits, and few others: compare them."""
        found: set[int] = set()
        rows = self._rows
        for part in remainders(word, self._edits if edits is None else edits):
            key = crc32(part.encode())
            at = bisect_left(rows, key << 32)
            while at < len(rows) and rows[at] >> 32 == key:
                found.add(rows[at] & 0xFFFFFFFF)
                at += 1
            if self._later:
                found.update(self._later.get(part, ()))
        return found


def common_prefix(texts: Sequence[str], start: str, count: int) -> Iterable[str]:
    """Yield up to `count` of the sorted texts that begin with `start`."""
    at = bisect_left(texts, start)
    while at < len(texts) and count > 0 and texts[at].startswith(start):
        yield texts[at]
        at += 1
        count -= 1
