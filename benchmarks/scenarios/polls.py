"""What a status poll costs with few and with very many visitors waiting, and how much memory and disk they need.

    python -m benchmarks.scenarios.polls [--sizes 1000,100000,2000000] [--rounds 41] [--polls 500] [--http-polls 100]

The queues of all sizes exist in one database, and each round measures each of them in a new random order, so that a
slow machine slows all. A poll is measured in blocks, as the service does it (verify the token, make the response), with
the snapshot that a process caches for a tenth of a second; with the cache cleared before every poll, so that the
snapshot is read from Redis, or from PostgreSQL when Redis is not available; and over HTTP through the whole site
(middleware, view, JSON) in this process. Reading the entry from PostgreSQL is measured too. Medians of the rounds.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.support.rooms import make_full_room, start_servers, vacuum_tables

TOKENS = 200
"""The number of visitors who poll in turn."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,100000,2000000")
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--polls", type=int, default=500, help="per round and size, by the service")
    parser.add_argument("--http-polls", type=int, default=100, help="per round and size, in every other way")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    with start_servers():
        measure(sizes, options.rounds, options.polls, options.http_polls)


def measure(sizes: list[int], rounds: int, polls: int, http_polls: int) -> None:
    from django.db import connection
    from django.test import Client

    from apps.kernel import redis
    from apps.queue.identity.caller import issue_queue_token
    from apps.queue.models import QueueEntry
    from apps.queue.snapshot import room_snapshot

    client = redis.client()
    used = int(client.info("memory")["used_memory"])
    before = table_bytes()
    names = ("service", "snapshot from Redis", "without Redis", "HTTP", "from PostgreSQL")
    ways: dict[str, dict[int, Callable[[], None]]] = {name: {} for name in names}
    for size in sizes:
        event = make_full_room(f"queue-{size}", size)
        numbers = random.Random(size).choices(range(size // 2, size + 1), k=TOKENS)  # noqa: S311
        entries = QueueEntry.objects.filter(event_id=event.id, number__in=numbers).values_list("id", "number")
        tokens = [issue_queue_token(entry_id, event.slug, number) for entry_id, number in entries]
        ways["service"][size] = by_service(event, tokens, polls)
        ways["snapshot from Redis"][size] = without_cache(event, tokens, http_polls, has_redis=True)
        ways["without Redis"][size] = without_cache(event, tokens, http_polls, has_redis=False)
        ways["HTTP"][size] = over_http(Client(SERVER_NAME="localhost"), event.slug, tokens, http_polls)
        ways["from PostgreSQL"][size] = from_postgres(event, [entry_id for entry_id, _ in entries], http_polls)
    vacuum_tables()
    after = table_bytes()
    counts = {name: polls if name == "service" else http_polls for name in names}
    order = random.Random(1)  # noqa: S311
    for way, acts in ways.items():
        wall: dict[int, list[float]] = {size: [] for size in sizes}
        cpu: dict[int, list[float]] = {size: [] for size in sizes}
        for act in acts.values():
            act()
        for _ in range(rounds):
            for size, act in order.sample(sorted(acts.items()), len(acts)):
                begun, begun_cpu = time.perf_counter(), time.process_time()
                act()
                wall[size].append((time.perf_counter() - begun) / counts[way] * 1e6)
                cpu[size].append((time.process_time() - begun_cpu) / counts[way] * 1e6)
        for size in sizes:
            figures = f"{statistics.median(wall[size]):8.1f} µs a poll, {statistics.median(cpu[size]):8.1f} µs of CPU"
            print(f"{way:<19} {size:>9,} waiting {figures}")
        medians = [[statistics.median(rounds_of) for rounds_of in of.values()] for of in (wall, cpu)]
        ratios = [max(of) / min(of) for of in medians]
        print(f"{way:<19} largest to smallest median: {ratios[0]:.2f}, of CPU {ratios[1]:.2f}", flush=True)
    largest = sizes[-1]
    room_snapshot.COPY_TTL_MS = 60_000  # Keep the copy until its size has been read.
    snapshots = room_snapshot.copy_to_redis([event_of(size) for size in sizes])
    value = client.memory_usage(room_snapshot.key(event_of(largest)))
    shown = max(snapshots, key=lambda snapshot: snapshot.next_number)
    grown = int(client.info("memory")["used_memory"]) - used
    print(
        f"Redis for {largest:,} waiting: {value:,} bytes, of which the snapshot {len(room_snapshot.encode(shown)):,};"
    )
    print(f"  the whole server grew by {grown:,} bytes for all rooms")
    people = sum(sizes)
    print(f"PostgreSQL per waiting person: {sum(after.values()) - sum(before.values()):,} bytes for {people:,}:")
    for name, size_bytes in sorted(after.items(), key=lambda item: -item[1]):
        print(f"  {name:<40} {(size_bytes - before.get(name, 0)) / people:7.1f} bytes")
    connection.close()


def event_of(size: int) -> int:
    from apps.events import facade as events

    return events.get_event(f"queue-{size}").id


def without_cache(event: Any, tokens: list[str], polls: int, *, has_redis: bool) -> Callable[[], None]:
    from apps.queue.snapshot import room_snapshot

    one_poll = by_service(event, tokens, 1)

    def act() -> None:
        fresh, room_snapshot.COPY_FRESH_SECONDS = room_snapshot.COPY_FRESH_SECONDS, 60.0 if has_redis else 0.0
        kept, room_snapshot.COPY_TTL_MS = room_snapshot.COPY_TTL_MS, 60_000
        room_snapshot.copy_to_redis([event.id])
        for _ in range(polls):
            room_snapshot._cache.clear()
            one_poll()
        room_snapshot.COPY_FRESH_SECONDS, room_snapshot.COPY_TTL_MS = fresh, kept

    return act


def by_service(event: Any, tokens: list[str], polls: int) -> Callable[[], None]:
    from django.test import RequestFactory

    from apps.events import facade as events
    from apps.queue.identity.caller import Caller, authenticate
    from apps.queue.serializers import status_answer
    from apps.queue.status import status

    requests = [RequestFactory().get("/", headers={"authorization": f"Bearer {token}"}) for token in tokens]

    def act() -> None:
        for number in range(polls):
            found = events.read_cached_event(event.slug)
            position = status.get_status(found, authenticate(requests[number % len(requests)], found.slug))
            assert position is not None
            assert status_answer(found, position, Caller())["status"] == "waiting"

    return act


def over_http(client: Any, slug: str, tokens: list[str], polls: int) -> Callable[[], None]:
    def act() -> None:
        for number in range(polls):
            header = {"authorization": f"Bearer {tokens[number % len(tokens)]}"}
            assert client.get(f"/api/events/{slug}/queue/status", headers=header).status_code == 200

    return act


def from_postgres(event: Any, entry_ids: list[Any], polls: int) -> Callable[[], None]:
    from apps.queue import facade
    from apps.queue.status import status

    def act() -> None:
        for number in range(polls):
            position = status.get_status(event, facade.Caller(entry_id=entry_ids[number % len(entry_ids)]))
            assert position is not None
            assert position.estimate.status == "waiting"

    return act


def table_bytes() -> dict[str, int]:
    """Return the bytes of the table of queue entries and of each of its indexes."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 'the table', pg_table_size('queue_queueentry') UNION ALL "
            "SELECT indexrelid::regclass::text, pg_relation_size(indexrelid) FROM pg_index "
            "WHERE indrelid = 'queue_queueentry'::regclass"
        )
        return dict(cursor.fetchall())


if __name__ == "__main__":
    main()
