"""How fast the outbox delivers, beside what PostgreSQL does of its claim by itself, and whether a backlog slows it.

    python -m benchmarks.scenarios.outbox [--messages 100000] [--deliverers 8] [--rounds 5] [--seconds 5] [--no-durable]

The handler does nothing, so what is measured is claiming, handing over and settling, by one process as a worker has
it; the server is durable (fsync on) unless told otherwise. Each round drains a backlog, then lets pgbench run the very
claim statement, a message each transaction, from as many clients as there are deliverers: messages a second over claims
a second is the ratio, the median of the rounds. Then so many messages are drained in one go, and the last tenth's time
stands beside the first's. Last, some messages of other keys are drained once by themselves and once beside a backlog of
one key whose first message is under way. Exit 1 unless every message was handed over once.
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


class Noted:
    """The handler: notes when each of the messages came."""

    def __init__(self) -> None:
        self._noting = threading.Lock()
        self.at: list[float] = []
        self.ids: set[int] = set()

    def handle(self, message: Any) -> None:
        with self._noting:
            self.at.append(time.perf_counter())
            self.ids.add(message.id)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--deliverers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5, help="of pgbench in each round")
    parser.add_argument(
        "--durable", action=argparse.BooleanOptionalAction, default=True, help="fsync on, as in earnest"
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
    began, noted = time.perf_counter(), drain(count, options.deliverers)
    delivered = count / (noted.at[-1] - began)
    fill(int(options.seconds * 20_000))
    claims = pgbench(servers, options)
    share = delivered / claims
    print(f"{delivered:,.0f} messages/s delivered | {claims:,.0f} claims/s by pgbench | {share:.2f}", flush=True)
    return share


def drain_in_one_go(options: argparse.Namespace) -> None:
    count = options.messages
    fill(count)
    began, noted = time.perf_counter(), drain(count, options.deliverers)
    marks = [began, *(noted.at[count * tenth // TENTHS - 1] for tenth in range(1, TENTHS + 1))]
    tenths = [after - before for before, after in itertools.pairwise(marks)]
    print(f"{count:,} in {marks[-1] - began:.1f} s; tenths: {' '.join(f'{one:.2f}' for one in tenths)} s")
    print(f"last tenth over first: {tenths[-1] / tenths[0]:.2f}", flush=True)


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
            print(f"{backlog:,} put aside behind one in {time.perf_counter() - began:.1f} s", flush=True)
        fill(BESIDE_COUNT, keep=True)
        began, noted = time.perf_counter(), drain(BESIDE_COUNT, options.deliverers)
        rates.append(BESIDE_COUNT / (noted.at[-1] - began))
    print(f"beside {options.messages:,} of one key: {rates[1] / rates[0]:.2f} of the rate without", flush=True)


def drain(count: int, deliverers: int) -> Noted:
    from apps.kernel.outbox import facade as outbox
    from apps.kernel.outbox.delivery import Delivery

    noted, crew = Noted(), Delivery(deliverers)
    outbox.register_handler("benchmark", noted.handle, timedelta(hours=1))
    crew.wake()
    assert crew.wait(DRAIN_SECONDS_MAX), "still draining"
    assert crew.close(60)
    assert (len(noted.at), len(noted.ids)) == (count, count), (
        f"{len(noted.at)} handed over, {len(noted.ids)} of {count}"
    )
    return noted


def fill(count: int, *, one_key: bool = False, keep: bool = False) -> None:
    if not keep:
        run("TRUNCATE outbox_outboxmessage")
    run(_FILL, topic="benchmark", count=count, one_key=one_key)
    run("VACUUM ANALYZE outbox_outboxmessage")


def pgbench(servers: Any, options: argparse.Namespace) -> float:
    """Claims a second of the very statement, one message each."""
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
    with tempfile.TemporaryDirectory(prefix="fairgate-pgbench-") as made:
        script = Path(made) / "claim.sql"
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
    told = re.search(r"number of transactions actually processed: (\d+)", done.stdout)
    assert done.returncode == 0, done.stderr
    assert told, done.stdout
    ((claimed,),) = run("SELECT count(*) FROM outbox_outboxmessage WHERE claimed_at IS NOT NULL")
    assert claimed > 0.98 * int(told[1]), f"{told[1]} transactions claimed {claimed}: the backlog ran dry"
    return claimed / options.seconds


def run(statement: str, **params: Any) -> Sequence[Any]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement, params or None)
        return cursor.fetchall() if cursor.description else []


if __name__ == "__main__":
    sys.exit(main())
