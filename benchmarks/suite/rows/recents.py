"""Row recents: the latency of a read of recent searches, of a browser and of an account, over HTTP.

Judged is the round trip of one client that sends its next read when it has the last response (wrk): the time of the
read itself. Reported beside it is the open loop at a low rate, where each read finds processors and caches as other
work left them.
"""

import json
import statistics
import subprocess
import sys
from itertools import cycle, islice

from benchmarks.suite import systems
from benchmarks.suite.bench import Bench
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.load import arrivals, raw_requests
from benchmarks.suite.results import Fact, Findings, compare, in_turn
from benchmarks.support.recent_searches import ACCOUNT, BROWSER

OWNERS = 50
RATE = 100.0
CONNECTIONS = 16
GOAL_MS = 1.0
PATH = "/api/search/recents"


def run(bench: Bench) -> Findings:
    deployment = bench.deployment
    command = [sys.executable, "-m", "benchmarks.support.recent_searches", str(OWNERS)]
    filled = subprocess.run(
        command, cwd=systems.CHECKOUT, env=deployment.environment, capture_output=True, text=True, check=False
    )
    if filled.returncode != 0:
        raise SuiteFailed(f"no searches were saved: {filled.stderr[-500:]}")
    cookies: dict[str, list[str]] = json.loads(filled.stdout.splitlines()[-1])
    reads = {kind: [raw_requests.get(PATH, cookie=cookie) for cookie in cookies[kind]] for kind in (BROWSER, ACCOUNT)}

    def one_client(kind: str) -> float:
        load = bench.flow(deployment.web_port, reads[kind], connections=1, again=True)
        if load.refused:
            raise SuiteFailed(f"{load.refused} of {load.responses} reads were refused")
        return load.p50_ms

    def arriving(kind: str) -> float:
        requests = list(islice(cycle(reads[kind]), int(RATE * bench.seconds * 2)))
        load = arrivals.send(deployment.web_port, requests, rate=RATE, seconds=bench.seconds, connections=CONNECTIONS)
        if load.good < load.offered:
            raise SuiteFailed(f"{load.good} of {load.offered} reads were answered: {load.statuses}")
        return load.p50_ms

    kinds = {"browser": BROWSER, "account": ACCOUNT}
    slices = {name: lambda kind=kind: one_client(kind) for name, kind in kinds.items()}
    slices |= {f"{name}, arriving": lambda kind=kind: arriving(kind) for name, kind in kinds.items()}
    found = in_turn(bench.rounds, slices, bench.say)
    with bench.profiled("recents", deployment):
        one_client(BROWSER)
    goal = [GOAL_MS] * bench.rounds
    middles = [f"{statistics.median(found[f'{name}, arriving']):.2f} ms" for name in kinds]
    return Findings(
        [
            compare("recents-browser", "p50 of a browser's read of recent searches ÷ 1 ms", found["browser"], goal,
                    acceptable=1, goal=1, better="lower", unit="ms"),
            compare("recents-account", "p50 of an account's ÷ 1 ms", found["account"], goal,
                    acceptable=1, goal=1, better="lower", unit="ms"),
        ],
        [Fact(f"p50 of a read of recent searches at {RATE:.0f} a second (browser; account)", "; ".join(middles))],
    )  # fmt: skip
