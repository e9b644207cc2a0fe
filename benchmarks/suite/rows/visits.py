"""Row visit: whole visits (event page, join, hold of two named seats), compared with these holds alone, by the same
generator."""

from collections.abc import Sequence

from benchmarks.suite import restore
from benchmarks.suite.bench import BUYERS, Bench
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.load import visits
from benchmarks.suite.results import Findings, compare, in_turn

REFUSED_SHARE_MAX = 0.02


def run(bench: Bench) -> Findings:
    deployment = bench.deployment
    section, seats = deployment.facts["section"], deployment.facts["section_seats"] - 2

    def send(tokens: Sequence[str]) -> float:
        load = visits.send(
            bench.programs.wrk, deployment.web_port, "arena", section, seats, visitors=BUYERS, seconds=bench.seconds,
            tokens=tokens,
        )  # fmt: skip
        bench.shares.append(load.generator_share)
        committed = restore.remove_holds(deployment)
        bench.settle()
        if load.refused > load.held * REFUSED_SHARE_MAX or load.held < BUYERS:
            raise SuiteFailed(f"{load.held} visits ended with a hold, {load.refused} requests were refused")
        if abs(committed - load.held) > 2 * BUYERS:
            raise SuiteFailed(f"{load.held} holds got a 201, but the ledger has {committed}")
        return load.held / load.seconds

    buyers = deployment.tokens("arena")
    found = in_turn(bench.rounds, {"visits": lambda: send(()), "holds": lambda: send(buyers)}, bench.say)
    with bench.profiled("visit", deployment):
        send(())
    title = "whole visits (event page, join, hold of 2), 128 visitors ÷ the same holds alone"
    return Findings([compare("visit", title, found["visits"], found["holds"], acceptable=0.25, goal=0.5)])
