"""Verification of Ed25519 signatures. It is pure, and needs only `cryptography`."""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_FIELD = 2**255 - 19
_ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL_ORDER = frozenset((0, 1, _FIELD - 1, _ORDER_8, _FIELD - _ORDER_8))
"""The second coordinates of the eight points of small order."""


def is_signed_by(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether the signature of the message is valid for this public key. A key of small order has no private
    half, and one signature is valid for many messages: no signature of it is."""
    if len(public) != 32 or _has_small_order(public):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _has_small_order(public: bytes) -> bool:
    coordinate = int.from_bytes(public, "little") & (2**255 - 1)  # The highest bit is the sign of the other one.
    return coordinate % _FIELD in _SMALL_ORDER
