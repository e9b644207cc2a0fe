"""Compare this checkout with another one of the same project: the same load on both, in alternating slices of a second.

    python -m benchmarks.suite.compare ../before [--acts polls,sections] [--pairs 12]

Rates of separate runs differ by 15 to 30 % on a shared machine. Two adjacent slices meet the same conditions, so the
median of their ratios shows differences of a few percent. Prints, for each act, the ratio of this checkout to the other
one in processor time of `web` for each response and in responses per second.
"""

import argparse
import json
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from benchmarks.suite.systems import CHECKOUT

ACTS = ("polls", "sections", "general_admission", "seats", "refusals", "joins")
"""The loads of rows 1 to 6, methods of `Bench`."""


class Side:
    """One checkout, whose deployment runs beside the other's."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout
        command = [sys.executable, "-m", "benchmarks.suite.slices"]
        self._process = subprocess.Popen(
            command, cwd=checkout, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def read(self) -> str:
        """Return the next line. Exits if the process has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"compare: the load on {self._checkout} ended with status {self._process.wait()}")
        return line

    def measure(self, act: str) -> tuple[float, float]:
        """Return responses per second and microseconds of processor time for each, of one slice."""
        assert self._process.stdin is not None
        print(act, file=self._process.stdin, flush=True)
        rate, microseconds = json.loads(self.read())
        return rate, microseconds

    def __enter__(self) -> "Side":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="the other checkout, with its own .venv or the same packages")
    parser.add_argument("--acts", default=",".join(ACTS))
    parser.add_argument("--pairs", type=int, default=12)
    options = parser.parse_args()
    acts = options.acts.split(",")
    if unknown := [act for act in acts if act not in ACTS]:
        parser.error(f"no such act: {', '.join(unknown)}; there are {', '.join(ACTS)}")
    if not (options.checkout / "benchmarks/suite/slices.py").is_file():
        parser.error(f"{options.checkout} has no benchmarks/suite/slices.py")
    with ExitStack() as until:
        theirs, ours = (until.enter_context(Side(checkout)) for checkout in (options.checkout, CHECKOUT))
        for side in (theirs, ours):
            side.read()
        for act in acts:
            print(f"{act}: {_compare(theirs, ours, act, options.pairs)}", flush=True)
    return 0


def _compare(theirs: Side, ours: Side, act: str, pairs: int) -> str:
    for side in (theirs, ours):
        side.measure(act)  # The first slice fills caches.
    rates, times = [], []
    for number in range(pairs):
        order = (theirs, ours) if number % 2 == 0 else (ours, theirs)
        found = {side: side.measure(act) for side in order}
        rates.append(found[ours][0] / found[theirs][0])
        times.append(found[ours][1] / found[theirs][1])
    return f"{statistics.median(times):.3f} of the time, {statistics.median(rates):.3f} of the rate"


if __name__ == "__main__":
    sys.exit(main())
