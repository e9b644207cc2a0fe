"""The keys that sign and verify tokens.

PostgreSQL stores them, so that all processes share them and they survive a restart. Every process caches them, so that
tokens need no query.

The table alone contains no secret: a key is HMAC(SECRET_KEY, its id and the row's random half). Neither the database
(or its backup) nor SECRET_KEY alone suffices to sign, and a leaked key reveals nothing about the others. The first keys
come from the settings (TOKEN_KEYS, or one derived from SECRET_KEY) and need no row. Once such a key is
rotated or dropped, it has a row, without a random half, that stores the end of its validity. SECRET_KEY_FALLBACKS
verify what they signed as SECRET_KEY, and sign nothing.

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
"""The longest lifetime of a token, and therefore of a key after its last signature."""
PUBLISHED_BEFORE_SECONDS = 60
"""A new key signs this long after its publication, when every process has it."""
REFRESH_SECONDS = 3.0
"""Age after which the cached keys are read again, in the background."""
STALE_SECONDS = 10.0
"""Age after which cached keys are used only after an attempt to read them again, so that dropped keys are refused."""
UNKNOWN_SECONDS = 0.25
"""Shortest interval between reads caused by unknown key ids, whatever clients send."""
WAIT_SECONDS = 2.0
"""Longest wait for a read; if the database is unavailable, the cached keys are used."""
KEY_ID_LENGTH_MAX = 16


class NoSuchKey(LookupError):
    """No token key has this id."""


@dataclass(frozen=True, slots=True)
class Key:
    key_id: str
    secret: bytes = field(repr=False)
    signs_from: datetime | None = None
    """None: a key from the settings, which always signs."""
    verifies_until: datetime | None = None
    header: str = ""
    """The encoded header of its tokens."""
    older_secrets: tuple[bytes, ...] = field(default=(), repr=False)
    """The secrets of the same row under SECRET_KEY_FALLBACKS. They verify and never sign."""

    def is_over(self, now: datetime) -> bool:
        return self.verifies_until is not None and now >= self.verifies_until


@dataclass(frozen=True, slots=True)
class Ring:
    """All valid keys known to this process."""

    keys: dict[str, Key]
    signing: tuple[Key, ...]
    """The keys that may sign, the latest first; keys of the settings come last, in their order."""

    def signs(self, now: datetime) -> Key:
        """Return the key that signs at `now`. Raises ImproperlyConfigured if every key was dropped."""
        for key in self.signing:
            if (key.signs_from is None or key.signs_from <= now) and not key.is_over(now):
                return key
        if not self.signing:
            raise ImproperlyConfigured("Every token key was dropped: run manage.py rotate_token_key")
        # Only a key published just now is left, and this host's clock is a little behind.
        return self.signing[-1]


class _Copy:
    """This process's cached keys, and the thread that reads them, if any."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ring: Ring | None = None
        self.asked_at = float("-inf")
        self.reader: threading.Thread | None = None


_copy = _Copy()


def forget() -> None:
    """Drop the cached keys; the next use reads them."""
    global _copy  # noqa: PLW0603 - a reader that is still under way must not write into the new cache
    _copy = _Copy()


# A forked child has no reader thread, and perhaps a copy of a lock that is never released.
os.register_at_fork(after_in_child=forget)


def signing_key(now: datetime) -> Key:
    """Return the key that signs at `now`. Raises ImproperlyConfigured if there is none."""
    return _ring().signs(now)


def read() -> None:
    """Read the keys, for at most WAIT_SECONDS. A process with an event loop calls this in a thread before it serves:
    otherwise its first check of a token uses the keys of the settings, also dropped ones."""
    _ring()


def find(key_id: str) -> Key | None:
    """Return the valid key with this id, or None. For an unknown id the keys are read again, once for all callers; an
    event loop does not wait for that and finds the key a moment later."""
    if key := _ring().keys.get(key_id):
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
        copy.ring = _ring_of(())  # Raises if there is no key at all.
    reader = _begin_reading(copy)
    if age >= STALE_SECONDS:
        _wait_for(reader)
    return copy.ring


def _begin_reading(copy: _Copy) -> threading.Thread:
    """Start the thread that reads the keys, unless it is running. The caller may be on an event loop, or in a
    transaction that a failed query would abort."""
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
    except Exception as error:  # noqa: BLE001 - After any error the cached keys stay in use.
        logger.warning(
            "token keys could not be read, the cached ones stay in use: %s", log_context.summarize_error(error)
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
        if row.dropped_at is not None:
            continue
        header = _header_of(row.key_id)
        if row.secret:
            secret, *older = _derive(row.key_id, bytes(row.secret))
            keys[row.key_id] = Key(row.key_id, secret, row.signs_from, row.verifies_until, header, tuple(older))
        elif row.key_id in given:
            keys[row.key_id] = Key(row.key_id, given[row.key_id], None, row.verifies_until, header)
    own = [key for key in keys.values() if key.signs_from is not None]
    for key_id, secret in given.items():
        if key_id not in found:
            keys[key_id] = Key(key_id, secret, header=_header_of(key_id))
    latest_first = sorted(own, key=lambda key: key.signs_from or datetime.min, reverse=True)
    return Ring(keys, (*latest_first, *(keys[key_id] for key_id in given if key_id in keys)))


def _of_settings() -> dict[str, bytes]:
    """Return the secrets of the settings by key id, the signing one first. Raises ImproperlyConfigured if there is
    none."""
    pairs = [entry.partition(":") for entry in settings.TOKEN_KEYS]
    if pairs:
        return {key_id: secret.encode() for key_id, _, secret in pairs}
    secrets_of_keys = [
        hashlib.sha256(b"fairgate tokens " + key.encode()).digest() for key in secret_key.accepted_keys()
    ]
    return {hashlib.sha256(secret).hexdigest()[:8]: secret for secret in secrets_of_keys}


def _derive(key_id: str, half: bytes) -> list[bytes]:
    """Return the key's secret under SECRET_KEY, then under each of SECRET_KEY_FALLBACKS."""
    message = b"fairgate token key " + key_id.encode() + half
    return [hmac.digest(key.encode(), message, "sha256") for key in secret_key.accepted_keys()]


def _header_of(key_id: str) -> str:
    header = msgspec.json.encode({"alg": "HS256", "kid": key_id, "typ": "JWT"})
    return urlsafe_b64encode(header).decode().rstrip("=")


def rotate() -> TokenKey:
    """Publish a new key that signs PUBLISHED_BEFORE_SECONDS from now; earlier keys verify until their last possible
    token has expired. Two concurrent calls create two keys; the later one signs."""
    with transactions.write():
        _lock_keys()
        return _publish(clock.now(), timedelta(seconds=PUBLISHED_BEFORE_SECONDS))


def drop(key_id: str) -> TokenKey | None:
    """Invalidate all tokens that this key signed.

    If it was the signing key or the next one, publish and return a new key that signs at once: a process that does not
    have it reads it on its first token. Dropping a key again changes nothing. Raises NoSuchKey.
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
        was_signing = not row.verifies_until  # A key without an end signs now or later.
        still_signs = any(other.verifies_until is None and other.signs_from <= now for other in standing)
        return _publish(now, timedelta(0)) if was_signing and not still_signs else None


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
    """Return each key's id and its present state as text, read from the database, the latest first."""
    rows = list(TokenKey.objects.all())
    ring = _ring_of(rows)
    signs = ring.signs(now).key_id
    states = []
    for row in rows:
        if row.dropped_at is not None:
            state = f"dropped {clock.iso(row.dropped_at)}"
        elif row.key_id not in ring.keys:
            state = "no longer in the settings"
        elif row.key_id == signs:
            state = "signs"
        elif row.verifies_until is None:
            state = f"signs from {clock.iso(row.signs_from)}"
        else:
            state = f"verifies until {clock.iso(row.verifies_until)}"
        states.append((row.key_id, state))
    known = {row.key_id for row in rows}
    states += [
        (key.key_id, "signs" if key.key_id == signs else "verifies") for key in ring.signing if key.key_id not in known
    ]
    return states
