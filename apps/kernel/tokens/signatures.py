"""Ed25519 signatures of public documents. Each purpose has a key of its own, derived from SECRET_KEY.

The algorithm is asymmetric, so that those who verify a document cannot forge one. A change of SECRET_KEY changes every
key: the apps store the public keys that have signed.
"""

import hashlib
from dataclasses import dataclass
from functools import cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from apps.kernel import secret_key

ALGORITHM = "Ed25519"


@dataclass(frozen=True, slots=True)
class Signer:
    key_id: str
    public: bytes
    private: Ed25519PrivateKey

    def sign(self, message: bytes) -> bytes:
        return self.private.sign(message)


def signer_for(label: bytes) -> Signer:
    """Return the current signing key of this purpose. Raises ImproperlyConfigured without a SECRET_KEY."""
    return _derive(secret_key.require_key(), label)


@cache
def _derive(key: str, label: bytes) -> Signer:
    secret = HKDF(algorithm=SHA256(), length=32, salt=None, info=label).derive(key.encode())
    private = Ed25519PrivateKey.from_private_bytes(secret)
    public = private.public_key().public_bytes_raw()
    return Signer(key_id_of(public), public, private)


def key_id_of(public: bytes) -> str:
    """Return the first 16 hexadecimal digits of the key's SHA-256."""
    return hashlib.sha256(public).hexdigest()[:16]
