"""The hash functions of the proof. They use only SHA-256, so that an independent verifier is easy to write.

Pure functions over bytes; no Django, no clock, no randomness. docs/fairness.md describes the format.
"""

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any


def sha256(*parts: bytes) -> bytes:
    """Return the SHA-256 digest of the concatenated parts."""
    return hashlib.sha256(b"".join(parts)).digest()


def leaf(entry_id: uuid.UUID, nonce: bytes) -> bytes:
    """Return an entry's public leaf: SHA-256(entry id, 16 bytes ‖ nonce). Only its owner can recognize it."""
    return sha256(entry_id.bytes, nonce)


def genesis(event_slug: str) -> bytes:
    """Return the first value of an event's chain: SHA-256("fairgate queue " ‖ slug)."""
    return sha256(b"fairgate queue ", event_slug.encode())


def link(previous: bytes, number: int, leaf_of_number: bytes) -> bytes:
    """Return the chain's head after this number: SHA-256(previous ‖ number, 8 bytes big-endian ‖ leaf)."""
    return sha256(previous, number.to_bytes(8, "big"), leaf_of_number)


def canonical(document: Mapping[str, Any]) -> bytes:
    """Return the canonical form that is hashed and signed: JSON with sorted keys, without spaces, in UTF-8."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest_of(leaves: Iterable[bytes]) -> bytes:
    """Return the entrants' digest: SHA-256 of their concatenated sorted leaves."""
    return sha256(*sorted(leaves))


def seed_of(secret: bytes, digest: bytes, beacon: bytes) -> bytes:
    """Return SHA-256(secret ‖ digest ‖ beacon); `beacon` is empty if there is none."""
    return sha256(secret, digest, beacon)


def draw_key(seed: bytes, leaf_of_entry: bytes) -> bytes:
    """Return the key by which entrants are sorted, lowest first, and numbered from 1: SHA-256(seed ‖ leaf)."""
    return sha256(seed, leaf_of_entry)
