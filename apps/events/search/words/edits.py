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
SAME_REMAINDER_MAX, CANDIDATES_MAX = 500, 3_000
"""How many words with one remainder, and how many in all, a lookup returns: words that begin alike could otherwise make
it as slow as a comparison with every word. Those with lower numbers come first."""


def remainders(word: str, edits: int) -> set[str]:
    """Return the word's prefix and everything left of it after up to `edits` deletions."""
    found = {word[:PREFIX_CHARACTERS]}
    edge = found
    for _ in range(edits):
        edge = {part[:at] + part[at + 1 :] for part in edge for at in range(len(part))}
        found |= edge
    return found


class EditIndex:
    """The remainders of many words, in one sorted array, and those of words that were added later in another."""

    def __init__(self, words: Sequence[str], edits: int) -> None:
        self._edits = edits
        self._rows = self._packed(enumerate(words))
        self._later = array("Q")

    def _packed(self, numbered: Iterable[tuple[int, str]], others: Iterable[int] = ()) -> "array[int]":
        rows = [
            crc32(part.encode()) << 32 | number for number, word in numbered for part in remainders(word, self._edits)
        ]
        return array("Q", sorted([*others, *rows]))

    def add(self, numbered: Iterable[tuple[int, str]]) -> None:
        """Add words with their numbers."""
        self._later = self._packed(numbered, self._later)

    def near(self, word: str, edits: int | None = None) -> set[int]:
        """Return the numbers of words that may be within the edits, and few others: compare them."""
        found: set[int] = set()
        # The longest remainders first: what they find is most alike.
        for part in sorted(remainders(word, self._edits if edits is None else edits), key=len, reverse=True):
            key = crc32(part.encode()) << 32
            for rows in (self._rows, self._later):
                at = bisect_left(rows, key)
                end = bisect_left(rows, key + (1 << 32), at, min(at + SAME_REMAINDER_MAX, len(rows)))
                found.update(row & 0xFFFFFFFF for row in rows[at:end])
            if len(found) >= CANDIDATES_MAX:
                break
        return found


def common_prefix(texts: Sequence[str], start: str, count: int) -> Iterable[str]:
    """Yield up to `count` of the sorted texts that begin with `start`."""
    at = bisect_left(texts, start)
    while at < len(texts) and count > 0 and texts[at].startswith(start):
        yield texts[at]
        at += 1
        count -= 1
