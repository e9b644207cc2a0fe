"""Signatures by keys that have no private half are refused."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from apps.kernel.tokens import ed25519

IDENTITY = (1).to_bytes(32, "little")
ORDER_8 = "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"


def test_one_signature_of_a_key_of_small_order_would_be_valid_for_every_message() -> None:
    """Control: the library accepts it."""
    signature = IDENTITY + bytes(32)
    for message in (b"one", b"another"):
        Ed25519PublicKey.from_public_bytes(IDENTITY).verify(signature, message)
        assert not ed25519.is_signed_by(IDENTITY, signature, message)


@pytest.mark.parametrize("sign", [0, 0x80])
@pytest.mark.parametrize(
    "public", [bytes(32).hex(), IDENTITY.hex(), "ec" + "ff" * 30 + "7f", "ee" + "ff" * 30 + "7f", ORDER_8]
)
def test_every_encoding_of_such_a_key_is_refused(public: str, sign: int) -> None:
    key = bytearray.fromhex(public)
    key[-1] |= sign
    assert ed25519._has_small_order(bytes(key))


def test_other_signatures_are_valid_for_their_message_alone() -> None:
    key = Ed25519PrivateKey.generate()
    public, signature = key.public_key().public_bytes_raw(), key.sign(b"one")
    assert ed25519.is_signed_by(public, signature, b"one")
    assert not ed25519.is_signed_by(public, signature, b"another")
    assert not ed25519.is_signed_by(public[:31], signature, b"one")
