"""How a code is written that people type: one spelling for every way of typing it, and new ones nobody guesses."""

import secrets
import unicodedata
from collections.abc import Iterator

LENGTH_MAX = 40
RANDOM_LENGTH = 10
"""Some fifty bits: at the rate at which tries are let through, a campaign of a thousand codes is safe for millennia."""
PREFIX_LENGTH_MAX = LENGTH_MAX - RANDOM_LENGTH - 1
COUNT_MAX = 20_000
"""New codes at once."""
_ALPHABET = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
_BATCH = 1_000


class InvalidCode(ValueError):
    """No code is written so; in words, why."""


def normal_code(text: str) -> str:
    """The code in capital letters, without blanks; empty for nothing. Raises Unusable."""
    plain = "".join(unicodedata.normalize("NFKC", text).split()).upper()
    plain = unicodedata.normalize("NFKC", plain)
    if len(plain) > LENGTH_MAX or not plain.isprintable():
        raise InvalidCode(f"at most {LENGTH_MAX} printable characters")
    return plain


def new_code(prefix: str = "") -> str:
    """A code that nobody guesses, after a prefix that is normal already; no letter looks like another."""
    drawn = "".join(secrets.choice(_ALPHABET) for _ in range(RANDOM_LENGTH))
    return f"{prefix}-{drawn}" if prefix else drawn


def new_codes(count: int, prefix: str) -> Iterator[list[str]]:
    """So many new codes, each another, in pieces that a statement takes."""
    assert 1 <= count <= COUNT_MAX
    words: set[str] = set()
    while len(words) < count:
        words.add(new_code(prefix))
    ordered = sorted(words)
    for start in range(0, count, _BATCH):
        yield ordered[start : start + _BATCH]
