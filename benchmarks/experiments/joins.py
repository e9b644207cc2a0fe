"""A burst of joins into one room: committed in groups, compared with one transaction each, in one run on one server.

    python -m benchmarks.experiments.joins [--waiting 100000] [--joins 4000] [--callers 1,8,32,128] [--rounds 5]

Starts a PostgreSQL server that would survive a power cut (fsync and synchronous_commit on), and removes it afterwards.
All ways run the same decision with the same statements, and every join adds a new visitor at the end of a filled queue:

- one each: `join_many` of one request, on a connection of its own for each thread; all of them lock the room's row.
- threads: `join`, as the site calls it.
- tasks: `join_async`, as an event loop calls it, all in one thread.
- by hundreds: `join_many` of 100 requests with one caller, which never waits for another.

The rounds alternate, forwards and backwards; the figures are medians. Afterwards the queue must have exactly as many
numbers as joins were answered, each once and without gaps, and its hash chain must match its entries.
"""

import argparse
import asyncio
import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.experiments.queue_structures import per_second
from benchmarks.support.rooms import make_full_room, start_servers, vacuum_tables

JOINS_IN_BATCH = 100


@dataclass(frozen=True)
class Batches:
    """The totals of a batcher of this process."""

    count: float
    requests: float


@dataclass(frozen=True)
class Run:
    rate: float
    batch: float
    """The average number of joins in one transaction."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--joins", type=int, default=4_000, help="per round and way")
    parser.add_argument("--callers", default="1,8,32,128")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with start_servers(durable=True):
        measure(options.waiting, options.joins, [int(count) for count in options.callers.split(",")], options.rounds)


def measure(waiting: int, joins: int, callers: list[int], rounds: int) -> None:
    event = make_full_room("large-queue", waiting)
    vacuum_tables()
    ways: dict[tuple[str, int], Callable[[], Run]] = {}
    for count in callers:
        ways["one each", count] = one_each(event, count, joins)
        ways["threads", count] = by_threads(event, count, joins)
        ways["tasks", count] = by_tasks(event, count, joins)
    ways["by hundreds", 1] = by_hundreds(event, joins)
    for way in ways.values():
        way()
    found: dict[tuple[str, int], list[Run]] = {key: [] for key in ways}
    for number in range(rounds):
        for key in list(ways)[:: 1 if number % 2 == 0 else -1]:
            found[key].append(ways[key]())
    check(event, waiting)
    rates = {key: statistics.median(run.rate for run in runs) for key, runs in found.items()}
    print("\n| joins | callers | joins/s | joins a transaction | ratio to one each |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for (name, count), runs in found.items():
        batch = statistics.median(run.batch for run in runs)
        ratio = rates[name, count] / rates["one each", count] if ("one each", count) in rates else 0.0
        print(f"| {name} | {count} | {rates[name, count]:,.0f} | {batch:.1f} | {ratio:.1f} |")


def one_each(event: Any, callers: int, joins: int) -> Callable[[], Run]:
    from apps.kernel.http import problems
    from apps.queue import facade

    def join() -> None:
        (outcome,) = facade.join_many([facade.JoinRequest(event, newcomer())])
        assert not isinstance(outcome, problems.Problem)

    return lambda: Run(per_second(join, callers, joins), 1.0)


def by_threads(event: Any, callers: int, joins: int) -> Callable[[], Run]:
    from apps.queue import facade

    def join() -> None:
        facade.join(event, newcomer())

    def way() -> Run:
        before = batches_of("joins")
        rate = per_second(join, callers, joins)
        return Run(rate, _since(before))

    return way


def by_tasks(event: Any, callers: int, joins: int) -> Callable[[], Run]:
    from apps.queue import facade

    async def caller(share: range) -> None:
        for _ in share:
            await facade.join_async(event, newcomer())

    async def run_all() -> float:
        begun = time.perf_counter()
        await asyncio.gather(*(caller(range(number, joins, callers)) for number in range(callers)))
        return joins / (time.perf_counter() - begun)

    def way() -> Run:
        before = batches_of("joins")
        rate = asyncio.run(run_all())
        return Run(rate, _since(before))

    return way


def by_hundreds(event: Any, joins: int) -> Callable[[], Run]:
    from apps.kernel.http import problems
    from apps.queue import facade

    def way() -> Run:
        begun = time.perf_counter()
        for _ in range(joins // JOINS_IN_BATCH):
            outcomes = facade.join_many([facade.JoinRequest(event, newcomer()) for _ in range(JOINS_IN_BATCH)])
            assert not any(isinstance(outcome, problems.Problem) for outcome in outcomes)
        return Run(joins / (time.perf_counter() - begun), JOINS_IN_BATCH)

    return way


def newcomer() -> Any:
    from apps.queue import facade

    return facade.Caller(visitor_id=facade.new_visitor_secret())


def batches_of(name: str) -> Batches:
    """Return the totals of the batcher with this name, from its metrics."""
    from apps.kernel.group_commit import batcher

    sizes = next(metric for metric in batcher.METRICS if metric._name == "fairgate_batch_size")
    of = {
        sample.name: sample.value
        for family in sizes.collect()
        for sample in family.samples
        if sample.labels["batcher"] == name and "le" not in sample.labels
    }
    return Batches(of["fairgate_batch_size_count"], of["fairgate_batch_size_sum"])


def _since(before: Batches) -> float:
    after = batches_of("joins")
    return (after.requests - before.requests) / (after.count - before.count)


def check(event: Any, waiting: int) -> None:
    """Assert that every entry has one number, without gaps, and that the chain matches the entries added here."""
    from apps.queue import proofs
    from apps.queue.models import QueueEntry, WaitingRoom

    room = WaitingRoom.objects.get(event_id=event.id)
    entries = QueueEntry.objects.filter(event_id=event.id, number__gt=waiting).order_by("number")
    chain = proofs.genesis(event.slug)
    expected = itertools.count(waiting + 1)
    for entry in entries.iterator():
        assert entry.number == next(expected)
        chain = proofs.link(chain, entry.number, proofs.leaf(entry.pk, bytes(entry.nonce)))
    assert room.next_number == next(expected)
    assert bytes(room.chain_head) == chain
    print(f"{room.next_number - 1 - waiting:,} joined behind {waiting:,}: each number once, no gaps")


if __name__ == "__main__":
    main()
