"""Row 9: many events on sale at once, against one."""

from functools import partial

from benchmarks.suite.bench import Bench
from benchmarks.suite.load import raw_requests
from benchmarks.suite.results import Findings, compare, in_turn
from benchmarks.suite.systems import House

FLOOR = "floor"


def run(bench: Bench) -> Findings:
    house = bench.house
    counts = (1, 10, 50)
    acts = {f"{count} on sale": partial(_holds, bench, house, count) for count in counts}
    found = in_turn(bench.rounds, acts, bench.say)
    with bench.profiled("9", house):
        _holds(bench, house, counts[-1])
    one, ten, fifty = found.values()
    return Findings(
        [
            compare("9a", "10 events on sale at once, all their holds ÷ those of one", ten, one,
                    acceptable=0.7, goal=0.9),
            compare("9b", "50 events on sale at once, all their holds ÷ those of one", fifty, one,
                    acceptable=0.7, goal=0.9),
        ]
    )  # fmt: skip


def _holds(bench: Bench, house: House, count: int) -> float:
    """The same 128 buyers, each in any of so many events."""
    shows = house.facts["shows"][:count]
    each = len(house.tokens(shows[-1]))
    of_shows = [raw_requests.holds_of_places(show, FLOOR, house.tokens(show)[:each]) for show in shows]
    return bench.holds(house, [request for together in zip(*of_shows, strict=True) for request in together])
