"""Signed tokens (JWT, HS256, key id). What a token says is believed without a look-up; what it may do is decided by
the ledger under a lock.

Signed and verified here by hand: a library that serves every algorithm costs several times as much, and this is what
every poll of a crowd pays. The algorithm is not the token's to choose, and only one spelling of a token is believed.
The tests hold every verdict against PyJWT's; figures: docs/performance.md.
"""

import hashlib
import hmac
import re
from binascii import a2b_base64, b2a_base64
from datetime import timedelta
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import msgspec

from apps.kernel import clock
from apps.kernel.http import problems
from apps.kernel.tokens import keys

# Ours have some 400 characters. What is longer is not even parsed.
LENGTH_MAX = 1_200
_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
# What can be wrong with bytes that should be JSON in UTF-8 (of base64 too: its errors are ValueErrors as well).
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)


_BLOCK_BYTES = 64
_INNER, _OUTER = bytes(byte ^ 0x36 for byte in range(256)), bytes(byte ^ 0x5C for byte in range(256))
_TO_URL, _FROM_URL = bytes.maketrans(b"+/", b"-_"), bytes.maketrans(b"-_", b"+/")


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    alg: Literal["HS256"]
    kid: str
    typ: Literal["JWT"] = "JWT"


_header_decoder = msgspec.json.Decoder(_Header)
_claims_decoder = msgspec.json.Decoder(dict[str, Any])


class Claims(NamedTuple):
    """A verified token: its kind, whom it speaks for, and for which event slug (empty: none)."""

    typ: str
    subject: str
    audience: str
    values: dict[str, Any]


def issue(typ: str, subject: str, lifetime: timedelta, audience: str = "", **values: Any) -> str:
    """A token of this kind for the subject, valid from now for `lifetime`, to the second."""
    if lifetime > keys.LIFETIME_MAX:
        raise ValueError(f"no token lives longer than {keys.LIFETIME_MAX.days} days: its key may be gone by then")
    now = clock.process_now()
    key = keys.signing_key(now)
    seconds = int(now.timestamp())
    claims = {
        "typ": typ,
        "sub": subject,
        "aud": audience,
        "iat": seconds,
        "exp": seconds + int(lifetime.total_seconds()),
        **values,
    }
    signed = f"{key.header}.{_encode(msgspec.json.encode(claims))}"
    return f"{signed}.{_signature(key.secret, signed)}"


def verify(token: str, types: frozenset[str], audience: str | None = None) -> Claims:
    """The claims of a token signed here, of one of these kinds and, where given, for this event.

    Raises TokenInvalid (not ours, damaged, another kind), TokenExpired, TokenWrongEvent.
    """
    if len(token) > LENGTH_MAX or not token.isascii():
        raise problems.TokenInvalid
    signed, _, signature = token.rpartition(".")
    header, _, body = signed.partition(".")
    key_id = _key_id(header)
    key = None if key_id is None else keys.find(key_id)
    # Compared as text, and over the text: the same bytes in another spelling, or with junk that a decoder would pass
    # over, are nothing that was signed here.
    if key is None or not hmac.compare_digest(_signature(key.secret, signed), signature):
        raise problems.TokenInvalid
    try:
        claims = _claims_decoder.decode(_decode(body))
    except _UNREADABLE as error:
        raise problems.TokenInvalid from error
    typ, subject, aud, exp = claims.get("typ"), claims.get("sub"), claims.get("aud"), claims.get("exp")
    # `type` and not isinstance: true is no moment. `nbf` is nothing we issue, so nothing we weigh.
    if type(exp) is not int or not isinstance(subject, str) or not isinstance(aud, str) or "nbf" in claims:
        raise problems.TokenInvalid
    if exp <= clock.process_seconds() or (key.verifies_until is not None and key.is_over(clock.process_now())):
        raise problems.TokenExpired
    if not isinstance(typ, str) or typ not in types:
        raise problems.TokenInvalid
    if audience is not None and aud != audience:
        raise problems.TokenWrongEvent
    return Claims(typ, subject, aud, claims)


def has_key_id(token: str) -> bool:
    """Whether its first part is one of ours, which says by which key it was signed: unverified, and read once for all
    tokens of a key. Other kinds of token name none."""
    return len(token) <= LENGTH_MAX and _key_id(token.partition(".")[0]) is not None


def peek_type(token: str) -> str | None:
    """The kind a token claims to be, unverified: only to choose who verifies it."""
    if len(token) > LENGTH_MAX or not _FORM.fullmatch(token):
        return None
    try:
        typ = _claims_decoder.decode(_decode(token.split(".")[1])).get("typ")
    except _UNREADABLE:
        return None
    return typ if isinstance(typ, str) else None


@lru_cache(maxsize=256)
def _key_id(header: str) -> str | None:
    """The key id of a header as ours are. One key's tokens all begin with the same one."""
    try:
        return _header_decoder.decode(_decode(header)).kid
    except _UNREADABLE:
        return None


def _signature(secret: bytes, signed: str) -> str:
    # HMAC with the key worked in beforehand (RFC 2104, section 4): half the price of starting anew.
    inner, outer = _hmac_states(secret)
    inner, outer = inner.copy(), outer.copy()
    inner.update(signed.encode("ascii"))
    outer.update(inner.digest())
    return _encode(outer.digest())


@lru_cache(maxsize=64)
def _hmac_states(secret: bytes) -> tuple[Any, Any]:
    """SHA-256 after the first block of HMAC's inner and of its outer hash."""
    block = hashlib.sha256(secret).digest() if len(secret) > _BLOCK_BYTES else secret
    padded = block.ljust(_BLOCK_BYTES, b"\0")
    return hashlib.sha256(padded.translate(_INNER)), hashlib.sha256(padded.translate(_OUTER))


def _encode(value: bytes) -> str:
    return b2a_base64(value, newline=False).translate(_TO_URL, b"=").decode("ascii")


def _decode(part: str) -> bytes:
    # Two more than enough: what is too much of padding is passed over.
    return a2b_base64(part.encode("ascii").translate(_FROM_URL) + b"==")
