"""Row 9: holds at many events on sale at the same time, compared with one event."""

from functools import partial

from benchmarks.suite.bench import Bench
from benchmarks.suite.load import raw_requests
from benchmarks.suite.results import Findings, compare, in_turn
from benchmarks.suite.systems import Deployment

FLOOR = "floor"


def run(bench: Bench) -> Findings:
    deployment = bench.deployment
    counts = (1, 10, 50)
    acts = {f"{count} on sale": partial(_holds, bench, deployment, count) for count in counts}
    found = in_turn(bench.rounds, acts, bench.say)
    with bench.profiled("9", deployment):
        _holds(bench, deployment, counts[-1])
    one, ten, fifty = found.values()
    return Findings(
        [
            compare("9a", "holds at 10 concurrent events ÷ at one", ten, one,
                    acceptable=0.7, goal=0.9),
            compare("9b", "holds at 50 concurrent events ÷ at one", fifty, one,
                    acceptable=0.7, goal=0.9),
        ]
    )  # fmt: skip


def _holds(bench: Bench, deployment: Deployment, count: int) -> float:
    """Return holds per second of 128 buyers, spread over this many events."""
    shows = deployment.facts["shows"][:count]
    each = len(deployment.tokens(shows[-1]))
    of_shows = [raw_requests.general_admission_holds(show, FLOOR, deployment.tokens(show)[:each]) for show in shows]
    return bench.holds(deployment, [request for together in zip(*of_shows, strict=True) for request in together])
