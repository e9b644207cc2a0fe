"""Row gather: whole visits of 32 visitors with group commits that wait a few milliseconds for more requests, compared
with commits that do not, by another `web` of the same deployment."""

from benchmarks.suite import restore, systems
from benchmarks.suite.bench import Bench
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.load import visits
from benchmarks.suite.results import Findings, compare, in_turn
from ticketing.devserver.ports import free_port

VISITORS = 32
"""So many that commits have few requests each, and the processors are not busy all the time."""
REFUSED_SHARE_MAX = 0.02


def run(bench: Bench) -> Findings:
    deployment = bench.deployment
    port = free_port()
    environment = {**deployment.environment, "PORT": str(port), "GROUP_COMMIT_GATHER_MS": "0"}

    def send(to: int) -> float:
        load = visits.send(
            bench.programs.wrk, to, "arena", deployment.facts["section"], deployment.facts["section_seats"] - 2,
            visitors=VISITORS, seconds=bench.seconds,
        )  # fmt: skip
        restore.remove_holds(deployment)
        bench.settle()
        if load.refused > load.held * REFUSED_SHARE_MAX or load.held < VISITORS:
            raise SuiteFailed(f"{load.held} visits ended with a hold, {load.refused} requests were refused")
        return load.held / load.seconds

    with systems.started(bench.servers, "web-without-gathering", systems.command_of("web"), environment) as web:
        systems.wait_until_ready(port, "/readyz", web, "the web process that does not wait")
        found = in_turn(
            bench.rounds, {"waiting": lambda: send(deployment.web_port), "not": lambda: send(port)}, bench.say
        )
    title = "whole visits of 32 visitors: commits wait 3 ms for more requests ÷ they do not"
    return Findings([compare("gather", title, found["waiting"], found["not"], acceptable=1, goal=1.1)])
