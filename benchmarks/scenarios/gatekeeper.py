"""Two thousand admissions a second within the limits: real ticks over a queue of 200,000 while admissions end.

    python -m benchmarks.scenarios.gatekeeper [--waiting 200000] [--seconds 10]

The gatekeeper's loop leads and ticks every 250 ms of the real clock. Another process ends each admission after a stay,
as completed orders do, and repeatedly counts the active admissions. There is one room each in which the rate limits,
in which the number of active admissions limits, and a slow one whose ticks need as many statements. The exit status is
1 if a limit was exceeded.
"""

import argparse
import math
import multiprocessing
import os
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from benchmarks.support.rooms import make_full_room, start_servers, vacuum_tables

STAY_SECONDS = 2.0
SHOP_SECONDS = 0.05
"""The seconds between two rounds of the process that ends admissions."""
END_SECONDS_MAX = 30

_END_STAYS = """
WITH done AS (
    SELECT id FROM queue_queueentry
    WHERE event_id = %(event_id)s AND status = 'ready'
      AND ready_at <= clock_timestamp() - make_interval(secs => %(stay)s)
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE queue_queueentry AS entry SET status = 'completed', ended_at = clock_timestamp()
FROM done WHERE entry.id = done.id
"""
_COUNT_ACTIVE = "SELECT count(*) FROM queue_queueentry WHERE event_id = %(event_id)s AND status = 'ready'"
# Admissions after the first batch and their seconds; the most in any second that starts with a batch; the most active.
_RECORD = """
SELECT sum(batch.count) FILTER (WHERE batch.at > first.at),
       extract(epoch FROM max(batch.at) - first.at)::float8,
       max((SELECT sum(later.count) FROM queue_admissionbatch AS later
            WHERE later.event_id = %(event_id)s AND later.at >= batch.at AND later.at < batch.at + interval '1 s')),
       max(batch.active_count)
FROM queue_admissionbatch AS batch
CROSS JOIN (SELECT min(at) AS at FROM queue_admissionbatch WHERE event_id = %(event_id)s) AS first
WHERE batch.event_id = %(event_id)s
GROUP BY first.at
"""


@dataclass
class Ticks:
    """The seconds of each tick that admitted visitors, and its statements by their first words."""

    seconds: list[float] = field(default_factory=list)
    statements: list[Counter[str]] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    with start_servers() as servers:
        assert servers.postgres is not None
        url = servers.postgres.url()
        passed = [
            measure(url, slug, rate, active, options.waiting, options.seconds)
            for slug, rate, active in (("by-rate", 2_000, 5_000), ("by-cap", 2_000, 3_000), ("slow", 10, 500))
        ]
        with psycopg.connect(url) as connection:
            size, count = connection.execute(
                "SELECT pg_total_relation_size('queue_admissionbatch'), (SELECT count(*) FROM queue_admissionbatch)"
            ).fetchone() or (0, 1)
    print(f"{count} batches on record; {size / count:,.0f} bytes each, indexes included")
    print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")
    return int(any(passed))


def measure(url: str, slug: str, rate: int, active: int, waiting: int, seconds: float) -> bool:
    """Run one room; return whether a limit was exceeded."""
    from django.db import connection

    from apps.queue.models import WaitingRoom
    from apps.queue.room import gatekeeper
    from apps.queue.room.admission import burst

    event = make_full_room(slug, waiting)
    vacuum_tables()
    # The lowest rate equals the rate: the site's health must not reduce it during the measurement.
    WaitingRoom.objects.filter(event_id=event.id).update(rate_per_second=rate, rate_floor=rate, active_max=active)
    stopping = threading.Event()
    with shoppers(url, event.id) as most_active, measured_ticks() as ticks:
        loop = threading.Thread(target=gatekeeper.loop, args=(stopping,))
        loop.start()
        time.sleep(seconds)
        stopping.set()
        loop.join(END_SECONDS_MAX)
    WaitingRoom.objects.filter(event_id=event.id).update(state="paused")
    with connection.cursor() as cursor:
        cursor.execute(_RECORD, {"event_id": event.id})
        admitted, lasted, most_a_second, most_recorded = cursor.fetchone()
    allowed = rate + burst(rate)
    statements = Counter(sum(one.values()) for one in ticks.statements)
    updates = Counter(one["WITH ahead"] for one in ticks.statements)
    centiles = statistics.quantiles(ticks.seconds, n=100) if len(ticks.seconds) > 1 else ticks.seconds * 99
    print(
        f"{slug}: rate {rate:,}/s, limit {active:,}: {admitted / lasted:,.0f} admitted a second over {lasted:.1f} s; "
        f"at most {most_a_second:,} in a second of {allowed:,.0f}; "
        f"at most {max(most_recorded, most_active.value):,} active of {active:,} "
        f"({most_active.value:,} counted outside)\n"
        f"{slug}: {len(ticks.seconds)} ticks with admissions: p50 {centiles[49] * 1_000:.1f} ms, "
        f"p99 {centiles[98] * 1_000:.1f} ms; statements each {dict(statements)}, range UPDATEs each {dict(updates)}",
        flush=True,
    )
    return most_a_second > math.ceil(allowed) or max(most_recorded, most_active.value) > active


@contextmanager
def measured_ticks() -> Iterator[Ticks]:
    """Measure every tick with admissions while the block runs."""
    from django.db import connection

    from apps.queue.room import admission

    ticks, tick = Ticks(), admission.tick

    def timed(event_id: int, epoch: int) -> int:
        sent: Counter[str] = Counter()

        def count(execute: Any, sql: str, *rest: Any) -> Any:
            lines = [line for line in sql.splitlines() if not line.startswith("--")]
            sent[" ".join(lines[0].split()[:2])] += 1
            return execute(sql, *rest)

        begun = time.perf_counter()
        with connection.execute_wrapper(count):
            admitted = tick(event_id, epoch)
        if admitted:
            ticks.seconds.append(time.perf_counter() - begun)
            ticks.statements.append(sent)
        return admitted

    admission.tick = timed
    try:
        yield ticks
    finally:
        admission.tick = tick


@contextmanager
def shoppers(url: str, event_id: int) -> Iterator[Any]:
    """Run a process in which each admission ends after a stay; yield the most active admissions that it has counted."""
    spawn = multiprocessing.get_context("spawn")
    stopping, most_active = spawn.Event(), spawn.Value("i", 0)
    process = spawn.Process(target=shop, args=(url, event_id, stopping, most_active), daemon=True)
    process.start()
    try:
        yield most_active
    finally:
        stopping.set()
        process.join(END_SECONDS_MAX)


def shop(url: str, event_id: int, stopping: Any, most_active: Any) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        while not stopping.wait(SHOP_SECONDS):
            ((count,),) = connection.execute(_COUNT_ACTIVE, {"event_id": event_id}).fetchall()
            most_active.value = max(most_active.value, count)
            connection.execute(_END_STAYS, {"event_id": event_id, "stay": STAY_SECONDS})


if __name__ == "__main__":
    sys.exit(main())
