"""`make bench`: measures every row and writes what it found.

    python -m benchmarks.suite [--rounds 5] [--seconds 2] [--rows 1,3,10]

Starts servers of its own and houses of three sizes, fills them, measures row by row (the two sides of each ratio in
turn, medians of the rounds) and writes benchmarks/results/DATE.json and the table and plot in docs/performance.md. Logs
and flame graphs stay in a folder that it names. Exit status 1 when a row is below what is acceptable or could not run.
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
from benchmarks.suite.systems import Ground, House
from ticketing.devserver.data_folder import ServersFailed

ROWS = {
    "1": "polls",
    "2": "sections",
    "3": "general_admission",
    "4": "seats",
    "5": "refusals",
    "6": "joins",
    "7": "hold_latency",
    "8": "pages",
    "9": "events",
    "10": "growth",
    "11": "uncached_pages",
    "12": "isolation",
}
# Seats, old reservations, people waiting; each ten times the one before.
SIZES = {1: (5_000, 2_500, 5_000), 10: (50_000, 25_000, 50_000), 100: (500_000, 250_000, 500_000)}
ASKED = 100
GROWTH = "10"
SMALL_EVENTS, FEW_EVENTS = 50, 2
"""On sale at once in the house that is asked, and in the others: they run beside it while growth is measured, and what
their rooms cost while nobody asks would be in every figure."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS_MIN)
    parser.add_argument("--seconds", type=int, default=2, help="of each slice")
    parser.add_argument("--rows", default=",".join(ROWS), help="only these; nothing is written then")
    options = parser.parse_args()
    chosen = options.rows.split(",")
    if unknown := [row for row in chosen if row not in ROWS]:
        parser.error(f"no such row: {', '.join(unknown)}")
    if options.rounds < 1 or options.seconds < 1:
        parser.error("at least one round, at least one second")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = Path(tempfile.mkdtemp(prefix="fairgate-bench-"))
    folder.chmod(0o755)  # The servers may run as another account.
    begun = time.monotonic()
    try:
        findings, failed = measure(folder, chosen, options.rounds, options.seconds)
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
        print(f"make bench: below what is acceptable: {', '.join(below)}", file=sys.stderr)
    if failed:
        print(f"make bench: could not run, so nothing was written: {', '.join(failed)}", file=sys.stderr)
    return int(bool(below or failed))


def measure(folder: Path, chosen: list[str], rounds: int, seconds: int) -> tuple[dict[str, Findings], list[str]]:
    """What each row found, and the rows that could not run."""
    found: dict[str, Findings] = {}
    failed: list[str] = []
    ready = programs.ready()
    with ExitStack() as until:
        print(f"Filling the houses (logs: {folder}) …", flush=True)
        begun = time.monotonic()
        ground = until.enter_context(systems.ground(folder))
        made = _houses(ground, list(SIZES) if GROWTH in chosen else [ASKED])
        house = made[ASKED]
        postgres_alone.lay_out(house)
        until.enter_context(systems.opened(house))
        bench = Bench(ground, house, made, ready, rounds, seconds, folder)
        print(f"  {time.monotonic() - begun:.0f} s", flush=True)
        for row in chosen:
            begun = time.monotonic()
            print(f"Row {row}: {ROWS[row]} …", flush=True)
            try:
                found[row] = importlib.import_module(f"benchmarks.suite.rows.{ROWS[row]}").run(bench)
            except SuiteFailed as error:
                failed.append(row)
                print(f"  row {row} could not run: {error}", flush=True)
            except Exception:  # noqa: BLE001 - the other rows are still to be measured, and the run fails
                failed.append(row)
                traceback.print_exc()
            else:
                print(f"  {time.monotonic() - begun:.0f} s: " + ", ".join(map(_brief, found[row].ratios)), flush=True)
        if bench.shares and found:
            middle = f"{statistics.median(bench.shares):.0%} of one processor, {max(bench.shares):.0%} at most"
            list(found.values())[-1].facts.append(Fact("The generator took", middle))
    return found, failed


def _houses(ground: Ground, sizes: list[int]) -> dict[int, House]:
    """A house of each size, filled side by side: two processors are there for it."""
    with ThreadPoolExecutor(len(sizes)) as filling:
        begun = {
            size: filling.submit(
                systems.make_house,
                ground,
                str(size),
                number,
                [*SIZES[size], SMALL_EVENTS if size == ASKED else FEW_EVENTS],
            )
            for number, size in enumerate(sizes, 1)
        }
        return {size: future.result() for size, future in begun.items()}


def _brief(ratio: Ratio) -> str:
    return f"{ratio.row} {short(ratio.ratio)}{'' if ratio.is_acceptable else ' (below)'}"


if __name__ == "__main__":
    sys.exit(main())
