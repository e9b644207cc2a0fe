"""The side of `benchmarks.suite.compare` that runs in each checkout: measures one slice of load for each name on stdin.

Prints `ready`, then for each line (an attribute of `Bench`, like `polls`) one line of JSON: the rate, and the processor
time of `web` for each response in microseconds. Ends with its input.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarks.suite import programs, systems
from benchmarks.suite.__main__ import MEASURED, SIZES, SMALL_EVENTS
from benchmarks.suite.bench import Bench
from benchmarks.suite.load.wrk import Flow

SECONDS = 1


class CountingBench(Bench):
    """Counts the responses of a slice, because an act returns only their rate."""

    responses = 0

    def flow(self, port: int, requests: Sequence[bytes], **how: object) -> Flow:
        found = super().flow(port, requests, **how)
        self.responses += found.responses
        return found


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="fairgate-bench-"))
    folder.chmod(0o755)  # The servers may run as another account.
    ready = programs.ready()
    with systems.bench_servers(folder) as servers:
        made = systems.make_deployment(servers, str(MEASURED), 1, [*SIZES[MEASURED], SMALL_EVENTS])
        with systems.running(made):
            print("ready", flush=True)
            for line in sys.stdin:
                bench = CountingBench(servers, made, {}, ready, 1, SECONDS, folder)
                before = _processor_seconds(made)
                rate = getattr(bench, line.strip())(made)
                seconds = _processor_seconds(made) - before
                print(json.dumps([rate, seconds / max(bench.responses, 1) * 1e6]), flush=True)
    return 0


def _processor_seconds(deployment: systems.Deployment) -> float:
    """Return the processor time of `web` and its workers since they started."""
    web = psutil.Process(deployment.processes["web"].pid)
    return sum(sum(process.cpu_times()[:2]) for process in (web, *web.children(recursive=True)))


if __name__ == "__main__":
    sys.exit(main())
