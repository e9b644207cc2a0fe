"""How a promo code is written: one spelling for every way of typing it, and new ones nobody guesses."""

import secrets
import unicodedata

from apps.orders.models.codes import CODE_LENGTH_MAX

_ALPHABET = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
RANDOM_LENGTH = 10
"""Some fifty bits: at the rate at which tries are let through, a campaign of a thousand codes is safe for millennia."""
PREFIX_LENGTH_MAX = CODE_LENGTH_MAX - RANDOM_LENGTH - 1


class Unusable(ValueError):
    """No code is written so; in words, why."""


def normal_code(text: str) -> str:
    """The code in capital letters, without blanks; empty for nothing. Raises Unusable."""
    plain = "".join(unicodedata.normalize("NFKC", text).split()).upper()
    plain = unicodedata.normalize("NFKC", plain)
    if len(plain) > CODE_LENGTH_MAX or not plain.isprintable():
        raise Unusable(f"at most {CODE_LENGTH_MAX} printable characters")
    return plain


def new_code(prefix: str = "") -> str:
    """A code that nobody guesses, after a prefix that is normal already; no letter looks like another."""
    drawn = "".join(secrets.choice(_ALPHABET) for _ in range(RANDOM_LENGTH))
    return f"{prefix}-{drawn}" if prefix else drawn
