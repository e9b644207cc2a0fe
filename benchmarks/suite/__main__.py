"""`make bench`: measure every row and write the results.

    python -m benchmarks.suite [--rounds 5] [--seconds 2] [--rows 1,3,10]

Starts its own servers and fills deployments of three sizes, measures row by row (both sides of each ratio alternate;
medians of the rounds) and writes benchmarks/results/DATE.json and the table and plot in docs/performance.md. Logs and
flame graphs stay in a folder that it prints. Exit status 1 if a row is below its acceptable ratio or could not run.
"""

import argparse
import importlib
import signal
import statistics
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from benchmarks.suite import programs, report, systems
from benchmarks.suite.baselines import postgres_alone
from benchmarks.suite.bench import Bench
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.results import ROUNDS_MIN, Fact, Findings, Ratio, short, table
from benchmarks.suite.systems import BenchServers, Deployment
from ticketing.devserver.data_folder import ServersFailed

ROWS = {
    "1": "polls",
    "2": "sections",
    "3": "general_admission",
    "4": "seats",
    "5": "refusals",
    "6": "joins",
    "7": "under_load.hold_latency",
    "8": "pages",
    "9": "events",
    "10": "growth",
    "11": "uncached_pages",
    "12": "under_load.isolation",
    "page": "kept_pages",
    "visit": "visits",
    "gather": "commit_waits",
    "search": "searches",
    "recents": "recents",
    "checkout": "orders.checkouts",
    "sale": "orders.sales",
    "messages": "orders.messages",
    "sale-growth": "orders.growth",
    "overload": "under_load.overload",
}
# Seats, old reservations, visitors waiting; each size ten times the one before.
SIZES = {1: (5_000, 2_500, 5_000), 10: (50_000, 25_000, 50_000), 100: (500_000, 250_000, 500_000)}
MEASURED = 100
GROWTH = "10"
SMALL_EVENTS, FEW_EVENTS = 50, 2
"""Small events on sale at the same time, in the deployment under test and in the others, which run beside it while
growth is measured: their idle waiting rooms would add to every figure."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS_MIN)
    parser.add_argument("--seconds", type=int, default=2, help="length of each slice")
    parser.add_argument("--rows", default=",".join(ROWS), help="only these; results are not written then")
    parser.add_argument("--orders", default="1000,100000", help="row sale-growth: the orders in each of its databases")
    options = parser.parse_args()
    chosen = options.rows.split(",")
    if unknown := [row for row in chosen if row not in ROWS]:
        parser.error(f"no such row: {', '.join(unknown)}")
    if options.rounds < 1 or options.seconds < 1:
        parser.error("--rounds and --seconds must be at least 1")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = Path(tempfile.mkdtemp(prefix="fairgate-bench-"))
    folder.chmod(0o755)  # The servers may run as another account.
    begun = time.monotonic()
    try:
        orders = tuple(map(int, options.orders.split(",")))
        findings, failed = measure(folder, chosen, options.rounds, options.seconds, orders)
    except (SuiteFailed, ServersFailed) as error:
        print(f"make bench: {error}", file=sys.stderr)
        return 1
    ratios = [ratio for found in findings.values() for ratio in found.ratios]
    facts = [fact for found in findings.values() for fact in found.facts]
    minutes = (time.monotonic() - begun) / 60
    print("\n" + "\n".join(table(ratios)))
    print("".join(f"\n- {fact.title}: {fact.value}" for fact in facts))
    print(f"\n{len(ratios)} ratios in {minutes:.1f} minutes. Logs and a flame graph for each row: {folder}")
    if not failed and chosen == list(ROWS) and options.rounds >= ROUNDS_MIN:
        print(f"Written: {report.write(ratios, facts, options.rounds, options.seconds, minutes)}")
    below = [ratio.row for ratio in ratios if not ratio.is_acceptable]
    if below:
        print(f"make bench: below the acceptable ratio: {', '.join(below)}", file=sys.stderr)
    if failed:
        print(f"make bench: could not run, so no results were written: {', '.join(failed)}", file=sys.stderr)
    return int(bool(below or failed))


def measure(
    folder: Path, chosen: list[str], rounds: int, seconds: int, orders: tuple[int, ...]
) -> tuple[dict[str, Findings], list[str]]:
    """Return the findings of each row, and the rows that could not run."""
    found: dict[str, Findings] = {}
    failed: list[str] = []
    ready = programs.ready()
    with ExitStack() as until:
        print(f"Filling the deployments (logs: {folder}) …", flush=True)
        begun = time.monotonic()
        servers = until.enter_context(systems.bench_servers(folder))
        made = _make_deployments(servers, list(SIZES) if GROWTH in chosen else [MEASURED])
        deployment = made[MEASURED]
        postgres_alone.create_tables(deployment)
        until.enter_context(systems.running(deployment))
        bench = Bench(servers, deployment, made, ready, rounds, seconds, folder, orders)
        print(f"  {time.monotonic() - begun:.0f} s", flush=True)
        for row in chosen:
            begun = time.monotonic()
            print(f"Row {row}: {ROWS[row]} …", flush=True)
            try:
                found[row] = importlib.import_module(f"benchmarks.suite.rows.{ROWS[row]}").run(bench)
            except SuiteFailed as error:
                failed.append(row)
                print(f"  row {row} could not run: {error}", flush=True)
            except Exception:  # noqa: BLE001 - the other rows are still measured, and the run fails
                failed.append(row)
                traceback.print_exc()
            else:
                print(f"  {time.monotonic() - begun:.0f} s: " + ", ".join(map(_brief, found[row].ratios)), flush=True)
        if bench.shares and found:
            share = f"{statistics.median(bench.shares):.0%} of one processor, {max(bench.shares):.0%} at most"
            list(found.values())[-1].facts.append(Fact("Load generator", share))
    return found, failed


def _make_deployments(servers: BenchServers, sizes: list[int]) -> dict[int, Deployment]:
    """Create and fill a deployment of each size, in parallel."""
    with ThreadPoolExecutor(len(sizes)) as filling:
        begun = {
            size: filling.submit(
                systems.make_deployment,
                servers,
                str(size),
                number,
                [*SIZES[size], SMALL_EVENTS if size == MEASURED else FEW_EVENTS],
            )
            for number, size in enumerate(sizes, 1)
        }
        return {size: future.result() for size, future in begun.items()}


def _brief(ratio: Ratio) -> str:
    return f"{ratio.row} {short(ratio.ratio)}{'' if ratio.is_acceptable else ' (below)'}"


if __name__ == "__main__":
    sys.exit(main())
