"""Verification of a beacon's rounds: a value is the digest of a BLS signature by the key of the beacon's network.

Pure functions over bytes, without Django and without a clock. The curve's library is loaded at the first verification:
only the draw and `verify_queue` verify, never a process that answers visitors. docs/fairness.md describes the format.
"""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

CHAINED = "pedersen-bls-chained"
"""The signed message includes the previous round's signature. Signatures are on G2, the key is on G1."""
UNCHAINED_G1 = "bls-unchained-g1-rfc9380"
"""The signed message is the round's number alone. Signatures are on G1, the key is on G2."""
SCHEMES = (CHAINED, UNCHAINED_G1)
G1_BYTES, G2_BYTES = 48, 96
_DST_G1 = b"BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_"
_DST_G2 = b"BLS_SIG_BLS12381G2_XMD:SHA-256_SSWU_RO_NUL_"


@dataclass(frozen=True, slots=True)
class Chain:
    """The scheme and the public key that a round's signature must have."""

    scheme: str
    public_key: bytes


@dataclass(frozen=True, slots=True)
class KnownNetwork:
    """A public network of drand, whose key and times cannot be chosen by an operator."""

    name: str
    hash: str
    """The chain hash, by which drand's relays name the network."""
    chain: Chain
    genesis: int
    """Unix time of round 1."""
    period_seconds: int

    def time_of(self, number: int) -> datetime:
        """Return when the network publishes this round."""
        return datetime.fromtimestamp(self.genesis, UTC) + timedelta(seconds=(number - 1) * self.period_seconds)


QUICKNET = KnownNetwork(
    "drand's quicknet",
    "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971",
    Chain(
        UNCHAINED_G1,
        bytes.fromhex(
            "83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d106451"
            "0d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a"
        ),
    ),
    genesis=1_692_803_367,
    period_seconds=3,
)
DEFAULT_NETWORK = KnownNetwork(
    "drand's default network",
    "8990e7a9aaed2ffed73dbd7092123d6f289930540d7651336225dc172e51b2ce",
    Chain(
        CHAINED,
        bytes.fromhex(
            "868f005eb8e6e4ca0a47c8a77ceaa5309a47978a7c71bc5cce96366b5d7a569937c529eeda66c7293784a9402801af31"
        ),
    ),
    genesis=1_595_431_050,
    period_seconds=30,
)
KNOWN_NETWORKS = (QUICKNET, DEFAULT_NETWORK)


def find_known(chain: Chain) -> KnownNetwork | None:
    """Return the public network with this scheme and key, if it is one."""
    return next((known for known in KNOWN_NETWORKS if known.chain == chain), None)


def name_of_network(beacon: Any) -> str | None:
    """Return the name of the public network whose key signs the beacon of a published statement, if it is one."""
    try:
        known = find_known(Chain(str(beacon["scheme"]), bytes.fromhex(beacon["public_key"])))
    except (KeyError, TypeError, ValueError):
        return None
    return None if known is None else known.name


def value_of(signature: bytes) -> bytes:
    """Return the round's random value: SHA-256 of its signature."""
    return hashlib.sha256(signature).digest()


def is_valid_key(chain: Chain) -> bool:
    """Return whether the key is a point of the scheme's group."""
    from py_arkworks_bls12381 import G1Point, G2Point

    group = {CHAINED: G1Point, UNCHAINED_G1: G2Point}.get(chain.scheme)
    return group is not None and _read_point(group, chain.public_key) is not None


def is_valid_signature(chain: Chain, number: int, signature: bytes, previous: bytes = b"") -> bool:
    """Return whether this is the network's signature of the round; `previous` is the previous round's signature in a
    chained scheme, and ignored in others.

    A round has exactly one valid signature: encodings that are not canonical and points outside the group are refused.
    Otherwise its publisher could choose between several values. Takes about 3 ms.
    """
    from py_arkworks_bls12381 import GT, G1Point, G2Point

    if not 0 <= number < 2**64:
        return False
    round_bytes = number.to_bytes(8, "big")
    if chain.scheme == CHAINED:
        key, signed = _read_point(G1Point, chain.public_key), _read_point(G2Point, signature)
        if key is None or signed is None or not 0 < len(previous) <= G2_BYTES:
            return False
        message = hashlib.sha256(previous + round_bytes).digest()
        return bool(GT.pairing_check([G1Point(), -key], [signed, G2Point.hash_to_curve(message, _DST_G2)]))
    if chain.scheme == UNCHAINED_G1:
        key, signed = _read_point(G2Point, chain.public_key), _read_point(G1Point, signature)
        if key is None or signed is None:
            return False
        message = hashlib.sha256(round_bytes).digest()
        return bool(GT.pairing_check([signed, -G1Point.hash_to_curve(message, _DST_G1)], [G2Point(), key]))
    return False


def _read_point(group: Any, data: bytes) -> Any:
    """Return the point with this canonical compressed encoding; None for another encoding, for a point outside the
    group, and for infinity."""
    try:
        point = group.from_compressed_bytes(data)
    except ValueError:
        return None
    return point if point != group.identity() and point.to_compressed_bytes() == data else None
