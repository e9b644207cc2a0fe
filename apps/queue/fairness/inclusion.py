"""Comparison of a receipt with the published data. Pure, like verification.py; depends only on `cryptography`, for the
signature."""

import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from apps.queue import proofs
from apps.queue.fairness.verification import Mismatch, Verified, WatchedLeaf

STAGES = ("lobby", "drawn", "first come")
_HEX = re.compile(r"(?:[0-9a-f]{2})*")


def read_receipt(receipt: Any, event: str, keys: Any) -> WatchedLeaf | Mismatch:
    """Return what the published data must contain; Mismatch unless the receipt is complete, of this event and signed
    with a published key."""
    if not isinstance(receipt, Mapping):
        return Mismatch("the receipt is not an object")
    signed = {name: value for name, value in receipt.items() if name != "signature"}
    signature, public = _bytes(receipt.get("signature"), 64), _find_public_key(receipt.get("key_id"), keys)
    if public is None:
        return Mismatch(f"the receipt is signed with key {str(receipt.get('key_id'))[:40]!r}, which is not published")
    if signature is None:
        return Mismatch("the receipt has no signature")
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, proofs.canonical(signed))
    except (InvalidSignature, ValueError):
        return Mismatch("the receipt's signature is not this key's: it was changed, or never issued")
    if receipt.get("event") != event:
        return Mismatch(f"the receipt is of event {str(receipt.get('event'))[:80]!r}")
    return _watched_leaf_of(receipt)


def _watched_leaf_of(receipt: Mapping[str, Any]) -> WatchedLeaf | Mismatch:
    as_of = receipt.get("as_of")
    leaf, nonce = _bytes(receipt.get("leaf"), 32), _bytes(receipt.get("nonce"))
    chain = _bytes(as_of.get("chain_head")) if isinstance(as_of, Mapping) else None
    next_number = as_of.get("next_number") if isinstance(as_of, Mapping) else None
    number = receipt.get("number")
    try:
        entry = uuid.UUID(str(receipt.get("entry")))
    except ValueError:
        entry = None
    is_whole = (
        None not in (leaf, nonce, chain, entry)
        and _is_number(next_number)
        and (number is None or _is_number(number))
        and receipt.get("stage") in STAGES
    )
    if not is_whole:
        return Mismatch("the receipt is signed, but incomplete")
    assert leaf is not None
    assert nonce is not None
    assert chain is not None
    assert entry is not None
    if proofs.leaf(entry, nonce) != leaf:
        return Mismatch("the receipt's leaf is not that of its entry and nonce")
    return WatchedLeaf(leaf=leaf, next_number=int(next_number), chain_head=chain)  # type: ignore[arg-type]


def compare(receipt: Mapping[str, Any], document: Mapping[str, Any], verified: Verified) -> Mismatch | None:
    """Return the first contradiction between a valid receipt and verified published data; None if there is none."""
    number, leaf = receipt["number"], receipt["leaf"]
    draw = document.get("draw")
    commitment = draw.get("commitment") if isinstance(draw, Mapping) else None
    if receipt.get("commitment") is not None and receipt["commitment"] != commitment:
        return Mismatch(f"the receipt names commitment {receipt['commitment']}, published is {commitment}")
    if number is not None and verified.watched_number != number:
        if verified.watched_number is None:
            return Mismatch(f"the receipt's leaf {leaf} is not published", number)
        return Mismatch(f"the receipt's leaf {leaf} is published with number {verified.watched_number}", number)
    if receipt["stage"] != "lobby" or verified.stage in ("none", "open", "closed"):
        return None
    if not verified.watched_is_entrant:
        return Mismatch(f"the receipt's leaf {leaf} is not among the lobby's entrants")
    return None


def _find_public_key(key_id: Any, keys: Any) -> bytes | None:
    known = keys if isinstance(keys, Iterable) and not isinstance(keys, (str, Mapping)) else ()
    for key in known:
        if isinstance(key, Mapping) and key.get("key_id") == key_id and isinstance(key_id, str):
            public = _bytes(key.get("public"), 32)
            # The id must be derived from the key, or it could be reused for another key.
            return public if public is not None and proofs.sha256(public).hex()[:16] == key_id else None
    return None


def _bytes(value: Any, length: int | None = None) -> bytes | None:
    if not isinstance(value, str) or not _HEX.fullmatch(value) or (length is not None and len(value) != 2 * length):
        return None
    return bytes.fromhex(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
