"""What live holds occupy in PostgreSQL and in Redis."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass

from redis import Redis

from benchmarks.experiments import source_strategies

HOLDS = 10_000
CALLERS = 4
"""Few, because callers of a lock that is taken wait at random."""

OpenHold = Callable[[], AbstractContextManager[Callable[[int], bool]]]
"""Opens what one caller needs, and yields the function that holds for the buyer of this number."""


@dataclass(frozen=True)
class Memory:
    """What HOLDS holds occupy that are live at the same time, for each."""

    kind: str
    title: str
    postgres_bytes: float
    """Growth of the tables and indexes of the strategy, or of all of Fairgate's."""
    redis_bytes: float


def measure(kind: str, title: str, schema: str, open_hold: OpenHold, numbers: range) -> Memory:
    """Hold for these buyers, all of whom succeed and none of whom releases, and return what a hold occupies."""
    before = _used(schema)
    size = -(-len(numbers) // CALLERS)
    chunks = [numbers[begin : begin + size] for begin in range(0, len(numbers), size)]

    def hold_each(chunk: range) -> int:
        with open_hold() as hold:
            return sum(map(hold, chunk))

    with ThreadPoolExecutor(CALLERS) as threads:
        held = sum(threads.map(hold_each, chunks))
    assert held == len(numbers), f"{title}: {held} of {len(numbers)} held"
    postgres, redis = ((after - earlier) / held for earlier, after in zip(before, _used(schema), strict=True))
    return Memory(kind, title, postgres, redis)


def _used(schema: str) -> tuple[int, int]:
    """Return the bytes of all tables of the schema with their indexes, and those that Redis uses."""
    with source_strategies.connect(schema) as on:
        row = on.execute(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
            " WHERE relkind = 'r' AND relnamespace = %s::text::regnamespace",
            [schema],
        ).fetchone()
    assert row is not None
    return int(row[0]), int(Redis.from_url(os.environ["REDIS_URL"]).info("memory")["used_memory"])


def print_table(memory: Sequence[Memory], titles: Mapping[str, str]) -> None:
    if not memory:
        return
    print(f"\n| {HOLDS:,} live holds, bytes for each | PostgreSQL | Redis |\n| --- | ---: | ---: |")
    for kind, title in titles.items():
        print(f"| **{title}** | | |")
        for one in memory:
            if one.kind == kind:
                print(f"| {one.title} | {one.postgres_bytes:,.0f} | {one.redis_bytes:,.0f} |")
