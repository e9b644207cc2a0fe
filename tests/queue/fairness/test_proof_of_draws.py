"""The draws and chains of the system itself verify at every step."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from apps.kernel import clock
from apps.queue import facade
from apps.queue.entries import positions
from apps.queue.fairness import receipts
from apps.queue.lobby import beacon
from apps.queue.lobby import draw as lobby_draw
from apps.queue.models import Draw, QueueEntry
from tests.support.databases import database_url
from tests.support.factories import assert_audit_clean
from tests.support.queue.lobbies import close_lobby, commit_to_beacon, make_lobby
from tests.support.queue.proven_rooms import join_entries, verification_error
from tests.support.queue.signed_rounds import sign

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("has_beacon", [False, True], ids=["no beacon", "beacon"])
def test_a_draw_of_the_system_verifies_at_every_step(
    has_beacon: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lobby_draw, "CHUNK", 4)
    monkeypatch.setattr(beacon, "fetch", lambda chosen: sign(chosen.number))
    event, entries = make_lobby("concert", 9)
    if has_beacon:
        commit_to_beacon(event, "https://beacon.example", 7, clock.now() - timedelta(hours=1))
    receipt = tmp_path / "receipt.json"
    receipt.write_text(json.dumps(receipts.issue(event, QueueEntry.objects.get(pk=entries[4].id))))

    def verify() -> str:
        return verification_error("concert", "--receipt", str(receipt))

    assert verify() == ""
    positions.leave(event, facade.Caller(entry_id=entries[0].id))
    event = close_lobby(event)
    join_entries(event, 3)
    assert verify() == ""
    drawer = lobby_draw.DrawWorker(database_url())
    steps = 0
    try:
        while drawer.advance():
            steps += 1
            if steps == 1:
                # The digest was published before the beacon's round.
                past = clock.now() - timedelta(hours=2)
                Draw.objects.update(committed_at=past, frozen_at=past, digest_at=past)
            assert verify() == ""
    finally:
        drawer.close()
    draw = Draw.objects.get()
    assert draw.numbered_at is not None
    assert draw.is_operator_proof is has_beacon
    assert verify() == ""
    assert_audit_clean()
