"""The keys that tokens are signed and verified with. They stand in PostgreSQL, so that every process knows them and
they survive a restart; every process keeps a copy, so that no token costs a query.

The table holds no secret by itself: a key is HMAC(SECRET_KEY, its id and the row's random half). Who reads the database
or a backup of it can sign nothing, nor can who knows SECRET_KEY alone; and as with every HMAC, one key that leaked says
nothing about the others. The first keys come from the settings (TOKEN_KEYS, or one derived from SECRET_KEY) and need no
row; one that was rotated away or dropped has a row with an empty half, which says until when it counts.

States of a key: published → signing → verifying only → over; from each of them: dropped.
"""

import asyncio
import hashlib
import hmac
import logging
import os
import secrets
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from apps.kernel import clock, secret_key
from apps.kernel.db import transactions
from apps.kernel.models import TokenKey
from apps.kernel.observability import log_context

logger = logging.getLogger(__name__)

LIFETIME_MAX = timedelta(days=31)
"""No token lives longer, so a key that signs no more is needed so much longer and no more."""
PUBLISHED_BEFORE_SECONDS = 60
"""A new key signs so long after it was published: by then every process has it."""
REFRESH_SECONDS = 3.0
"""So old a copy may be before it is read again, beside the request that noticed."""
STALE_SECONDS = 10.0
"""So old a copy is only used once it was tried to read a new one: what was dropped counts nowhere after that."""
UNKNOWN_SECONDS = 0.25
"""A key id that nobody knows makes a process look no more often than this, whatever is thrown at it."""
WAIT_SECONDS = 2.0
"""Nobody waits longer for a copy; with the database away we go on with what we know."""
KEY_ID_LENGTH_MAX = 16


class NoSuchKey(LookupError):
    """No token key has this id."""


@dataclass(frozen=True, slots=True)
class Key:
    key_id: str
    secret: bytes = field(repr=False)
    signs_from: datetime | None = None
    """None: from the settings, so ever since."""
    verifies_until: datetime | None = None
    header: str = ""
    """The first part of every token that it signs."""

    def is_over(self, now: datetime) -> bool:
        return self.verifies_until is not None and now >= self.verifies_until


@dataclass(frozen=True, slots=True)
class Ring:
    """All keys that count, as one process knows them."""

    keys: dict[str, Key]
    signing: tuple[Key, ...]
    """Those that may sign from their time on, the latest first; those of the settings come last, in their order."""

    def signs(self, now: datetime) -> Key:
        """The key to sign with. Raises ImproperlyConfigured where every key was dropped."""
        for key in self.signing:
            if (key.signs_from is None or key.signs_from <= now) and not key.is_over(now):
                return key
        if not self.signing:
            raise ImproperlyConfigured("Every token key was dropped: run manage.py rotate_token_key")
        # All that is left is a key just published, and this machine's clock is a little behind.
        return self.signing[-1]


class _Copy:
    """What this process knows of the keys, and who is just reading them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ring: Ring | None = None
        self.asked_at = float("-inf")
        self.reader: threading.Thread | None = None


_copy = _Copy()


def forget() -> None:
    """This process knows no key any more and reads them anew when it needs one."""
    global _copy  # noqa: PLW0603 - a reader that is still under way must not write into the new one
    _copy = _Copy()


# A child has the copy, but not the thread that may be reading, and perhaps a lock that nobody will ever release.
os.register_at_fork(after_in_child=forget)


def signing_key(now: datetime) -> Key:
    """The key that signs now. Raises ImproperlyConfigured where the house has none."""
    return _ring().signs(now)


def find(key_id: str) -> Key | None:
    """The key of this id, if what it signed counts. One that is not known is looked for in the database once, however
    many ask; on an event loop, which must not wait, it is known a moment later."""
    key = _ring().keys.get(key_id)
    if key is not None:
        return key
    copy = _copy
    reader = copy.reader
    if reader is None and time.monotonic() - copy.asked_at >= UNKNOWN_SECONDS:
        reader = _begin_reading(copy)
    if reader is not None:
        _wait_for(reader)
    return None if copy.ring is None else copy.ring.keys.get(key_id)


def _ring() -> Ring:
    copy = _copy
    age = time.monotonic() - copy.asked_at
    if copy.ring is not None and age < REFRESH_SECONDS:
        return copy.ring
    if copy.ring is None:
        copy.ring = _ring_of(())  # Raises where the house has no key at all.
    reader = _begin_reading(copy)
    if age >= STALE_SECONDS:
        _wait_for(reader)
    return copy.ring


def _begin_reading(copy: _Copy) -> threading.Thread:
    """The thread that reads the keys: one at a time. A thread of its own, because the caller may be on an event loop,
    or in the middle of a transaction that a failed query would end."""
    with copy.lock:
        if copy.reader is None:
            copy.asked_at = time.monotonic()
            reader = threading.Thread(target=_read, args=(copy,), name="token-keys", daemon=True)
            reader.start()
            copy.reader = reader
        return copy.reader


def _read(copy: _Copy) -> None:
    try:
        copy.ring = _ring_of(TokenKey.objects.all())
    except Exception as error:  # noqa: BLE001 - whatever it is, the keys that are known go on
        logger.warning(
            "token keys could not be read, going on with those known: %s", log_context.summarize_error(error)
        )
    finally:
        connections.close_all()
        with copy.lock:
            copy.reader = None


def _wait_for(reader: threading.Thread) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        reader.join(WAIT_SECONDS)


def _ring_of(rows: Iterable[TokenKey]) -> Ring:
    given = _of_settings()
    found = {row.key_id: row for row in rows}
    keys: dict[str, Key] = {}
    for row in found.values():
        secret = given.get(row.key_id) if not row.secret else _derive(row.key_id, bytes(row.secret))
        if row.dropped_at is None and secret is not None:
            since = row.signs_from if row.secret else None
            keys[row.key_id] = Key(row.key_id, secret, since, row.verifies_until, _header_of(row.key_id))
    own = [key for key in keys.values() if key.signs_from is not None]
    for key_id, secret in given.items():
        if key_id not in found:
            keys[key_id] = Key(key_id, secret, header=_header_of(key_id))
    latest_first = sorted(own, key=lambda key: key.signs_from or datetime.min, reverse=True)
    return Ring(keys, (*latest_first, *(keys[key_id] for key_id in given if key_id in keys)))


def _of_settings() -> dict[str, bytes]:
    """Key id to secret, the signing one first. Raises ImproperlyConfigured where the house has no key."""
    pairs = [entry.partition(":") for entry in settings.TOKEN_KEYS]
    if pairs:
        return {key_id: secret.encode() for key_id, _, secret in pairs}
    secret = hashlib.sha256(b"fairgate tokens " + secret_key.require_key().encode()).digest()
    return {hashlib.sha256(secret).hexdigest()[:8]: secret}


def _derive(key_id: str, half: bytes) -> bytes:
    return hmac.digest(secret_key.require_key().encode(), b"fairgate token key " + key_id.encode() + half, "sha256")


def _header_of(key_id: str) -> str:
    header = msgspec.json.encode({"alg": "HS256", "kid": key_id, "typ": "JWT"})
    return urlsafe_b64encode(header).decode().rstrip("=")


def rotate() -> TokenKey:
    """A new key is published and signs PUBLISHED_BEFORE_SECONDS from now; those before it verify until the last token
    that they can have signed has expired. Two at once make two keys, of which the later one signs."""
    with transactions.write():
        _lock_keys()
        return _publish(clock.now(), timedelta(seconds=PUBLISHED_BEFORE_SECONDS))


def drop(key_id: str) -> TokenKey | None:
    """Nothing that this key signed counts any more. Was it the one that signs, or the next to, there is a new key,
    given back, that signs at once: a process that does not know it yet looks it up with its first token.

    Dropping it again changes nothing. Raises NoSuchKey.
    """
    with transactions.write():
        rows = _lock_keys()
        now = clock.now()
        given = _of_settings()
        row = rows.get(key_id)
        if row is None:
            if key_id not in given or len(key_id) > KEY_ID_LENGTH_MAX:
                raise NoSuchKey(key_id)
            row = TokenKey(key_id=key_id, secret=b"", created_at=now, signs_from=now)
        if row.dropped_at is not None:
            return None
        row.dropped_at = now
        row.save()
        standing = [other for other in rows.values() if other.dropped_at is None and other.secret]
        mattered = not row.verifies_until  # Whoever is not rotated away signs, or is about to.
        still_signs = any(other.verifies_until is None and other.signs_from <= now for other in standing)
        return _publish(now, timedelta(0)) if mattered and not still_signs else None


def _lock_keys() -> dict[str, TokenKey]:
    return {row.key_id: row for row in TokenKey.objects.select_for_update(no_key=True).order_by("key_id")}


def _publish(now: datetime, ahead: timedelta) -> TokenKey:
    signs_from = now + ahead
    over = signs_from + LIFETIME_MAX
    for key_id in _of_settings():
        if len(key_id) <= KEY_ID_LENGTH_MAX:
            defaults = {"secret": b"", "created_at": now, "signs_from": now}
            TokenKey.objects.get_or_create(key_id=key_id, defaults=defaults)
    TokenKey.objects.filter(verifies_until=None, dropped_at=None).update(verifies_until=over)
    return TokenKey.objects.create(
        key_id=secrets.token_hex(KEY_ID_LENGTH_MAX // 2),
        secret=secrets.token_bytes(32),
        created_at=now,
        signs_from=signs_from,
    )


def describe(now: datetime) -> list[tuple[str, str]]:
    """Every key's id and what it does now, for people; read from the database, the latest first."""
    rows = list(TokenKey.objects.all())
    ring = _ring_of(rows)
    signs = ring.signs(now).key_id
    told = []
    for row in rows:
        if row.dropped_at is not None:
            state = f"dropped {clock.iso(row.dropped_at)}"
        elif row.key_id not in ring.keys:
            state = "not in the settings any more"
        elif row.key_id == signs:
            state = "signs"
        elif row.verifies_until is None:
            state = f"signs from {clock.iso(row.signs_from)}"
        else:
            state = f"verifies until {clock.iso(row.verifies_until)}"
        told.append((row.key_id, state))
    known = {row.key_id for row in rows}
    told += [
        (key.key_id, "signs" if key.key_id == signs else "verifies") for key in ring.signing if key.key_id not in known
    ]
    return told
