"""Row 12: what the buyers of one event notice while another is asked for three times what it can sell; and, told but
not judged, how the house answers at saturation and at three times that.
"""

import statistics
import tempfile
from pathlib import Path

from benchmarks.suite import restore
from benchmarks.suite.bench import BUYERS, Bench
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.load import arrivals, raw_requests
from benchmarks.suite.results import Fact, Findings, compare, in_turn
from benchmarks.suite.systems import House

TIMES = 3
CONNECTIONS = 512
QUIET_EVENT = "show-01"
QUIET_RATE = 50.0


def run(bench: Bench) -> Findings:
    house = bench.house
    saturation = bench.places(house)
    crowds: list[arrivals.Load] = []

    def quiet() -> float:
        load = arrivals.send(house.web_port, _of_quiet(house), rate=QUIET_RATE, seconds=bench.seconds, connections=16)
        restore.give_back(house)
        return _p50_ms(load)

    def beside_a_crowd() -> float:
        with tempfile.TemporaryDirectory(prefix="fairgate-crowd-") as made:
            folder = Path(made)
            crowd = arrivals.begin(
                house.web_port, _of_crowd(house), rate=TIMES * saturation, seconds=bench.seconds + 1,
                connections=CONNECTIONS, folder=folder,
            )  # fmt: skip
            few = arrivals.begin(
                house.web_port, _of_quiet(house), rate=QUIET_RATE, seconds=bench.seconds, connections=16, folder=folder
            )
            load = arrivals.finish(few)
            crowds.append(arrivals.finish(crowd))
        restore.give_back(house)
        return _p50_ms(load)

    found = in_turn(bench.rounds, {"beside a crowd": beside_a_crowd, "alone": quiet}, bench.say)
    with bench.profiled("12", house):
        beside_a_crowd()
    at_saturation = [_at(bench, house, saturation, BUYERS) for _ in range(bench.rounds)]
    title = "hold p50 of one event while another is asked for 3 times its saturation ÷ alone"
    ratio = compare(
        "12", title, found["beside a crowd"], found["alone"], acceptable=2, goal=2, better="lower", unit="ms"
    )
    return Findings([ratio], [_told("at saturation", at_saturation), _told("at 3 times that", crowds[1:])])


def _at(bench: Bench, house: House, rate: float, connections: int) -> arrivals.Load:
    load = arrivals.send(house.web_port, _of_crowd(house), rate=rate, seconds=bench.seconds, connections=connections)
    restore.give_back(house)
    return load


def _of_crowd(house: House) -> list[bytes]:
    return raw_requests.holds_of_places("arena", house.facts["floor"], house.tokens("arena"))


def _of_quiet(house: House) -> list[bytes]:
    return raw_requests.holds_of_places(QUIET_EVENT, "floor", house.tokens(QUIET_EVENT))


def _p50_ms(load: arrivals.Load) -> float:
    """Who got no answer counts with the time that was waited for it. Raises SuiteFailed for refusals: they are quick,
    and would look like speed."""
    if load.answered - load.good > load.offered * 0.1:
        raise SuiteFailed(f"the quiet event held {load.good} of {load.offered}: {load.statuses}")
    return load.p50_ms


def _told(when: str, loads: list[arrivals.Load]) -> Fact:
    middle = statistics.median
    offered, answered = sum(load.offered for load in loads), sum(load.answered for load in loads)
    kinds = sorted({status for load in loads for status in load.statuses})
    of_kinds = ", ".join(f"{kind}: {sum(load.statuses.get(kind, 0) for load in loads):,}" for kind in kinds)
    asked, held = middle(load.offered_rate for load in loads), middle(load.good_rate for load in loads)
    return Fact(
        f"Holds {when} (target: 500 ms, 99.99 % answered)",
        f"{asked:,.0f}/s asked for, {held:,.0f}/s held; p99 of an answer "
        f"{middle(load.p99_ms for load in loads):,.0f} ms, of a hold "
        f"{middle(load.good_p99_ms for load in loads):,.0f} ms; {answered / offered:.2%} answered ({of_kinds})",
    )
