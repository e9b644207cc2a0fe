"""A published beacon value counts only with a signature of the committed round by the committed key."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from apps.kernel import clock
from apps.queue import proofs
from apps.queue.beacon_chains import CHAINED, QUICKNET
from apps.queue.lobby.beacon import Signed
from apps.queue.models import Draw
from tests.support.queue.proven_rooms import (
    BEACON,
    ROUND,
    SECRET,
    SIGNED,
    close_lobby,
    drawn_room,
    open_lobby,
    reveal,
    verification_error,
)
from tests.support.queue.rooms import make_room
from tests.support.queue.signed_rounds import QUICKNET_ROUND, QUICKNET_SIGNATURE, QUICKNET_VALUE, sign

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def tamper(statement: str, *values: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


@pytest.mark.parametrize(
    ("change", "output"),
    [
        ("beacon_signature = NULL", "beacon_signature is 'None', not any bytes in hex"),
        ("beacon_signature = beacon_value", "not the SHA-256 of the published signature"),
        ("beacon_value = %s", "not the SHA-256 of the published signature"),
    ],
)
def test_a_beacon_value_without_its_signature_is_detected(change: str, output: str) -> None:
    drawn_room(beacon=True)
    assert verification_error("concert") == ""
    tamper(f"UPDATE queue_draw SET {change}", *[b"v" * 32] * change.count("%s"))
    assert output in verification_error("concert")


@pytest.mark.parametrize(
    ("committed", "signed"),
    [
        ({}, sign(ROUND + 1)),
        ({}, sign(ROUND, secret=3)),
        ({"round": ROUND + 1}, SIGNED),
        ({"public_key": QUICKNET.chain.public_key.hex()}, SIGNED),
        ({"public_key": ""}, SIGNED),
        ({"scheme": CHAINED}, SIGNED),
    ],
    ids=["another round", "another key", "another committed round", "quicknet's key", "no key", "another scheme"],
)
def test_a_signature_of_another_round_or_chain_is_detected(committed: dict[str, Any], signed: Signed) -> None:
    """Everything else is consistent: the commitment, the value and the seed were made to match."""
    event = make_room("concert")
    open_lobby(event, 3, beacon="https://beacon.example")
    commit(committed)
    close_lobby(event)
    reveal(event, BEACON)
    draw = Draw.objects.get()
    draw.beacon_signature, draw.beacon_value = signed.signature, signed.value
    draw.seed = proofs.seed_of(SECRET, bytes(draw.digest or b""), signed.value)
    draw.save()
    assert "the signature is not that of round" in verification_error("concert")


def commit(changes: dict[str, Any]) -> None:
    """Rewrite the statement and its commitment."""
    draw = Draw.objects.get()
    statement = json.loads(draw.statement)
    statement["beacon"] |= changes
    text = proofs.canonical(statement)
    draw.statement, draw.commitment = text.decode(), proofs.sha256(text)
    draw.save()


def test_a_known_network_publishes_the_round_when_the_statement_says(capsys: pytest.CaptureFixture[str]) -> None:
    """An operator that commits to an old round of quicknet and claims a later time knows the value beforehand."""
    event = make_room("concert")
    open_lobby(event, 3, beacon="https://api.drand.sh/" + QUICKNET.hash)
    chain = {"scheme": QUICKNET.chain.scheme, "public_key": QUICKNET.chain.public_key.hex(), "round": QUICKNET_ROUND}
    commit(chain)
    close_lobby(event)
    reveal(event, bytes.fromhex(QUICKNET_VALUE))
    Draw.objects.update(beacon_signature=QUICKNET_SIGNATURE)
    assert f"drand's quicknet publishes round {QUICKNET_ROUND} at 2023-" in verification_error("concert")
    at = QUICKNET.time_of(QUICKNET_ROUND)
    commit({"at": clock.iso(at)})
    Draw.objects.update(committed_at=at - HOUR, frozen_at=at - HOUR, digest_at=at - HOUR)
    call_command("verify_queue", "concert")
    assert f"signed by drand's quicknet, round {QUICKNET_ROUND}" in capsys.readouterr().out
