"""Many callers updating one row: committed in groups, compared with one transaction each, in one run on one server.

    python -m benchmarks.experiments.group_commit [--callers 32] [--requests 4000] [--rounds 3]

Starts a PostgreSQL server that would survive a power cut (fsync and synchronous_commit on), and removes it afterwards.
The rounds alternate, so that a slow machine slows both; the figures are the best of each.
"""

import argparse
import os
import threading
import time
from collections.abc import Callable

from tests.support.servers import temporary_server_folder
from ticketing.devserver import postgres
from ticketing.devserver.servers import new_password

TIMEOUT_MS = 60_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--callers", type=int, default=32)
    parser.add_argument("--requests", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    folder, end = temporary_server_folder()
    try:
        cluster = postgres.start(folder, password=new_password(), superuser_password=new_password())
        os.environ["DATABASE_URL"] = cluster.url()
        os.environ.setdefault("SECRET_KEY", "public-key-of-all-benchmarks-never-use-elsewhere")
        os.environ["DJANGO_SETTINGS_MODULE"] = "ticketing.settings"
        import django

        django.setup()
        measure(options.callers, options.requests, options.rounds)
    finally:
        end()


def measure(callers: int, requests: int, rounds: int) -> None:
    from psycopg import Connection

    from apps.kernel.db import pools
    from apps.kernel.group_commit.batcher import Batcher
    from tests.support.batches import Decider, Note, make_tables, run_sql, write_notes

    make_tables()
    pool = pools.create_pool("single", size_max=callers, connect_ms=TIMEOUT_MS)
    pool.open()
    decider = Decider()
    batcher: Batcher[Note, int] = Batcher("grouped", decider, find_committed=decider.find)

    def alone(number: int) -> None:
        connection: Connection
        with pool.connection() as connection:
            write_notes(connection, [Note(f"alone {number}")], lock_ms=TIMEOUT_MS)

    def grouped(number: int) -> None:
        batcher.submit_sync(Note(f"grouped {number}"), TIMEOUT_MS)

    best = {"one by one": 0.0, "in groups": 0.0}
    for _ in range(rounds):
        for name, act in (("one by one", alone), ("in groups", grouped)):
            best[name] = max(best[name], per_second(act, callers, requests))
    batcher.close()
    pool.close()
    ((count,),) = run_sql("SELECT value FROM batch_counter")
    assert count == 2 * rounds * requests, "every request exactly once"
    for name, rate in best.items():
        print(f"{name:<11} {rate:8,.0f} commits/s with {callers} callers")
    size = sum(map(len, decider.batches)) / len(decider.batches)
    print(f"ratio       {best['in groups'] / best['one by one']:8.1f}    batches of {size:.1f} on average")


def per_second(act: Callable[[int], None], callers: int, requests: int) -> float:
    """Return the calls a second of `callers` threads that start together."""
    start = threading.Barrier(callers + 1)
    shares = [range(caller, requests, callers) for caller in range(callers)]

    def work(share: range) -> None:
        start.wait()
        for number in share:
            act(number)

    threads = [threading.Thread(target=work, args=(share,)) for share in shares]
    for thread in threads:
        thread.start()
    start.wait()
    begun = time.perf_counter()
    for thread in threads:
        thread.join()
    return requests / (time.perf_counter() - begun)


if __name__ == "__main__":
    main()
