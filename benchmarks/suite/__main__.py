"""`make bench`: measures every row and writes what it found.

    python -m benchmarks.suite [--rounds 5] [--seconds 3] [--rows 1,3,10] [--results FILE] [--docs]

Starts servers of its own and houses of three sizes, fills them, measures row by row (the two sides of each ratio in
turn, medians of the rounds) and writes benchmarks/results/DATE.json and the table and plot in docs/performance.md. Logs
and flame graphs stay in a folder that it names. Exit status 1 when a row is below what is acceptable or could not run.
"""

import argparse
import importlib
import signal
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from pathlib import Path

from benchmarks.suite import houses, ledger_alone, programs
from benchmarks.suite.bench import Bench
from benchmarks.suite.houses import SuiteFailed
from benchmarks.suite.results import ROUNDS_MIN, Findings, Ratio, short, table
from ticketing.embedded.place import ServersFailed

ROWS = {"1": "polls", "2": "sections", "3": "places", "4": "seats", "5": "refusals", "6": "joins"}
# Seats, old reservations, people waiting; each ten times the one before.
SIZES = {1: (10_000, 5_000, 10_000), 10: (100_000, 50_000, 100_000), 100: (1_000_000, 500_000, 1_000_000)}
ASKED = 10
SMALL_EVENTS = 50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS_MIN)
    parser.add_argument("--seconds", type=int, default=3, help="of each slice")
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--results", type=Path, help="where the file of ratios goes; only with all rows by itself")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    chosen = options.rows.split(",")
    if unknown := [row for row in chosen if row not in ROWS]:
        parser.error(f"no such row: {', '.join(unknown)}")
    folder = Path(tempfile.mkdtemp(prefix="fairgate-bench-"))
    folder.chmod(0o755)  # The servers may run as another account.
    begun = time.monotonic()
    try:
        findings, failed = measure(folder, chosen, options.rounds, options.seconds)
    except (SuiteFailed, ServersFailed) as error:
        print(f"make bench: {error}", file=sys.stderr)
        return 1
    ratios = [ratio for found in findings.values() for ratio in found.ratios]
    print(
        f"\n{len(ratios)} ratios after {(time.monotonic() - begun) / 60:.1f} minutes; logs and flame graphs: {folder}\n"
    )
    print("\n".join(table(ratios)))
    for found in findings.values():
        for fact in found.facts:
            print(f"- {fact.title}: {fact.value}")
    below = [ratio.row for ratio in ratios if not ratio.is_acceptable]
    if below:
        print(f"\nmake bench: below what is acceptable: {', '.join(below)}", file=sys.stderr)
    if failed:
        print(f"\nmake bench: could not run: {', '.join(failed)}", file=sys.stderr)
    return int(bool(below or failed))


def measure(folder: Path, chosen: list[str], rounds: int, seconds: int) -> tuple[dict[str, Findings], list[str]]:
    found: dict[str, Findings] = {}
    failed: list[str] = []
    ready = programs.ready()
    with ExitStack() as until:
        print(f"Servers and houses (logs: {folder}) …", flush=True)
        begun = time.monotonic()
        ground = until.enter_context(houses.ground(folder))
        house = houses.make_house(ground, str(ASKED), 1, [*SIZES[ASKED], SMALL_EVENTS])
        ledger_alone.lay_out(house)
        until.enter_context(houses.opened(house))
        bench = Bench(ground, house, {ASKED: house}, ready, rounds, seconds, folder)
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
        shares = sorted(bench.shares)
        if shares:
            print(f"The generator took {shares[len(shares) // 2]:.0%} of one processor, {shares[-1]:.0%} at most.")
    return found, failed


def _brief(ratio: Ratio) -> str:
    return f"{ratio.row} {short(ratio.ratio)}{'' if ratio.is_acceptable else ' (below)'}"


if __name__ == "__main__":
    sys.exit(main())
