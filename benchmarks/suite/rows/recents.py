"""Row recents: the latency of a read of recent searches, of a browser and of an account, over HTTP."""

import json
import subprocess
import sys
from itertools import cycle, islice

from benchmarks.suite import systems
from benchmarks.suite.bench import Bench
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.load import arrivals, raw_requests
from benchmarks.suite.results import Findings, compare, in_turn
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
    needed = int(RATE * bench.seconds * 2)

    def p50_ms(kind: str) -> float:
        requests = [raw_requests.get(PATH, cookie=cookie) for cookie in islice(cycle(cookies[kind]), needed)]
        load = arrivals.send(deployment.web_port, requests, rate=RATE, seconds=bench.seconds, connections=CONNECTIONS)
        if load.good < load.offered:
            raise SuiteFailed(f"{load.good} of {load.offered} reads were answered: {load.statuses}")
        return load.p50_ms

    found = in_turn(bench.rounds, {"browser": lambda: p50_ms(BROWSER), "account": lambda: p50_ms(ACCOUNT)}, bench.say)
    with bench.profiled("recents", deployment):
        p50_ms(BROWSER)
    goal = [GOAL_MS] * bench.rounds
    return Findings(
        [
            compare("recents-browser", "p50 of a browser's read of recent searches ÷ 1 ms", found["browser"], goal,
                    acceptable=1, goal=1, better="lower", unit="ms"),
            compare("recents-account", "p50 of an account's ÷ 1 ms", found["account"], goal,
                    acceptable=1, goal=1, better="lower", unit="ms"),
        ]
    )  # fmt: skip
