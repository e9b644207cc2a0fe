"""Random bytes are never repeated, not even in a forked child."""

import os
import uuid
from types import SimpleNamespace

import pytest

from apps.kernel import random_bytes

PIECES = 1_000


def test_no_bytes_are_returned_twice() -> None:
    pieces = {random_bytes.next_bytes() for _ in range(PIECES)} | {random_bytes.new_uuid().bytes for _ in range(PIECES)}
    assert len(pieces) == 2 * PIECES
    assert {len(one) for one in pieces} == {random_bytes.SIZE}
    assert random_bytes.new_uuid().version == 4


def test_uuid7_values_increase_with_time_and_are_random_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([1_000_000_000, 1_001_000_000] * 2 + [1_002_000_000] * PIECES)
    monkeypatch.setattr(random_bytes, "time", SimpleNamespace(time_ns=lambda: next(moments)))
    first, second = random_bytes.new_uuid7(), random_bytes.new_uuid7()
    again, _ = random_bytes.new_uuid7(), random_bytes.new_uuid7()
    assert max(first, again) < second
    assert first != again
    assert (first.version, first.variant) == (7, uuid.RFC_4122)
    assert first.int >> 80 == 1_000
    many = [random_bytes.new_uuid7().int for _ in range(PIECES)]
    ever, never = 0, (1 << 128) - 1
    for one in many:
        ever, never = ever | one, never & one
    assert (ever ^ never).bit_count() == 74


def test_a_forked_child_returns_other_bytes() -> None:
    random_bytes.next_bytes()  # Fetches a supply.
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(sending, b"".join([random_bytes.next_bytes() for _ in range(10)]))
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving, "rb") as pipe:
        child_bytes = pipe.read()
    os.waitpid(child, 0)
    own_bytes = [random_bytes.next_bytes() for _ in range(1_000)]
    assert len(child_bytes) == 10 * random_bytes.SIZE
    assert not any(one in child_bytes for one in own_bytes)


def test_a_code_has_its_length_and_every_character_of_its_alphabet_at_every_position() -> None:
    for length, alphabet in ((28, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"), (10, "23456789ABCDEFGHJKLMNPQRSTUVWXYZ")):
        codes = [random_bytes.new_code(length, alphabet) for _ in range(1_000)]
        assert len(set(codes)) == 1_000
        assert all(set(characters) == set(alphabet) for characters in zip(*codes, strict=True))
