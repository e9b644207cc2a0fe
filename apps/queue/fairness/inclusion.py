"""Compares a receipt with the published data. It is pure, like verification.py, and needs only `cryptography`, which
verifies the signature."""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from apps.kernel.tokens import ed25519
from apps.queue import proofs
from apps.queue.fairness.json_fields import Mismatch, MismatchFound, read_hex, read_integer, read_object
from apps.queue.fairness.verification import Verified, WatchedLeaf

STAGES = ("lobby", "drawn", "first come")


def read_receipt(receipt: Any, event: str, keys: Any) -> WatchedLeaf | Mismatch:
    """Return the leaf and the chain that the published data must contain. Returns a Mismatch unless the receipt is
    complete, of this event and signed with a published key."""
    if not isinstance(receipt, Mapping):
        return Mismatch("the receipt is not an object")
    signed = {name: value for name, value in receipt.items() if name != "signature"}
    public = _find_public_key(receipt.get("key_id"), keys)
    if public is None:
        return Mismatch(f"the receipt is signed with key {str(receipt.get('key_id'))[:40]!r}, which is not published")
    try:
        signature = read_hex(receipt, "signature", (64,))
    except MismatchFound:
        return Mismatch("the receipt has no signature")
    if not ed25519.is_signed_by(public, signature, proofs.canonical(signed)):
        return Mismatch("the signature is not valid for this key: the receipt was changed, or never issued")
    if receipt.get("event") != event:
        return Mismatch(f"the receipt is of event {str(receipt.get('event'))[:80]!r}")
    return _watched_leaf_of(receipt)


def _watched_leaf_of(receipt: Mapping[str, Any]) -> WatchedLeaf | Mismatch:
    try:
        as_of = read_object(receipt.get("as_of"), "as_of")
        entry, nonce = uuid.UUID(str(receipt.get("entry"))), read_hex(receipt, "nonce")
        watched = WatchedLeaf(
            leaf=read_hex(receipt, "leaf", (32,)),
            next_number=read_integer(as_of, "next_number", least=1),
            chain_head=read_hex(as_of, "chain_head"),
        )
        if receipt.get("number") is not None:
            read_integer(receipt, "number", least=1)
    except (MismatchFound, ValueError):
        return Mismatch("the receipt is signed, but incomplete")
    if receipt.get("stage") not in STAGES:
        return Mismatch("the receipt is signed, but incomplete")
    if proofs.leaf(entry, nonce) != watched.leaf:
        return Mismatch("the receipt's leaf is not that of its entry and nonce")
    return watched


def compare(receipt: Mapping[str, Any], document: Mapping[str, Any], verified: Verified) -> Mismatch | None:
    """Return the first contradiction between a valid receipt and verified published data; None if there is none."""
    number, leaf = receipt["number"], receipt["leaf"]
    draw = document.get("draw")
    commitment = draw.get("commitment") if isinstance(draw, Mapping) else None
    if receipt.get("commitment") is not None and receipt["commitment"] != commitment:
        return Mismatch(f"the receipt names commitment {receipt['commitment']}, but {commitment} is published")
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
            try:
                public = read_hex(key, "public", (32,))
            except MismatchFound:
                return None
            # The id must be derived from the key, or it could be reused for another key.
            return public if proofs.sha256(public).hex()[:16] == key_id else None
    return None
