"""What it costs to publish, to verify and to receipt a line of a million, first come and drawn.

    python -m benchmarks.fairness [--entries 1000000]

Starts a PostgreSQL of its own and removes it again. Each room is verified as `manage.py verify_queue` does it, page by
page through the function that serves them, JSON written and read as on the wire; memory is the process's peak above
what it was before.
"""

import argparse
import gc
import json
import os
import time
from pathlib import Path
from typing import Any

from tests.servers import temporary_place
from ticketing.embedded import postgres
from ticketing.embedded.servers import new_password

ENTRIES = """
INSERT INTO queue_queueentry (id, event_id, number, in_lobby, nonce, marked, visitor_id, status, joined_at)
SELECT gen_random_uuid(), %(event)s, CASE WHEN %(lobby)s THEN NULL ELSE n END, %(lobby)s,
       uuid_send(gen_random_uuid()), '', 'visitor-' || n, 'waiting', clock_timestamp()
FROM generate_series(1, %(count)s) AS n
"""
LEAVES = "SELECT id, sha256(uuid_send(id) || nonce) FROM queue_queueentry WHERE event_id = %s ORDER BY number"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=1_000_000)
    options = parser.parse_args()
    place, end = temporary_place()
    try:
        cluster = postgres.start(place, password=new_password(), superuser_password=new_password())
        os.environ["DATABASE_URL"] = cluster.url()
        os.environ["DATABASE_STATEMENT_TIMEOUT_MS"] = "600000"
        os.environ.setdefault("SECRET_KEY", "known-to-every-benchmark-and-good-for-nothing-else")
        os.environ["DJANGO_SETTINGS_MODULE"] = "ticketing.settings"
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        measure(options.entries)
    finally:
        end()


def measure(count: int) -> None:
    from django.db import connection

    from apps.queue.fairness import proofs
    from apps.queue.models import WaitingRoom
    from tests.queue.proven_rooms import room_of
    from tests.queue.rooms import make_room

    first_come, drawn = make_room("first-come"), make_room("drawn", venue="Elsewhere")
    with connection.cursor() as cursor:
        cursor.execute(ENTRIES, {"event": first_come.id, "lobby": False, "count": count})
        cursor.execute(LEAVES, [first_come.id])
        chain = proofs.genesis("first-come")
        for number, (_, leaf) in enumerate(cursor.fetchall(), 1):
            chain = proofs.link(chain, number, bytes(leaf))
        WaitingRoom.objects.filter(event_id=first_come.id).update(state="open", next_number=count + 1, chain_head=chain)
        _draw(cursor, drawn, count)
        cursor.execute("VACUUM (ANALYZE) queue_queueentry, queue_drawnplace")
    assert room_of(drawn).lobby_count == count
    for event in (first_come, drawn):
        _measure_room(event, count)


def _draw(cursor: Any, event: Any, count: int) -> None:
    """As the house draws, in as few statements as a benchmark can afford."""
    from apps.queue.fairness import proofs
    from apps.queue.models import Draw, WaitingRoom
    from tests.queue.proven_rooms import open_lobby, reveal
    from ticketing.kernel import clock

    open_lobby(event, 0)
    cursor.execute(ENTRIES, {"event": event.id, "lobby": True, "count": count})
    cursor.execute(LEAVES, [event.id])
    rows = [(entry_id, bytes(leaf)) for entry_id, leaf in cursor.fetchall()]
    now = clock.now()
    Draw.objects.filter(event_id=event.id).update(
        frozen_at=now, digest_at=now, digest=proofs.digest_of(leaf for _, leaf in rows)
    )
    seed = bytes(reveal(event).seed or b"")
    rows.sort(key=lambda row: (proofs.draw_key(seed, row[1]), row[1]))
    with cursor.copy("COPY queue_drawnplace (event_id, number, entry_id) FROM STDIN") as copy:
        for number, (entry_id, _) in enumerate(rows, 1):
            copy.write_row((event.id, number, entry_id))
    cursor.execute(
        "UPDATE queue_queueentry AS entry SET number = place.number FROM queue_drawnplace AS place"
        " WHERE place.entry_id = entry.id AND place.event_id = %s",
        [event.id],
    )
    now = clock.now()
    Draw.objects.filter(event_id=event.id).update(drawn_at=now, numbered_at=now)
    WaitingRoom.objects.filter(event_id=event.id).update(state="open", lobby_count=count, next_number=count + 1)


def _measure_room(event: Any, count: int) -> None:
    from apps.queue.fairness import published, receipts, stored, verifying
    from apps.queue.models import QueueEntry

    sent = pages = 0
    slowest = 0.0

    def wire(make: Any) -> Any:
        nonlocal sent, pages, slowest
        begun = time.perf_counter()
        text = json.dumps(make(), separators=(",", ":"))
        slowest = max(slowest, time.perf_counter() - begun)
        sent, pages = sent + len(text), pages + 1
        return json.loads(text)

    before = _forget_peak()
    begun = time.perf_counter()
    document = wire(lambda: published.document(event))
    outcome = verifying.verify(document, lambda part, after: wire(lambda: published.page(event, part, after).body))
    seconds = time.perf_counter() - begun
    assert isinstance(outcome, verifying.Verified), outcome
    memory = _of_status("VmHWM") - before
    begun = time.perf_counter()
    assert stored.check(event.id) is None
    beside = time.perf_counter() - begun
    entry = QueueEntry.objects.filter(event_id=event.id).latest("number")
    receipts.issue(event, entry)
    begun = time.perf_counter()
    for _ in range(100):
        receipts.issue(event, entry)
    each = (time.perf_counter() - begun) / 100
    print(
        f"{event.slug:<10} {count:>9,} numbers: verified in {seconds:6.2f} s, the ledger beside it in {beside:5.2f} s, "
        f"{memory:4.0f} MiB at the peak; {pages} answers, {sent / 2**20:.0f} MiB, the slowest {slowest * 1000:.0f} ms; "
        f"a receipt {each * 1000:.1f} ms",
        flush=True,
    )


def _forget_peak() -> float:
    """The memory of this process now, MiB; from here on its peak is counted anew."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    return _of_status("VmRSS")


def _of_status(name: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
