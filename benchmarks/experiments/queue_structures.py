"""Five ways to store a queue, compared in one run: the four of the source document, and Fairgate's.

    python -m benchmarks.experiments.queue_structures [--sizes 10000,1000000] [--rounds 5] [--callers 32]

Starts a PostgreSQL server that would survive a power cut (fsync and synchronous_commit on) and a Valkey server, and
removes both afterwards. Every structure is first filled to the size. The rounds then measure all of them in turn, so
that a slow machine slows all; the table has the medians of the rounds.

- sorted set: INCR and ZADD; the source's script for a position; ZPOPMIN.
- list + hash: INCR, HSET and RPUSH; the same script over the hash; LPOP and one DEL.
- database queue: one row per visitor, each committed alone; a position is counted; admission changes the row's status.
- in memory: an ordered dictionary in one process; a position is a subtraction.
- ours: `join` as a request calls it (committed in groups), all of a poll except HTTP (verify the token, find the
  position in the snapshot), the gatekeeper's tick.

The first two and the fourth lose everything when their process ends, and two joins of one visitor get two positions.
"""

import argparse
import os
import statistics
import sys
import threading
import time
import tracemalloc
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from django.http import HttpRequest

from tests.support.servers import temporary_server_folder
from ticketing.devserver import postgres, valkey
from ticketing.devserver.servers import new_password

ADMIT = 1_000
CALLS_MAX = 1_000
CALLS_SECONDS_MAX = 1.0
FILL_CHUNK = 10_000
POSITION = """
local user_seq = redis.call(ARGV[1] == 'z' and 'ZSCORE' or 'HGET', KEYS[1], ARGV[1] == 'z' and ARGV[2] or 'seq')
if not user_seq then return redis.error_reply('User not in queue') end
return tonumber(user_seq) - tonumber(redis.call('GET', KEYS[2]) or 0)
"""


class Structure(Protocol):
    name: str
    keeps: str
    """What remains of the queue after its server was killed."""

    def fill(self, size: int) -> None: ...
    def join(self) -> None: ...
    def position(self, number: int) -> int: ...
    def admit(self) -> int: ...
    def memory(self) -> str: ...


@dataclass
class Measured:
    """The results of one structure at one size, one of each kind per round."""

    join_us: list[float] = field(default_factory=list)
    joins_per_second: list[float] = field(default_factory=list)
    position_us: list[float] = field(default_factory=list)
    admit_ms: list[float] = field(default_factory=list)
    memory: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,1000000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--callers", type=int, default=32)
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    folder, end = temporary_server_folder()
    try:
        cluster = postgres.start(folder, password=new_password(), superuser_password=new_password())
        os.environ["DATABASE_URL"] = os.environ["DATABASE_DIRECT_URL"] = cluster.url()
        os.environ["REDIS_URL"] = valkey.start(folder, password=new_password()).url
        os.environ.setdefault("SECRET_KEY", "public-key-of-all-benchmarks-never-use-elsewhere")
        os.environ["DJANGO_SETTINGS_MODULE"] = "ticketing.settings"
        os.environ.setdefault("LOG_LEVEL", "WARNING")
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        for size in sizes:
            compare(size, options.rounds, options.callers)
    finally:
        end()


def compare(size: int, rounds: int, callers: int) -> None:
    """Measure all structures at this size and print the rows of the table."""
    structures: list[Structure] = [SortedSet(), ListAndHash(), DatabaseQueue(), InMemory(), Ours(f"queue-{size}")]
    for structure in structures:
        begun = time.perf_counter()
        structure.fill(size)
        print(f"# {structure.name}: {size:,} in {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    found = {structure.name: Measured(memory=structure.memory()) for structure in structures}
    for number in range(rounds):
        print(f"# {size:,}, round {number + 1}", file=sys.stderr)
        for structure in structures:
            one = found[structure.name]
            one.join_us.append(1e6 * mean_seconds([structure.join] * CALLS_MAX))
            one.joins_per_second.append(per_second(structure.join, callers, callers * 30))
            one.position_us.append(
                1e6 * mean_seconds([partial(structure.position, number) for number in sampled_numbers(size)])
            )
            one.admit_ms.append(1e3 * admitting_seconds(structure))
    print(
        "| queue | waiting | join, alone | joins/s, many callers | position | admit 1,000 | memory | kept after kill |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for structure in structures:
        one = found[structure.name]
        print(
            f"| {structure.name} | {size:,} | {micros(one.join_us)} | {statistics.median(one.joins_per_second):,.0f} "
            f"| {micros(one.position_us)} | {statistics.median(one.admit_ms):,.1f} ms | {one.memory} "
            f"| {structure.keeps} |"
        )


def micros(values: Sequence[float]) -> str:
    median = statistics.median(values)
    return f"{median / 1000:,.1f} ms" if median >= 1000 else f"{median:,.1f} µs"


def sampled_numbers(size: int) -> list[int]:
    """Return numbers spread over the second half of the queue, so that none of them is admitted during the run."""
    return [size // 2 + 1 + number * (size // 2 - 1) // CALLS_MAX for number in range(CALLS_MAX)]


def mean_seconds(calls: Iterable[Callable[[], Any]]) -> float:
    """Return the average seconds of these calls, or of as many as fit into CALLS_SECONDS_MAX."""
    begun, count = time.perf_counter(), 0
    for call in calls:
        call()
        count += 1
        if time.perf_counter() - begun > CALLS_SECONDS_MAX:
            break
    return (time.perf_counter() - begun) / count


def admitting_seconds(structure: Structure) -> float:
    begun = time.perf_counter()
    count = structure.admit()
    seconds = time.perf_counter() - begun
    assert count == ADMIT, f"{structure.name} admitted {count}"
    return seconds


def per_second(act: Callable[[], None], callers: int, calls: int) -> float:
    """Return the calls a second of `callers` threads that start together."""
    start = threading.Barrier(callers + 1)

    def work() -> None:
        from django.db import connections

        act()  # Warms up, for example opens the thread's connection.
        start.wait()
        for _ in range(calls // callers):
            act()
        connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(callers)]
    for thread in threads:
        thread.start()
    start.wait()
    begun = time.perf_counter()
    for thread in threads:
        thread.join()
    return calls / (time.perf_counter() - begun)


def megabytes(size: float, per: int) -> str:
    return f"{size / 1e6:,.1f} MB ({size / per:,.0f} B each)"


class _InRedis:
    """The common part of both structures in Valkey: a counter, a head, and the source's script for a position."""

    keeps = "nothing"
    prefix = ""

    def __init__(self) -> None:
        from redis import Redis

        self.redis = Redis.from_url(os.environ["REDIS_URL"], max_connections=64)
        self.script = self.redis.register_script(POSITION)
        self.sequence, self.head = f"{self.prefix}:seq", f"{self.prefix}:head"
        self.size = 0
        self.used = 0

    def fill(self, size: int) -> None:
        self.size = size
        stale = list(self.redis.scan_iter(f"{self.prefix}:*", count=10_000))
        for begin in range(0, len(stale), FILL_CHUNK):
            self.redis.delete(*stale[begin : begin + FILL_CHUNK])
        before = self.redis.info("memory")["used_memory"]
        for begin in range(1, size + 1, FILL_CHUNK):
            pipeline = self.redis.pipeline(transaction=False)
            for number in range(begin, min(begin + FILL_CHUNK, size + 1)):
                self.put(pipeline, f"u:{number:032d}", number)
            pipeline.execute()
        self.redis.set(self.sequence, size)
        self.redis.set(self.head, 0)
        self.used = self.redis.info("memory")["used_memory"] - before

    def join(self) -> None:
        number = self.redis.incr(self.sequence)
        pipeline = self.redis.pipeline(transaction=False)
        self.put(pipeline, f"u:{uuid.uuid4().hex}", number)
        pipeline.execute()

    def put(self, client: Any, user: str, number: int) -> None:
        raise NotImplementedError

    def memory(self) -> str:
        return megabytes(self.used, self.size)


class SortedSet(_InRedis):
    name = "sorted set"
    prefix = "q:z"

    def put(self, client: Any, user: str, number: int) -> None:
        client.zadd("q:z:entries", {user: number})

    def position(self, number: int) -> int:
        return int(self.script(keys=["q:z:entries", self.head], args=["z", f"u:{number:032d}"]))

    def admit(self) -> int:
        popped = self.redis.zpopmin("q:z:entries", ADMIT)
        self.redis.set(self.head, int(popped[-1][1]))
        return len(popped)


class ListAndHash(_InRedis):
    name = "list + hash"
    prefix = "q:l"

    def put(self, client: Any, user: str, number: int) -> None:
        client.hset(f"q:l:meta:{user}", "seq", number)
        client.rpush("q:l:entries", user)

    def position(self, number: int) -> int:
        return int(self.script(keys=[f"q:l:meta:u:{number:032d}", self.head], args=["h", ""]))

    def admit(self) -> int:
        popped = [user.decode() for user in self.redis.lpop("q:l:entries", ADMIT)]
        self.redis.set(self.head, int(self.redis.hget(f"q:l:meta:{popped[-1]}", "seq") or 0))
        self.redis.delete(*(f"q:l:meta:{user}" for user in popped))
        return len(popped)


class DatabaseQueue:
    name = "database queue"
    keeps = "everything"

    def __init__(self) -> None:
        from apps.kernel.db import pools

        self.pool = pools.create_pool("benchmark", size_max=40, connect_ms=60_000)
        self.pool.open()
        self.size = 0

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self.pool.connection() as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def fill(self, size: int) -> None:
        self.size = size
        self.run("DROP TABLE IF EXISTS queue_of_source")
        self.run(
            "CREATE TABLE queue_of_source (join_seq bigserial PRIMARY KEY, user_key text NOT NULL UNIQUE, "
            "status text NOT NULL DEFAULT 'waiting', joined_at timestamptz NOT NULL DEFAULT now())"
        )
        self.run(
            "INSERT INTO queue_of_source (user_key) "
            "SELECT 'u:' || lpad(i::text, 32, '0') FROM generate_series(1, %s) AS i",
            size,
        )
        self.run("CREATE INDEX ON queue_of_source (join_seq) WHERE status = 'waiting'")
        self.run("VACUUM ANALYZE queue_of_source")

    def join(self) -> None:
        self.run("INSERT INTO queue_of_source (user_key) VALUES (%s)", f"u:{uuid.uuid4().hex}")

    def position(self, number: int) -> int:
        ((count,),) = self.run(
            "SELECT count(*) FROM queue_of_source WHERE status = 'waiting' AND join_seq <= "
            "(SELECT join_seq FROM queue_of_source WHERE user_key = %s)",
            f"u:{number:032d}",
        )
        return int(count)

    def admit(self) -> int:
        return len(
            self.run(
                "UPDATE queue_of_source SET status = 'ready' WHERE join_seq IN (SELECT join_seq FROM queue_of_source "
                "WHERE status = 'waiting' ORDER BY join_seq LIMIT %s FOR NO KEY UPDATE SKIP LOCKED) RETURNING 1",
                ADMIT,
            )
        )

    def memory(self) -> str:
        ((size,),) = self.run("SELECT pg_total_relation_size('queue_of_source')")
        return megabytes(size, self.size) + " on disk"


class InMemory:
    name = "in memory"
    keeps = "nothing"

    def __init__(self) -> None:
        self.entries: OrderedDict[str, int] = OrderedDict()
        self.lock = threading.Lock()
        self.number = self.head = self.used = self.size = 0

    def fill(self, size: int) -> None:
        self.size = size
        tracemalloc.start()
        for number in range(1, size + 1):
            self.entries[f"u:{number:032d}"] = number
        self.number = size
        self.used = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()

    def join(self) -> None:
        user = f"u:{uuid.uuid4().hex}"
        with self.lock:
            self.number += 1
            self.entries[user] = self.number

    def position(self, number: int) -> int:
        return self.entries[f"u:{number:032d}"] - self.head

    def admit(self) -> int:
        with self.lock:
            popped = [self.entries.popitem(last=False) for _ in range(ADMIT)]
            self.head = popped[-1][1]
        return len(popped)

    def memory(self) -> str:
        return megabytes(self.used, self.size)


class Ours:
    name = "ours"
    keeps = "everything"

    def __init__(self, slug: str) -> None:
        self.slug = slug
        self.size = 0
        self.requests: dict[int, HttpRequest] = {}
        """By number: a poll of a visitor in the second half of the queue."""

    def fill(self, size: int) -> None:
        from django.db import connection

        from apps.queue.identity.caller import issue_queue_token
        from apps.queue.models import QueueEntry, WaitingRoom
        from tests.support.queue.rooms import make_room

        self.size = size
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM queue_queueentry")
            cursor.execute("VACUUM FULL queue_queueentry")
            self.event = make_room(self.slug, rows=0, general_admission=100_000, rate=2 * ADMIT, active=1_000_000)
            cursor.execute("SET statement_timeout = 0")
            cursor.execute(
                "INSERT INTO queue_queueentry (id, event_id, number, in_lobby, nonce, marked, visitor_id, status, "
                "joined_at) SELECT gen_random_uuid(), %s, i, false, uuid_send(gen_random_uuid()), '', "
                "'visitor-' || lpad(i::text, 16, '0'), 'waiting', now() FROM generate_series(1, %s) i",
                [self.event.id, size],
            )
            cursor.execute("VACUUM ANALYZE queue_queueentry")
        WaitingRoom.objects.filter(event_id=self.event.id).update(state="open", next_number=size + 1)
        entries = QueueEntry.objects.filter(event_id=self.event.id, number__in=sampled_numbers(size))
        for number, entry_id in entries.values_list("number", "id"):
            self.requests[number] = request = HttpRequest()
            request.META["HTTP_AUTHORIZATION"] = f"Bearer {issue_queue_token(entry_id, self.slug, number)}"

    def join(self) -> None:
        from apps.queue import facade

        facade.join(self.event, facade.Caller(visitor_id=facade.new_visitor_secret()))

    def position(self, number: int) -> int:
        from apps.queue.identity.caller import authenticate
        from apps.queue.status import status

        position = status.get_status(self.event, authenticate(self.requests[number], self.slug))
        assert position is not None
        assert position.entry is None, "the position must come from the snapshot"
        return position.estimate.ahead or 0

    def admit(self) -> int:
        from apps.queue.room import admission
        from tests.support.queue.rooms import EPOCH, backdate_tick

        backdate_tick(self.event, 3600)
        return admission.tick(self.event.id, EPOCH)

    def memory(self) -> str:
        from django.db import connection

        from apps.kernel import redis
        from apps.queue.snapshot import room_snapshot

        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_total_relation_size('queue_queueentry')")
            ((on_disk,),) = cursor.fetchall()
        room_snapshot.copy_to_redis([self.event.id])
        in_redis = redis.client().memory_usage(room_snapshot.key(self.event.id))
        return f"{megabytes(on_disk, self.size)} on disk, {in_redis:,} B in Redis"


if __name__ == "__main__":
    main()
