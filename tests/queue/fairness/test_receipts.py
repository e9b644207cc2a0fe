"""Receipts: signed, so that the system cannot deny them; checked against the published data; they reveal a rewritten
queue."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from django.conf import settings as django_settings
from django.db.models import F

from apps.events.facade import EventView
from apps.kernel.tokens import signatures
from apps.queue import proofs
from apps.queue.fairness import inclusion, published, receipts
from apps.queue.models import QueueEntry, ReceiptKey, WaitingRoom
from tests.support.factories import join
from tests.support.queue.proven_rooms import (
    close_lobby,
    draw_numbers,
    drawn_room,
    entries_of,
    join_entries,
    leaf_of,
    open_lobby,
    reveal,
    verification_error,
)
from tests.support.queue.rooms import make_room

pytestmark = pytest.mark.django_db


@pytest.fixture
def room() -> EventView:
    event = make_room("concert")
    join_entries(event, 8)
    return event


@pytest.fixture
def verify_receipt(tmp_path: Path) -> Callable[[Any], str]:
    """Return the mismatch that `verify_queue --receipt` reports for this receipt; empty if it agrees."""

    def ask(receipt: Any) -> str:
        file = tmp_path / "receipt.json"
        file.write_text(json.dumps(receipt), encoding="utf-8")
        return verification_error(receipt["event"] if isinstance(receipt, dict) else "concert", "--receipt", str(file))

    return ask


def signed_by(receipt: dict[str, Any], private: Ed25519PrivateKey, **changes: Any) -> dict[str, Any]:
    """Return the receipt with these changes, signed with this key."""
    body = {name: value for name, value in receipt.items() if name != "signature"} | changes
    return {**body, "signature": private.sign(proofs.canonical(body)).hex()}


def rewrite_chain(event: EventView) -> None:
    """Recompute the whole chain from the entries as they are now: what a dishonest system would publish."""
    chain = b""
    for entry in entries_of(event):
        chain = proofs.link(chain or proofs.genesis(event.slug), entry.number, leaf_of(entry))
    WaitingRoom.objects.filter(event_id=event.id).update(chain_head=chain)


def test_a_receipt_states_the_position_of_its_entry_and_anyone_can_check_it(
    room: EventView, verify_receipt: Callable[[Any], str]
) -> None:
    entry = entries_of(room)[4]
    receipt = receipts.issue(room, entry)
    assert (receipt["number"], receipt["stage"]) == (5, "first come")
    assert receipt["leaf"] == leaf_of(entry).hex()
    assert receipt["claim"] == "consistent, not operator-proof"
    (key,) = published.document(room)["keys"]
    body = {name: value for name, value in receipt.items() if name != "signature"}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    Ed25519PublicKey.from_public_bytes(bytes.fromhex(key["public"])).verify(bytes.fromhex(receipt["signature"]), text)
    assert verify_receipt(receipt) == ""
    join_entries(room, 5)
    assert verify_receipt(receipt) == ""


def test_a_lobby_receipt_stays_valid_through_the_draw(verify_receipt: Callable[[Any], str]) -> None:
    event = make_room("concert")
    entry = open_lobby(event, 5)[2]
    receipt = receipts.issue(event, entry)
    assert (receipt["number"], receipt["stage"]) == (None, "lobby")
    assert verify_receipt(receipt) == ""
    close_lobby(event)
    assert verify_receipt(receipt) == ""
    join_entries(event, 2)
    reveal(event)
    draw_numbers(event, write_them=False)
    drawn = receipts.issue(event, QueueEntry.objects.get(pk=entry.pk))
    assert drawn["stage"] == "drawn"
    assert drawn["number"] is not None
    assert verify_receipt(receipt) == verify_receipt(drawn) == ""
    # The promise in the receipt is not the one that is published now.
    swapped = signed_by(receipt, receipts.current_signer().private, commitment="00" * 32)
    assert "the receipt names commitment" in verify_receipt(swapped)


def test_the_receipt_of_an_operator_proof_draw_states_so() -> None:
    event = drawn_room(beacon=True)
    drawn, late = entries_of(event)[0], entries_of(event)[-1]
    assert receipts.issue(event, drawn)["claim"] == "drawn with an outside beacon"
    assert receipts.issue(event, late)["claim"] == "consistent, not operator-proof"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"number": 1}, "was changed, or never issued"),
        ({"issued_at": "2020-01-01T00:00:00Z"}, "was changed, or never issued"),
        ({"more": 1}, "was changed, or never issued"),
        ({"signature": "00" * 64}, "was changed, or never issued"),
        ({"signature": "00"}, "no signature"),
        ({"signature": None}, "no signature"),
        ({"key_id": "0123456789abcdef"}, "which is not published"),
        ({"key_id": ["x"]}, "which is not published"),
    ],
)
def test_a_forged_receipt_is_detected(
    room: EventView, verify_receipt: Callable[[Any], str], change: dict[str, Any], message: str
) -> None:
    receipt = receipts.issue(room, entries_of(room)[4])
    assert message in verify_receipt({**receipt, **change})


def test_a_receipt_signed_with_another_key_is_refused(room: EventView, verify_receipt: Callable[[Any], str]) -> None:
    mine = Ed25519PrivateKey.generate()
    receipt = receipts.issue(room, entries_of(room)[4])
    assert "was changed, or never issued" in verify_receipt(signed_by(receipt, mine, number=1))
    mine_id = signatures.key_id_of(mine.public_key().public_bytes_raw())
    assert "which is not published" in verify_receipt(signed_by(receipt, mine, number=1, key_id=mine_id))


def test_a_receipt_of_another_event_is_refused(room: EventView, verify_receipt: Callable[[Any], str]) -> None:
    other = make_room("another", venue="Elsewhere")
    join_entries(other, 3)
    receipt = receipts.issue(other, entries_of(other)[0])
    document = published.document(room)
    refused = inclusion.read_receipt(receipt, "concert", document["keys"])
    assert str(refused) == "the receipt is of event 'another'"


@pytest.mark.parametrize("junk", [None, 1, "x", [], {}, {"event": "concert"}, {"event": "concert", "key_id": 1}])
def test_an_invalid_receipt_is_refused_with_an_explanation(
    room: EventView, verify_receipt: Callable[[Any], str], junk: Any
) -> None:
    receipts.issue(room, entries_of(room)[0])
    if isinstance(junk, dict):
        junk = {"event": "concert", **junk}
    assert "the receipt is" in verify_receipt(junk)


@pytest.mark.parametrize(
    "change",
    [{"as_of": None}, {"as_of": {"next_number": "9", "chain_head": ""}}, {"entry": "x"}, {"leaf": None}, {"number": 0}],
)
def test_a_signed_receipt_with_a_missing_field_is_refused(
    room: EventView, verify_receipt: Callable[[Any], str], change: dict[str, Any]
) -> None:
    receipt = receipts.issue(room, entries_of(room)[4])
    assert "incomplete" in verify_receipt(signed_by(receipt, receipts.current_signer().private, **change))


def test_a_receipt_detects_a_chain_that_was_rewritten_whole(
    room: EventView, verify_receipt: Callable[[Any], str]
) -> None:
    """The published data is consistent again; only the receipt knows what the chain was."""
    receipt = receipts.issue(room, entries_of(room)[7])
    first = entries_of(room)[0]
    first.nonce = b"x" * 16
    first.save()
    rewrite_chain(room)
    join_entries(room, 2)
    assert verification_error("concert") == ""
    assert verify_receipt(receipt).startswith("number 9: the chain before it is ")
    assert "a lower number was changed since" in verify_receipt(receipt)


def test_a_receipt_detects_that_its_number_was_moved(room: EventView, verify_receipt: Callable[[Any], str]) -> None:
    """The entry is moved to the end and the others move up: only the receipt contradicts the published data."""
    mine = entries_of(room)[4]
    receipt = receipts.issue(room, mine)
    QueueEntry.objects.filter(pk=mine.pk).update(number=1_000)
    for number in range(6, 9):
        QueueEntry.objects.filter(number=number).update(number=number - 1)
    QueueEntry.objects.filter(pk=mine.pk).update(number=8)
    rewrite_chain(room)
    assert verification_error("concert") == ""
    assert "number 9: the chain before it is" in verify_receipt(receipt)
    # Also if the receipt was issued before any other entry joined, so that it covers only the beginning.
    early = signed_by(receipt, receipts.current_signer().private, as_of={"next_number": 1, "chain_head": ""})
    assert verify_receipt(early) == f"number 5: the receipt's leaf {receipt['leaf']} is published with number 8"


def test_a_receipt_detects_that_numbers_were_taken_back(room: EventView, verify_receipt: Callable[[Any], str]) -> None:
    receipt = receipts.issue(room, entries_of(room)[0])
    QueueEntry.objects.filter(number__gt=5).delete()
    WaitingRoom.objects.update(next_number=6)
    rewrite_chain(room)
    assert verification_error("concert") == ""
    assert "the receipt states 8 assigned numbers, but 5 are published" in verify_receipt(receipt)


def test_a_receipt_detects_that_its_entrant_was_dropped_before_the_digest(verify_receipt: Callable[[Any], str]) -> None:
    event = make_room("concert")
    entry = open_lobby(event, 5)[2]
    receipt = receipts.issue(event, entry)
    entry.delete()
    WaitingRoom.objects.update(lobby_count=F("lobby_count") - 1, next_number=F("next_number") - 1)
    close_lobby(event)
    assert verification_error("concert") == ""
    assert verify_receipt(receipt) == "the receipt states 5 assigned numbers, but 4 are published"
    # Also if the receipt was issued before the others joined.
    early = signed_by(receipt, receipts.current_signer().private, as_of={"next_number": 4, "chain_head": ""})
    assert "is not among the lobby's entrants" in verify_receipt(early)
    join_entries(event, 3)
    assert "a lower number was changed since" in verify_receipt(receipt)
    reveal(event)
    draw_numbers(event)
    assert "is not among the lobby's entrants" in verify_receipt(early)


def test_a_changed_secret_key_signs_with_another_key_and_the_old_key_stays_published(
    room: EventView, verify_receipt: Callable[[Any], str], settings: Any
) -> None:
    old = receipts.issue(room, entries_of(room)[0])
    settings.SECRET_KEY = django_settings.SECRET_KEY + "changed"
    new = receipts.issue(room, entries_of(room)[1])
    assert new["key_id"] != old["key_id"]
    assert [key["key_id"] for key in receipts.published_keys()] == [old["key_id"], new["key_id"]]
    assert verify_receipt(old) == verify_receipt(new) == ""


def test_the_signing_key_is_recorded_once_and_is_not_the_secret_key(room: EventView) -> None:
    for entry in entries_of(room)[:3]:
        receipts.issue(room, entry)
    key = ReceiptKey.objects.get()
    signer = receipts.current_signer()
    assert (key.key_id, bytes(key.public)) == (signer.key_id, signer.public)
    assert signer.private.private_bytes_raw() not in (
        django_settings.SECRET_KEY.encode(),
        proofs.sha256(django_settings.SECRET_KEY.encode()),
    )


# --- over the API ----------------------------------------------------------------------------------------------------
def test_a_visitor_with_an_entry_gets_its_receipt_and_claims_nothing_by_that(client: Any) -> None:
    event = make_room("concert", active=1)
    join(event)
    answer = client.post("/api/events/concert/queue", "{}", content_type="application/json").json()
    token = {"Authorization": f"Bearer {answer['queue_token']}"}
    entry = QueueEntry.objects.get(number=2)
    QueueEntry.objects.filter(pk=entry.pk).update(
        status="ready", ready_at=entry.joined_at, claim_expires_at=entry.joined_at + timedelta(hours=1)
    )
    response = client.get("/api/events/concert/queue/receipt", headers=token)
    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["Content-Disposition"] == 'attachment; filename="receipt-concert.json"'
    receipt = response.json()
    assert (receipt["entry"], receipt["number"]) == (str(entry.pk), 2)
    assert QueueEntry.objects.get(pk=entry.pk).admission_expires_at is None
    keys = client.get("/api/receipt-keys").json()["keys"]
    assert [key["key_id"] for key in keys] == [receipt["key_id"]]


def test_without_an_entry_there_is_no_receipt(client: Any, room: EventView) -> None:
    other = make_room("another", venue="Elsewhere")
    join(other)
    answer = client.post("/api/events/another/queue", "{}", content_type="application/json").json()
    token = {"Authorization": f"Bearer {answer['queue_token']}"}
    for address, headers, kind in (
        ("/api/events/concert/queue/receipt", {}, "token-missing"),
        ("/api/events/concert/queue/receipt", {"Authorization": "Bearer junk"}, "token-invalid"),
        ("/api/events/concert/queue/receipt", token, "token-wrong-event"),
        ("/api/events/nothing/queue/receipt", {}, "not-found"),
    ):
        response = client.get(address, headers=headers)
        assert response.json()["type"] == kind
        assert response.headers["Content-Type"] == "application/problem+json"
