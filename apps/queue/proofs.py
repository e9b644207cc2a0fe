"""The arithmetic of the proof: nothing but SHA-256, so that a second verifier is an afternoon's work.

Pure functions over bytes; no Django, no clock, no randomness. The format they serve: docs/fairness.md.
"""

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any


def sha256(*parts: bytes) -> bytes:
    """The digest of the parts, one after the other."""
    return hashlib.sha256(b"".join(parts)).digest()


def leaf(entry_id: uuid.UUID, nonce: bytes) -> bytes:
    """What stands for an entry in public: SHA-256(entry id, 16 bytes ‖ nonce). Only its owner can tell which it is."""
    return sha256(entry_id.bytes, nonce)


def genesis(event_slug: str) -> bytes:
    """What an event's chain begins with: SHA-256("fairgate queue " ‖ slug)."""
    return sha256(b"fairgate queue ", event_slug.encode())


def link(previous: bytes, number: int, leaf_of_number: bytes) -> bytes:
    """The chain's head after this number: SHA-256(previous ‖ number, 8 bytes big-endian ‖ leaf)."""
    return sha256(previous, number.to_bytes(8, "big"), leaf_of_number)


def canonical(document: Mapping[str, Any]) -> bytes:
    """The one form of a document that is hashed and signed: JSON, keys sorted, no spaces, UTF-8."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest_of(leaves: Iterable[bytes]) -> bytes:
    """The entrants' digest: SHA-256 over their leaves, sorted."""
    return sha256(*sorted(leaves))


def seed_of(secret: bytes, digest: bytes, beacon: bytes) -> bytes:
    """SHA-256(secret ‖ digest ‖ beacon); the beacon is empty where there is none."""
    return sha256(secret, digest, beacon)


def draw_key(seed: bytes, leaf_of_entry: bytes) -> bytes:
    """What entrants are sorted by, lowest first, to be numbered from 1: SHA-256(seed ‖ leaf)."""
    return sha256(seed, leaf_of_entry)
