"""How fast the outbox delivers, compared with PostgreSQL's rate of the claim alone, and whether a backlog slows it.

    python -m benchmarks.scenarios.outbox [--messages 100000] [--deliverers 8] [--rounds 5] [--seconds 5] [--no-durable]

The handler does nothing, so only the claim, the delivery and the completion are measured, in one process like a worker.
The server is durable (fsync on) unless `--no-durable` is set. Each round delivers a backlog and then lets pgbench run
the same claim statement, one message in each transaction, with as many clients as there are deliverers. The ratio is
messages a second ÷ claims a second, the median of the rounds. Then a large backlog is delivered at once, and the time
of its last tenth is compared with that of the first. Finally messages of other keys are delivered, once alone and once
behind a backlog of one key whose first message is in progress. The exit status is 1 unless every message was delivered
exactly once.
"""

import argparse
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.support.rooms import start_servers

DRAIN_SECONDS_MAX = 1_800.0
TENTHS = 10
BESIDE_COUNT = 2_000
_FILL = """
INSERT INTO outbox_outboxmessage (topic, key, body, created_at, available_at, is_behind, attempts, last_error)
SELECT %(topic)s, CASE WHEN %(one_key)s THEN 'one' ELSE 'key-' || number END, '{"order": "benchmark"}',
       clock_timestamp(), clock_timestamp(), false, 0, ''
FROM generate_series(1, %(count)s::bigint) AS number
"""


class RecordingHandler:
    """A handler that records when each message arrives."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.at: list[float] = []
        self.ids: set[int] = set()

    def handle(self, message: Any) -> None:
        with self._lock:
            self.at.append(time.perf_counter())
            self.ids.add(message.id)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--deliverers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5, help="of pgbench in each round")
    parser.add_argument(
        "--durable", action=argparse.BooleanOptionalAction, default=True, help="fsync on, as in production"
    )
    options = parser.parse_args()
    with start_servers(durable=options.durable) as servers:
        run("SELECT set_config('statement_timeout', '0', false)")
        shares = [one_round(servers, options) for _ in range(options.rounds)]
        print(f"\nmedian: {statistics.median(shares):.2f} of pgbench's claims", flush=True)
        drain_in_one_go(options)
        beside_a_backlog(options)
    return 0


def one_round(servers: Any, options: argparse.Namespace) -> float:
    count = max(1, options.messages // 10)
    fill(count)
    began, handler = time.perf_counter(), drain(count, options.deliverers)
    delivered = count / (handler.at[-1] - began)
    fill(int(options.seconds * 20_000))
    claims = pgbench(servers, options)
    share = delivered / claims
    print(f"{delivered:,.0f} messages/s delivered | {claims:,.0f} claims/s by pgbench | {share:.2f}", flush=True)
    return share


def drain_in_one_go(options: argparse.Namespace) -> None:
    count = options.messages
    fill(count)
    began, handler = time.perf_counter(), drain(count, options.deliverers)
    marks = [began, *(handler.at[count * tenth // TENTHS - 1] for tenth in range(1, TENTHS + 1))]
    tenths = [after - before for before, after in itertools.pairwise(marks)]
    print(f"{count:,} in {marks[-1] - began:.1f} s; tenths: {' '.join(f'{one:.2f}' for one in tenths)} s")
    print(f"last tenth / first tenth: {tenths[-1] / tenths[0]:.2f}", flush=True)


def beside_a_backlog(options: argparse.Namespace) -> None:
    from apps.kernel.outbox import facade as outbox

    rates = []
    for backlog in (0, options.messages):
        run("TRUNCATE outbox_outboxmessage")
        outbox.register_handler("benchmark", print, timedelta(hours=1))
        if backlog:
            fill(backlog, one_key=True)
            assert len(outbox.claim(1)) == 1
            began = time.perf_counter()
            assert outbox.claim(1) == []
            print(f"{backlog:,} set aside behind one in {time.perf_counter() - began:.1f} s", flush=True)
        fill(BESIDE_COUNT, keep=True)
        began, handler = time.perf_counter(), drain(BESIDE_COUNT, options.deliverers)
        rates.append(BESIDE_COUNT / (handler.at[-1] - began))
    print(f"with {options.messages:,} of one key: {rates[1] / rates[0]:.2f} of the rate without", flush=True)


def drain(count: int, deliverers: int) -> RecordingHandler:
    from apps.kernel.outbox import facade as outbox
    from apps.kernel.outbox.delivery import Delivery

    handler, delivery = RecordingHandler(), Delivery(deliverers)
    outbox.register_handler("benchmark", handler.handle, timedelta(hours=1))
    delivery.wake()
    assert delivery.wait(DRAIN_SECONDS_MAX), "messages are still left"
    assert delivery.close(60)
    assert (len(handler.at), len(handler.ids)) == (count, count), (
        f"{len(handler.at)} deliveries of {len(handler.ids)} messages; {count} expected"
    )
    return handler


def fill(count: int, *, one_key: bool = False, keep: bool = False) -> None:
    if not keep:
        run("TRUNCATE outbox_outboxmessage")
    run(_FILL, topic="benchmark", count=count, one_key=one_key)
    run("VACUUM ANALYZE outbox_outboxmessage")


def pgbench(servers: Any, options: argparse.Namespace) -> float:
    """Return how many times a second pgbench runs the claim statement, one message each."""
    from django.db import connection

    from apps.kernel.outbox import facade as outbox

    with connection.cursor() as cursor:
        text = cursor.mogrify(
            outbox._claim.text,
            {
                "limit": 1, "window": outbox.WINDOW_MAX, "spare": 1 + outbox.SPARE_COUNT, "topics": ["benchmark"],
                "visibility": outbox.VISIBILITY, "visibilities": [timedelta(hours=1)], "allowances": [None],
            },
        )  # fmt: skip
    cluster = servers.postgres
    with tempfile.TemporaryDirectory(prefix="fairgate-pgbench-") as folder:
        script = Path(folder) / "claim.sql"
        script.write_text(f"{text};\n")
        done = subprocess.run(
            [
                cluster.place.postgres_bin / "pgbench", "-n", "-c", str(options.deliverers), "-j", "2",
                "-T", str(options.seconds), "-f", script, "-h", "127.0.0.1", "-p", str(cluster.port), "-U", "postgres",
                connection.settings_dict["NAME"],
            ],
            env={**os.environ, "PGPASSWORD": cluster.superuser_password, "LC_ALL": "C"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    processed = re.search(r"number of transactions actually processed: (\d+)", done.stdout)
    assert done.returncode == 0, done.stderr
    assert processed, done.stdout
    ((claimed,),) = run("SELECT count(*) FROM outbox_outboxmessage WHERE claimed_at IS NOT NULL")
    assert claimed > 0.98 * int(processed[1]), f"{processed[1]} transactions claimed {claimed}: the backlog is empty"
    return claimed / options.seconds


def run(statement: str, **params: Any) -> Sequence[Any]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement, params or None)
        return cursor.fetchall() if cursor.description else []


if __name__ == "__main__":
    sys.exit(main())
