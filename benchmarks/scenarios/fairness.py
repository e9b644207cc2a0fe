"""How long it takes to publish and verify a queue of a million, in order of arrival and drawn, and to issue receipts.

    python -m benchmarks.scenarios.fairness [--entries 1000000]

Starts a PostgreSQL server and removes it afterwards. Each room is verified as `manage.py verify_queue` does it: page by
page through the function that serves the pages, with JSON encoded and decoded as over HTTP. Memory is the peak of the
process above its use before.
"""

import argparse
import gc
import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

from tests.support.servers import temporary_server_folder
from ticketing.devserver import postgres
from ticketing.devserver.servers import new_password

COPY_ENTRIES = (
    "COPY queue_queueentry (id, event_id, number, in_lobby, nonce, marked, visitor_id, status, joined_at) FROM STDIN"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=1_000_000)
    options = parser.parse_args()
    folder, end = temporary_server_folder()
    try:
        cluster = postgres.start(folder, password=new_password(), superuser_password=new_password())
        os.environ["DATABASE_URL"] = cluster.url()
        os.environ["DATABASE_STATEMENT_TIMEOUT_MS"] = "600000"
        os.environ.setdefault("SECRET_KEY", "public-key-of-all-benchmarks-never-use-elsewhere")
        os.environ["DJANGO_SETTINGS_MODULE"] = "ticketing.settings"
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        measure(options.entries)
    finally:
        end()


def measure(count: int) -> None:
    from tests.support.queue.rooms import make_room

    first_come = make_room("first-come")
    _fill_queue(first_come, count)
    _measure_room(first_come, count)
    drawn = make_room("drawn", venue="Elsewhere")
    _draw(drawn, count)
    _measure_room(drawn, count)


def _new_entries(count: int) -> list[tuple[bytes, uuid.UUID, bytes]]:
    """Return leaf, id and nonce of `count` entries."""
    from apps.queue import proofs

    entries = [(uuid.uuid4(), os.urandom(16)) for _ in range(count)]
    return [(proofs.leaf(entry_id, nonce), entry_id, nonce) for entry_id, nonce in entries]


def _fill_queue(event: Any, count: int) -> None:
    from apps.queue import proofs
    from apps.queue.models import WaitingRoom

    entries = _new_entries(count)
    chain = proofs.genesis(event.slug)
    for number, (leaf, _, _) in enumerate(entries, 1):
        chain = proofs.link(chain, number, leaf)
    _write(event, entries, in_lobby=False)
    WaitingRoom.objects.filter(event_id=event.id).update(state="open", next_number=count + 1, chain_head=chain)


def _draw(event: Any, count: int) -> None:
    """Draw as Fairgate does, in as few statements as possible."""
    from django.db import connection

    from apps.kernel import clock
    from apps.queue import proofs
    from apps.queue.models import Draw, WaitingRoom
    from tests.support.queue.proven_rooms import open_lobby, reveal

    open_lobby(event, 0)
    entries = _new_entries(count)
    now = clock.now()
    digest = proofs.digest_of(leaf for leaf, _, _ in entries)
    Draw.objects.filter(event_id=event.id).update(frozen_at=now, digest_at=now, digest=digest)
    seed = bytes(reveal(event).seed or b"")
    entries.sort(key=lambda entry: (proofs.draw_key(seed, entry[0]), entry[0]))
    _write(event, entries, in_lobby=True)
    copying = "COPY queue_drawnplace (event_id, number, entry_id) FROM STDIN"
    with connection.cursor() as cursor, cursor.copy(copying) as copy:
        for number, (_, entry_id, _) in enumerate(entries, 1):
            copy.write_row((event.id, number, entry_id))
    now = clock.now()
    Draw.objects.filter(event_id=event.id).update(drawn_at=now, numbered_at=now)
    WaitingRoom.objects.filter(event_id=event.id).update(state="open", lobby_count=count, next_number=count + 1)


def _write(event: Any, entries: list[tuple[bytes, uuid.UUID, bytes]], *, in_lobby: bool) -> None:
    from django.db import connection

    from apps.kernel import clock

    now = clock.now()
    with connection.cursor() as cursor:
        with cursor.copy(COPY_ENTRIES) as copy:
            for number, (_, entry_id, nonce) in enumerate(entries, 1):
                copy.write_row((entry_id, event.id, number, in_lobby, nonce, "", f"visitor-{number}", "waiting", now))
        cursor.execute("ANALYZE queue_queueentry")


def _measure_room(event: Any, count: int) -> None:
    from apps.queue.fairness import published, receipts, stored, verification
    from apps.queue.models import QueueEntry

    sent = pages = 0
    slowest = 0.0

    def transfer(make: Any) -> Any:
        nonlocal sent, pages, slowest
        begun = time.perf_counter()
        text = json.dumps(make(), separators=(",", ":"))
        slowest = max(slowest, time.perf_counter() - begun)
        sent, pages = sent + len(text), pages + 1
        return json.loads(text)

    before = _reset_peak()
    begun = time.perf_counter()
    document = transfer(lambda: published.document(event))
    outcome = verification.verify(
        document, lambda part, after: transfer(lambda: published.page(event, part, after).body)
    )
    seconds = time.perf_counter() - begun
    assert isinstance(outcome, verification.Verified), outcome
    memory = _of_status("VmHWM") - before
    begun = time.perf_counter()
    assert stored.check(event.id) is None
    stored_seconds = time.perf_counter() - begun
    entry = QueueEntry.objects.filter(event_id=event.id).latest("number")
    receipts.issue(event, entry)
    begun = time.perf_counter()
    for _ in range(100):
        receipts.issue(event, entry)
    each = (time.perf_counter() - begun) / 100
    print(
        f"{event.slug:<10} {count:>9,} numbers: verified in {seconds:6.2f} s, the stored queue in "
        f"{stored_seconds:5.2f} s, "
        f"{memory:4.0f} MiB at the peak; {pages} responses, {sent / 2**20:.0f} MiB, "
        f"the slowest {slowest * 1000:.0f} ms; "
        f"one receipt {each * 1000:.1f} ms",
        flush=True,
    )


def _reset_peak() -> float:
    """Return the memory of this process in MiB and start a new measurement of its peak."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    return _of_status("VmRSS")


def _of_status(name: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
