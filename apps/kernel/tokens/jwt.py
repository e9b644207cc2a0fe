"""Signed tokens (JWT, HS256, key id). A token's claims are trusted without a query; PostgreSQL decides under a lock
what they permit.

Signing and verification are implemented here, because every poll verifies a token and a general library costs several
times as much. The token cannot choose the algorithm, and only its canonical encoding is accepted. Tests compare every
result with PyJWT's. Figures: docs/performance.md.
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

# Our tokens have about 400 characters. Tokens above this length are not parsed.
LENGTH_MAX = 1_200
_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
# Errors of decoding bytes that should be base64 of JSON in UTF-8.
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
    """The claims of a verified token: its type, its subject, and its event's slug (empty: none)."""

    typ: str
    subject: str
    audience: str
    values: dict[str, Any]


def issue(typ: str, subject: str, lifetime: timedelta, audience: str = "", **values: Any) -> str:
    """Return a token of this type for the subject, valid from now for `lifetime`, in whole seconds."""
    if lifetime > keys.LIFETIME_MAX:
        raise ValueError(
            f"a token's lifetime is at most {keys.LIFETIME_MAX.days} days: its key may be deleted after that"
        )
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
    """Verify a token's signature, its type and, if given, its event; return its claims.

    Raises TokenInvalid (unknown key, damaged, another type), TokenExpired, TokenWrongEvent.
    """
    if len(token) > LENGTH_MAX or not token.isascii():
        raise problems.TokenInvalid
    signed, _, signature = token.rpartition(".")
    header, _, body = signed.partition(".")
    key_id = _key_id(header)
    key = None if key_id is None else keys.find(key_id)
    # The text is signed and compared, not its decoded bytes: another encoding of the same bytes, or characters that a
    # decoder ignores, invalidate the token.
    if key is None or not (
        hmac.compare_digest(_signature(key.secret, signed), signature)
        or any(hmac.compare_digest(_signature(secret, signed), signature) for secret in key.older_secrets)
    ):
        raise problems.TokenInvalid
    try:
        claims = _claims_decoder.decode(_decode(body))
    except _UNREADABLE as error:
        raise problems.TokenInvalid from error
    typ, subject, aud, exp = claims.get("typ"), claims.get("sub"), claims.get("aud"), claims.get("exp")
    # `type` and not isinstance, since true is not a time. We never issue `nbf`, so a token with it is not ours.
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
    """Return whether the token's header has our form, with a key id. Verifies nothing. All tokens of a key have one
    header, which is decoded once."""
    return len(token) <= LENGTH_MAX and _key_id(token.partition(".")[0]) is not None


def peek_type(token: str) -> str | None:
    """Return the type that a token claims, unverified, to choose its verifier."""
    if len(token) > LENGTH_MAX or not _FORM.fullmatch(token):
        return None
    try:
        typ = _claims_decoder.decode(_decode(token.split(".")[1])).get("typ")
    except _UNREADABLE:
        return None
    return typ if isinstance(typ, str) else None


@lru_cache(maxsize=256)
def _key_id(header: str) -> str | None:
    """Return the key id of a header in our form. All tokens of a key have the same header."""
    try:
        return _header_decoder.decode(_decode(header)).kid
    except _UNREADABLE:
        return None


def _signature(secret: bytes, signed: str) -> str:
    # HMAC with precomputed states for the key (RFC 2104, section 4), at half the cost.
    inner, outer = _hmac_states(secret)
    inner, outer = inner.copy(), outer.copy()
    inner.update(signed.encode("ascii"))
    outer.update(inner.digest())
    return _encode(outer.digest())


@lru_cache(maxsize=64)
def _hmac_states(secret: bytes) -> tuple[Any, Any]:
    """Return the SHA-256 states after the first block of HMAC's inner and outer hash."""
    block = hashlib.sha256(secret).digest() if len(secret) > _BLOCK_BYTES else secret
    padded = block.ljust(_BLOCK_BYTES, b"\0")
    return hashlib.sha256(padded.translate(_INNER)), hashlib.sha256(padded.translate(_OUTER))


def _encode(value: bytes) -> str:
    return b2a_base64(value, newline=False).translate(_TO_URL, b"=").decode("ascii")


def _decode(part: str) -> bytes:
    # Always two padding characters: surplus padding is ignored.
    return a2b_base64(part.encode("ascii").translate(_FROM_URL) + b"==")
