"""Row 8: what a crowd that polls notices of pages at saturation."""

import tempfile
from pathlib import Path

from benchmarks.suite.bench import READERS, Bench
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.load import arrivals, raw_requests
from benchmarks.suite.results import Fact, Findings, compare, in_turn

SHARE = 0.25
"""Of what the house could answer at all: enough to be a crowd, and room for everything else."""
PAGE = "/events/arena/"
READERS_OF_PAGES = 16


def run(bench: Bench) -> Findings:
    house = bench.house
    polls = raw_requests.polls(house.tokens("line"))
    rate = SHARE * bench.polls(house)
    pages = []

    def polled() -> float:
        load = arrivals.send(house.web_port, _enough(polls, rate * bench.seconds), rate=rate, seconds=bench.seconds,
                             connections=READERS)  # fmt: skip
        return _p99_ms(load)

    def polled_beside_pages() -> float:
        with tempfile.TemporaryDirectory(prefix="fairgate-pages-") as made:
            enough = _enough(polls, rate * bench.seconds)
            # The pages begin with the polls and last a little longer.
            process = arrivals.begin(
                house.web_port, enough, rate=rate, seconds=bench.seconds, connections=READERS, folder=Path(made)
            )
            flow = bench.flow(house.web_port, [raw_requests.get(PAGE)], connections=READERS_OF_PAGES, again=True,
                              seconds=bench.seconds + 1)  # fmt: skip
            load = arrivals.finish(process)
        if flow.refused > flow.answers // 100:
            raise SuiteFailed(f"{flow.refused} of {flow.answers} pages were refused")
        pages.append(flow.good_rate)
        return _p99_ms(load)

    with_and_without = {"beside pages": polled_beside_pages, "alone": polled}
    found = in_turn(bench.rounds, with_and_without, bench.say)
    with bench.profiled("8", house):
        polled_beside_pages()
    title = "poll p99 with the site's pages at saturation ÷ without"
    slow, usual = found["beside pages"], found["alone"]
    ratio = compare("8", title, slow, usual, acceptable=3, goal=1.5, better="lower", unit="ms")
    told = f"{rate:,.0f} polls/s as they come, {sorted(pages)[len(pages) // 2]:,.0f} pages/s beside them, on two cores"
    return Findings([ratio], [Fact("Row 8 was asked for", told)])


def _enough(polls: list[bytes], count: float) -> list[bytes]:
    return polls * (int(1.3 * count) // len(polls) + 1)


def _p99_ms(load: arrivals.Load) -> float:
    if load.good < load.offered * 0.99:
        raise SuiteFailed(f"{load.good} of {load.offered} polls were answered: {load.statuses}")
    return load.p99_ms
