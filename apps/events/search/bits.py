"""Sets of documents, and a number for each document, as big integers.

A set has bit n for document n. Numbers are stored in planes: bit n of plane i is bit i of document n's number. So one
operation of the processor works on 64 documents, and sums, comparisons and the best k of 100,000 documents need a few
dozen operations on integers of 12 kB, however many documents match.
"""

from collections.abc import Sequence

_DENSE, _FEW = 100, 16
"""A set of more than one document in _DENSE is faster to write as binary digits, one of _FEW as sets of one each."""


def set_of(numbers: Sequence[int], size: int) -> int:
    """Return the set of these documents, all below `size`."""
    if len(numbers) * _DENSE > size:
        digits = bytearray(b"0") * size
        for number in numbers:
            digits[number] = 49  # b"1"
        digits.reverse()
        return int(digits, 2)
    if len(numbers) <= _FEW:
        few = 0
        for number in numbers:
            few |= 1 << number
        return few
    found = bytearray((size >> 3) + 1)
    for number in numbers:
        found[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(found, "little")


def members(documents: int) -> list[int]:
    """Return the documents of the set, lowest first."""
    if not documents:
        return []
    digits = bin(documents)[:1:-1]
    found, at = [], digits.find("1")
    while at >= 0:
        found.append(at)
        at = digits.find("1", at + 1)
    return found


def planes_of(numbers: Sequence[int], width: int) -> list[int]:
    """Return the planes of these numbers, the first of which is document 0's, from 0 to 2^width - 1."""
    planes = []
    backward = numbers[::-1]
    for bit in range(width):
        digits = "".join(["1" if number >> bit & 1 else "0" for number in backward])
        planes.append(int(digits, 2) if digits else 0)
    return planes


def put(planes: list[int], document: int, number: int) -> None:
    """Set the number of one document."""
    mark = 1 << document
    for bit, plane in enumerate(planes):
        if bool(plane & mark) != bool(number >> bit & 1):
            planes[bit] = plane ^ mark


def add(planes: list[int], documents: int, number: int) -> None:
    """Add the number to those of all documents of the set."""
    bit = 0
    while number:
        if number & 1:
            carry, at = documents, bit
            while carry:
                while at >= len(planes):
                    planes.append(0)
                planes[at], carry = planes[at] ^ carry, planes[at] & carry
                at += 1
        number >>= 1
        bit += 1


def at_least(planes: Sequence[int], documents: int, number: int) -> int:
    """Return the documents of the set whose numbers are at least this."""
    if number <= 0:
        return documents
    if number >> len(planes):
        return 0
    above, equal = 0, documents
    for bit in range(len(planes) - 1, -1, -1):
        if number >> bit & 1:
            equal &= planes[bit]
        else:
            above |= equal & planes[bit]
            equal &= ~planes[bit]
    return above | equal


def best(planes: Sequence[int], documents: int, count: int, *, lowest: bool = False) -> list[int]:
    """Return the `count` documents of the set with the highest numbers (`lowest`: with the lowest), best first.
    Documents with equal numbers come in their order."""
    chosen, left = 0, documents
    wanted = count
    for plane in reversed(planes):
        better = left & ~plane if lowest else left & plane
        size = better.bit_count()
        if size >= wanted:
            left = better
            if size == wanted:
                break
        else:
            chosen |= better
            wanted -= size
            left ^= better
    found = members(chosen) + members(left)[:wanted]
    return sorted(found, key=lambda document: (number_of(planes, document) * (1 if lowest else -1), document))


def number_of(planes: Sequence[int], document: int) -> int:
    """Return the number of one document."""
    return sum((plane >> document & 1) << bit for bit, plane in enumerate(planes))
