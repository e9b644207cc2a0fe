"""Reports of views: how many a second `web` accepts, alone and beside status polls, and what a view costs afterwards.

    python -m benchmarks.experiments.discovery.event_views [--seconds 5] [--views 20000,200000]

Starts a PostgreSQL server that would survive a power cut, Valkey and `web` with two processes, and removes them
afterwards. wrk (which shares the machine) sends reports of many visitors from one exempt address, with different
user agents, for as long as given. All that were accepted must be in the log afterwards.

Then logs of the given sizes, each of five minutes, are written and counted window by window: the time for each view,
and the ratio between the sizes. A recount must find no difference.
"""

import argparse
import itertools
import os
import random
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.suite.load import raw_requests, wrk
from benchmarks.suite.systems import CHECKOUT, RATE_LIMIT_SETTINGS, command_of
from benchmarks.support.rooms import make_full_room, start_servers
from ticketing.devserver.ports import free_port

CONNECTIONS = 64
READY_SECONDS_MAX = 60
WRITTEN_SECONDS_MAX = 60
PERSONS = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--views", default="20000,200000")
    options = parser.parse_args()
    with start_servers(durable=True):
        event = make_full_room("line", 1_000)
        print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
        accept(event, options.seconds)
        count([int(size) for size in options.views.split(",")])


def accept(event: Any, seconds: int) -> None:
    """Measure the reports of views that `web` accepts, alone and one for each poll."""
    program = shutil.which("wrk")
    assert program is not None, "install wrk"
    views, polls = list(requests()), raw_requests.polls(tokens(event, 1_000))
    mixed = list(itertools.chain.from_iterable(zip(views, itertools.cycle(polls), strict=False)))
    with web() as port:
        wrk.send(program, port, views, connections=CONNECTIONS, seconds=1, again=True)
        wait_until_written()
        for name, list_of_requests, share in (("views", views, 1.0), ("views and polls", mixed, 0.5)):
            before = logged()
            flow = wrk.send(program, port, list_of_requests, connections=CONNECTIONS, seconds=seconds, again=True)
            begun = time.perf_counter()
            written = wait_until_written() - before
            behind = time.perf_counter() - begun
            sent = flow.responses * share
            print(
                f"{name}: {flow.good_rate:,.0f} requests/s, {flow.good_rate * share:,.0f} of them views; p50 "
                f"{flow.p50_ms:.1f} ms, p99 {flow.p99_ms:.1f} ms; refused {flow.refused}; {written:,} of about "
                f"{sent:,.0f} views logged, the last {behind:.1f} s after the end; wrk took "
                f"{flow.generator_share:.0%} of a processor"
            )


def requests() -> Iterator[bytes]:
    for number in range(PERSONS):
        body = f'{{"seconds":{10 + number % 90},"referrer":"site-{number % 20}.example"}}'
        head = f"POST /api/events/line/views HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Mozilla/5.0 {number}\r\n"
        yield f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def tokens(event: Any, number: int) -> list[str]:
    from apps.queue.identity.caller import issue_queue_token
    from apps.queue.models import QueueEntry

    rows = QueueEntry.objects.filter(event_id=event.id).order_by("number").values_list("pk", "number")[:number]
    return [issue_queue_token(str(pk), event.slug, position) for pk, position in rows]


def logged() -> int:
    from apps.events.models import ViewLog

    return ViewLog.objects.count()


def wait_until_written() -> int:
    """Return the number of logged views once it has not changed for half a second."""
    deadline, last, since = time.monotonic() + WRITTEN_SECONDS_MAX, -1, time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - since < 0.5:
        found = logged()
        if found != last:
            last, since = found, time.monotonic()
        time.sleep(0.05)
    return last


@contextmanager
def web() -> Iterator[int]:
    """Run two processes of `web`, and yield their port."""
    port = free_port()
    environment = {
        **os.environ, **RATE_LIMIT_SETTINGS, "PORT": str(port), "WEB_WORKERS": "2", "SITE_URL": f"http://127.0.0.1:{port}",
        "ACCESS_LOG_SAMPLE": "0", "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
    }  # fmt: skip
    process = subprocess.Popen(
        ["/bin/sh", "-c", command_of("web")], cwd=CHECKOUT, env=environment, start_new_session=True
    )
    try:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5):
                    break
            except OSError:
                time.sleep(0.2)
        yield port
    finally:
        os.killpg(process.pid, 15)
        process.wait(30)


def count(sizes: list[int]) -> None:
    """Measure the time that a view takes from the log to the counts, for logs of these sizes."""
    from apps.events.interest import counts, recount
    from apps.events.interest.log import SHARDS
    from apps.events.models import ViewCursor, ViewDay, ViewMinute, ViewReferrer, ViewShard
    from apps.kernel import clock

    costs = []
    for size in sizes:
        for model in (ViewCursor, ViewDay, ViewMinute, ViewReferrer):
            model.objects.all()._raw_delete(using="default")
        write_log(size)
        begun = time.perf_counter()
        counted = sum(count_shard(counts, shard) for shard in range(SHARDS))
        costs.append((time.perf_counter() - begun) / counted)
        assert counted == sum(ViewShard.objects.values_list("last_position", flat=True)) == size
        now = clock.now().replace(minute=0, second=0, microsecond=0)
        differing = recount.recount(now - timedelta(hours=1), now + timedelta(hours=1))
        assert differing == [], differing[:3]
        print(f"{size:,} views of five minutes: {costs[-1] * 1e6:.1f} µs each, and no difference in a recount")
    print(f"growth of the cost from {sizes[0]:,} to {sizes[-1]:,}: {costs[-1] / costs[0]:.2f}")


def count_shard(counts: Any, shard: int) -> int:
    found = 0
    while size := counts.count_window(shard):
        found += size
    return found


def write_log(size: int) -> None:
    """Write a log of views of 100 events within the last five minutes, by as many persons as half of the views."""
    from apps.events.interest import log, rules
    from apps.events.models import ViewLog, ViewShard
    from apps.kernel import clock
    from apps.kernel.db import transactions

    now = clock.now()
    ViewLog.objects.all()._raw_delete(using="default")
    ViewShard.objects.all()._raw_delete(using="default")
    with transactions.write_on_django() as cursor:
        log.add_partitions(cursor, [now.date() - timedelta(days=1), now.date()])
    rules_id, chosen = rules.read_rules().id, random.Random(7)  # noqa: S311 - no secret
    ends: dict[int, int] = {}
    rows = []
    for number in range(size):
        person = chosen.randrange(size // 2)
        shard = log.shard_of(person)
        ends[shard] = ends.get(shard, 0) + 1
        at = now - timedelta(seconds=300) + timedelta(seconds=300 * number / size)
        rows.append(
            ViewLog(
                shard=shard, at=at, position=ends[shard], event_id=1 + person % 100, person=person, address=person,
                seconds=chosen.choice((5, 10, 60)), is_staff=False, is_bot=False, rules_id=rules_id,
                referrer=f"site-{person % 20}.example",
            )
        )  # fmt: skip
    ViewLog.objects.bulk_create(rows, batch_size=2_000)
    ViewShard.objects.bulk_create(
        [ViewShard(shard=shard, last_position=end, last_at=now) for shard, end in ends.items()]
    )


if __name__ == "__main__":
    main()
