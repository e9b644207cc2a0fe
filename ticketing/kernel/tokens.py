"""Signed tokens (JWT, HS256, key id). What a token says is believed without a look-up; what it may do is decided by
the ledger under a lock."""

import hashlib
import re
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

import jwt
from django.conf import settings

from ticketing.kernel import clock, problems, signing

_ALGORITHM = "HS256"
# Ours have some 400 characters. What is longer is not even parsed.
LENGTH_MAX = 1_200
_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Claims:
    """A verified token: its kind, whom it speaks for, and for which event slug (empty: none)."""

    typ: str
    subject: str
    audience: str
    values: dict[str, Any]


@cache
def _keys() -> dict[str, bytes]:
    """Key id to secret, the signing one first. Raises ImproperlyConfigured where the house has no key."""
    pairs = [entry.partition(":") for entry in settings.TOKEN_KEYS]
    if not pairs:
        secret = hashlib.sha256(b"fairgate tokens " + signing.require_key().encode()).digest()
        return {hashlib.sha256(secret).hexdigest()[:8]: secret}
    return {kid: secret.encode() for kid, _, secret in pairs}


def issue(typ: str, subject: str, lifetime: timedelta, audience: str = "", **values: Any) -> str:
    """A token of this kind for the subject, valid from now for `lifetime`."""
    kid, key = next(iter(_keys().items()))
    now = clock.process_now()
    claims = {"typ": typ, "sub": subject, "aud": audience, "iat": now, "exp": now + lifetime, **values}
    return jwt.encode(claims, key, algorithm=_ALGORITHM, headers={"kid": kid})


def read(token: str, types: frozenset[str], audience: str | None = None) -> Claims:
    """The claims of a token signed here, of one of these kinds and, where given, for this event.

    Raises TokenInvalid (not ours, damaged, another kind), TokenExpired, TokenWrongEvent.
    """
    # Three parts as they were written: decoders pass over padding and junk that nobody here appended.
    if len(token) > LENGTH_MAX or not _FORM.fullmatch(token):
        raise problems.TokenInvalid
    try:
        key = _keys()[str(jwt.get_unverified_header(token).get("kid"))]
        claims = jwt.decode(
            token,
            key,
            algorithms=[_ALGORITHM],
            options={"require": ["exp", "sub", "typ", "aud"], "verify_aud": False},
        )
    except jwt.ExpiredSignatureError as error:
        raise problems.TokenExpired from error
    except (jwt.InvalidTokenError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise problems.TokenInvalid from error
    if claims["typ"] not in types or not isinstance(claims["sub"], str):
        raise problems.TokenInvalid
    if audience is not None and claims["aud"] != audience:
        raise problems.TokenWrongEvent
    return Claims(typ=claims["typ"], subject=claims["sub"], audience=claims["aud"], values=claims)


def peek_type(token: str) -> str | None:
    """The kind a token claims to be, unverified: only to choose who verifies it."""
    if len(token) > LENGTH_MAX or not _FORM.fullmatch(token):
        return None
    try:
        typ = jwt.decode(token, options={"verify_signature": False}).get("typ")
    except (jwt.InvalidTokenError, RecursionError):
        return None
    return typ if isinstance(typ, str) else None
