"""The format of codes that buyers type: normalization, and random new codes."""

import secrets
import unicodedata

LENGTH_MAX = 40
GIVEN_LENGTH_MAX = 4 * LENGTH_MAX
"""Longest text that is normalized, without blanks: Python takes quadratic time for a run of combining marks."""
RANDOM_LENGTH = 10
"""About fifty bits. At the permitted rate of attempts, guessing one of a thousand codes takes millennia."""
PREFIX_LENGTH_MAX = LENGTH_MAX - RANDOM_LENGTH - 1
COUNT_MAX = 20_000
"""The most codes that one call creates."""
_ALPHABET = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"


class InvalidCode(ValueError):
    """The text is not a valid code; the message says why."""


def normal_code(text: str) -> str:
    """Return the code in capital letters without blanks. Raises InvalidCode."""
    plain = "".join(text.split())
    if len(plain) <= GIVEN_LENGTH_MAX:
        plain = "".join(unicodedata.normalize("NFKC", plain).split()).upper()
        plain = unicodedata.normalize("NFKC", plain)
    if len(plain) > LENGTH_MAX or not plain.isprintable():
        raise InvalidCode(f"at most {LENGTH_MAX} printable characters")
    return plain


def new_code(prefix: str = "") -> str:
    """Return a random code after a normalized prefix. Letters and digits that look alike are not used."""
    drawn = "".join(secrets.choice(_ALPHABET) for _ in range(RANDOM_LENGTH))
    return f"{prefix}-{drawn}" if prefix else drawn


def new_codes(count: int, prefix: str) -> list[str]:
    """Return `count` distinct new codes, sorted."""
    assert 1 <= count <= COUNT_MAX
    codes: set[str] = set()
    while len(codes) < count:
        codes.add(new_code(prefix))
    return sorted(codes)
