"""Digests of persons and addresses, under a key that changes every day (UTC) and is deleted after it.

A person is a visitor cookie, or without one an address with a user agent. The log has only digests: within a day equal
ones are the same person or address; after it, no digest can be computed again, not even with the SECRET_KEY.
"""

import hmac
import re
import secrets
from datetime import UTC, date, datetime
from functools import lru_cache

from apps.events.models import ViewKey
from apps.kernel import clock, secret_key
from apps.kernel.rate_limits.limits import network_of

DAY_SECONDS = 86_400
_VISITOR = re.compile(r"(?:^|;\s*)visitor=([^;]{1,400})")
"""The visitor cookie, whatever its signature: an invented one is a person of its own, but its address has a limit."""


def current_day() -> date:
    """Return the day (UTC) of whose key digests are made now."""
    return datetime.fromtimestamp(clock.process_seconds() // DAY_SECONDS * DAY_SECONDS, UTC).date()


def read_key(day: date) -> bytes:
    """Return the key of this day, the same in all processes. The first call of the day makes its random part."""
    ViewKey.objects.bulk_create([ViewKey(day=day, secret=secrets.token_hex(32))], ignore_conflicts=True)
    return secret_key.keyed_digest("views", ViewKey.objects.get(day=day).secret)


def person_digest(key: bytes, cookie: str, address: str, user_agent: str) -> int:
    """Return the digest of a person, as a signed number of 64 bits. `cookie`: the request's whole Cookie header."""
    found = _VISITOR.search(cookie) if cookie else None
    return _digest(key, f"c{found[1]}" if found is not None else f"a{address}\n{user_agent}")


@lru_cache(maxsize=16_384)
def address_digest(key: bytes, address: str) -> int:
    """Return the digest of an address; for IPv6, of its /64 network."""
    return _digest(key, f"n{network_of(address)}")


def _digest(key: bytes, text: str) -> int:
    return int.from_bytes(hmac.digest(key, text.encode("utf-8", "replace"), "sha256")[:8], "big", signed=True)
