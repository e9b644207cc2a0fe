"""The time from the loss of Redis until its copy is restored, with a million waiting and every position unchanged.

    python -m benchmarks.scenarios.rebuild [--waiting 1000000] [--rounds 5] [--asked 5000]

Each round loses Redis in four ways and measures how long its copy is missing:

- flushed, and rebuilt by hand (`rebuild_queue`), with a digest of the order in PostgreSQL before and after;
- flushed, and restored by the next poll;
- killed and restarted empty, and restored by the next poll;
- for comparison, the design of the source document: a sorted set with a member for each waiting visitor, filled from
  the same rows in pipelines of 10,000, the minimum that a replay would do.

Before the loss, while the server is down, and after it, the same visitors request their positions with their tokens:
all responses must be the same. The figures are medians of the rounds.
"""

import argparse
import os
import signal
import statistics
import time
from typing import Any

from benchmarks.support.rooms import make_full_room, start_servers, vacuum_tables
from ticketing.devserver import valkey
from ticketing.devserver.valkey import Valkey

PIPELINE = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--asked", type=int, default=5_000, help="visitors who request their positions")
    options = parser.parse_args()
    with start_servers(durable=True) as servers:
        assert servers.valkey is not None
        measure(servers.valkey, options.waiting, options.rounds, options.asked)


def measure(server: Valkey, waiting: int, rounds: int, asked: int) -> None:
    from apps.kernel import redis
    from apps.queue.facade import Caller
    from apps.queue.models import QueueEntry, WaitingRoom
    from apps.queue.snapshot import rebuild, room_snapshot

    event = make_full_room("large-queue", waiting)
    vacuum_tables()
    head = waiting // 10
    WaitingRoom.objects.filter(event_id=event.id).update(head=head)
    chosen = range(head + 1, waiting + 1, max(1, (waiting - head) // asked))
    rows = QueueEntry.objects.filter(event_id=event.id, number__in=chosen).order_by("number")
    callers = [Caller(entry_id=id_, in_line=True, number=number) for id_, number in rows.values_list("id", "number")]
    took: dict[str, list[float]] = {}
    orders, seen = set(), set()

    def record_time(label: str, begun: float) -> None:
        took.setdefault(label, []).append(time.perf_counter() - begun)

    def restore(label: str, begun: float) -> None:
        room_snapshot.get_snapshot(event.id)
        record_time(label, begun)
        assert redis.client().exists(room_snapshot.key(event.id))

    for _ in range(rounds):
        room_snapshot.copy_to_redis([event.id])
        seen.add(positions(event, callers))

        redis.client().flushall()
        done = rebuild.rebuild(event.id)
        took.setdefault("flushed, rebuilt by hand", []).append(done.seconds)
        took.setdefault("  digest of the order, before and after", []).append(done.checking_seconds)
        orders |= {done.before, done.after}
        seen.add(positions(event, callers))

        redis.client().flushall()
        room_snapshot._cache.clear()
        restore("flushed, restored by the next poll", time.perf_counter())
        seen.add(positions(event, callers))

        os.kill(server.pid, signal.SIGKILL)
        room_snapshot._cache.clear()
        begun = time.perf_counter()
        room_snapshot.get_snapshot(event.id)
        record_time("killed: the first poll without it", begun)
        seen.add(positions(event, callers))
        begun = time.perf_counter()
        server = valkey.start(server.place, password=server.password, preferred_port=server.port)
        record_time("  restarted, empty", begun)
        redis.forget_outage()  # Skip the second in which a process does not use Redis after an outage.
        room_snapshot._cache.clear()
        restore("  restored by the next poll", time.perf_counter())
        seen.add(positions(event, callers))

        begun = time.perf_counter()
        assert sorted_set(event.id) == waiting
        record_time("the source's sorted set, filled again", begun)
        redis.client().delete("sorted-set")
    (order,) = orders
    (constant,) = seen
    print(f"{waiting:,} waiting: {order.entry_count:,} entries in the same order in every round: {order.digest[:16]}…")
    print(f"{len(constant):,} visitors asked {rounds * 5} times, before, during and after: every response the same")
    for label, seconds in took.items():
        print(f"{label:<40} {statistics.median(seconds) * 1_000:10.1f} ms, worst {max(seconds) * 1_000:10.1f} ms")


def positions(event: Any, callers: list[Any]) -> tuple[int | None, ...]:
    """Return the positions that these visitors get from a process with empty caches."""
    from apps.kernel.fastpath import cache
    from apps.queue.status import status

    cache.clear_all()
    statuses = [status.get_status(event, caller) for caller in callers]
    return tuple(one.estimate.ahead for one in statuses if one is not None)


def sorted_set(event_id: int) -> int:
    """Fill the sorted set of the source document from the same rows; return how many members it has."""
    from django.db import connection

    from apps.kernel import redis

    client = redis.client()
    with connection.cursor() as cursor:
        query = "COPY (SELECT number, id FROM queue_queueentry WHERE event_id = %s AND status = 'waiting') TO STDOUT"
        pipeline: dict[bytes, bytes] = {}
        with cursor.copy(query, [event_id]) as copy:
            for line in copy:
                for row in bytes(line).splitlines():
                    number, _, entry_id = row.partition(b"\t")
                    pipeline[entry_id] = number
                if len(pipeline) >= PIPELINE:
                    client.zadd("sorted-set", pipeline)  # type: ignore[arg-type]
                    pipeline = {}
        if pipeline:
            client.zadd("sorted-set", pipeline)  # type: ignore[arg-type]
    return int(client.zcard("sorted-set"))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
