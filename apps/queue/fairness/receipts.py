"""A visitor's receipt: a signed statement about one queue entry, which the site cannot deny later.

Receipts are signed with Ed25519, so verifiers cannot forge them. The private key is derived from SECRET_KEY. Every
public key that has signed is stored and published, so that receipts stay valid after a change of SECRET_KEY.
"""

from typing import Any

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.tokens import signatures
from apps.queue import proofs
from apps.queue.models import Draw, DrawnPlace, QueueEntry, ReceiptKey, WaitingRoom

FORMAT = 1
NOT_OPERATOR_PROOF = "consistent, not operator-proof"
OPERATOR_PROOF = "drawn with an outside beacon"
_LABEL = b"fairgate receipts 1"


def current_signer() -> signatures.Signer:
    """Return the current signing key, derived from SECRET_KEY. Raises ImproperlyConfigured without one."""
    return signatures.signer_for(_LABEL)


def published_keys() -> list[dict[str, str]]:
    """Return all keys that have signed receipts, oldest first."""
    return [
        {
            "key_id": key.key_id,
            "algorithm": signatures.ALGORITHM,
            "public": bytes(key.public).hex(),
            "first_used_at": clock.iso(key.first_used_at),
        }
        for key in ReceiptKey.objects.order_by("first_used_at", "key_id")
    ]


def issue(event: events.EventView, entry: QueueEntry) -> dict[str, Any]:
    """Return the signed receipt of this entry. Its key is stored before the receipt is returned."""
    signer = current_signer()
    ReceiptKey.objects.get_or_create(
        key_id=signer.key_id, defaults={"public": signer.public, "first_used_at": clock.now()}
    )
    # The room is read after the entry. Numbers are assigned under its lock, so `next_number` is above the entry's.
    room = WaitingRoom.objects.get(event_id=event.id)
    draw = Draw.objects.filter(event_id=event.id).first()
    number = entry.number if entry.number is not None else _drawn_number(entry, draw)
    is_operator_proof = entry.in_lobby and draw is not None and draw.is_operator_proof is True
    nonce = bytes(entry.nonce)
    receipt: dict[str, Any] = {
        "format": FORMAT,
        "event": event.slug,
        "entry": str(entry.pk),
        "nonce": nonce.hex(),
        "leaf": proofs.leaf(entry.pk, nonce).hex(),
        "number": number,
        "stage": "first come" if not entry.in_lobby else "lobby" if number is None else "drawn",
        "commitment": None if draw is None else bytes(draw.commitment).hex(),
        "as_of": {"next_number": room.next_number, "chain_head": bytes(room.chain_head).hex()},
        "claim": OPERATOR_PROOF if is_operator_proof else NOT_OPERATOR_PROOF,
        "issued_at": clock.iso(clock.now()),
        "key_id": signer.key_id,
    }
    return {**receipt, "signature": signer.sign(proofs.canonical(receipt)).hex()}


def _drawn_number(entry: QueueEntry, draw: Draw | None) -> int | None:
    if draw is None or draw.drawn_at is None:
        return None
    drawn = DrawnPlace.objects.filter(entry_id=entry.pk, event_id=entry.event_id)
    return drawn.values_list("number", flat=True).first()
