"""What the house draws and chains by itself verifies, at every step on the way."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from apps.queue import beacon, drawing, facade, line
from apps.queue.fairness import receipts
from apps.queue.models import Draw, QueueEntry
from tests.databases import database_url
from tests.factories import assert_audit_clean
from tests.queue.lobbies import close_lobby, make_lobby, name_beacon
from tests.queue.proven_rooms import arrive, verdict
from ticketing.kernel import clock

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("has_beacon", [False, True], ids=["no beacon", "beacon"])
def test_a_draw_of_the_house_verifies_at_every_step(
    has_beacon: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(drawing, "CHUNK", 4)
    monkeypatch.setattr(beacon, "fetch", lambda source, number: b"v" * 32)
    event, entries = make_lobby("concert", 9)
    if has_beacon:
        name_beacon(event, "https://beacon.example", 7, clock.now() - timedelta(hours=1))
    receipt = tmp_path / "receipt.json"
    receipt.write_text(json.dumps(receipts.issue(event, QueueEntry.objects.get(pk=entries[4].id))))

    def verify() -> str:
        return verdict("concert", "--receipt", str(receipt))

    assert verify() == ""
    line.leave(event, facade.Caller(entry_id=entries[0].id))
    event = close_lobby(event)
    arrive(event, 3)
    assert verify() == ""
    drawer = drawing.Drawer(database_url())
    steps = 0
    try:
        while drawer.run_once():
            steps += 1
            if steps == 1:
                # The digest was published before the beacon's round came out.
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
