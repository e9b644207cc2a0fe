"""Row 8: the latency of polls while pages are requested at saturation."""

import tempfile
from pathlib import Path

from benchmarks.suite.bench import READERS, Bench
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.load import arrivals, raw_requests
from benchmarks.suite.results import Fact, Findings, compare, in_turn

SHARE = 0.25
"""Share of the sustainable poll rate: a substantial load that leaves capacity for pages."""
PAGE = "/events/arena/?uncached"
"""With a query, so that `site` renders it for each request."""
READERS_OF_PAGES = 16


def run(bench: Bench) -> Findings:
    deployment = bench.deployment
    polls = raw_requests.polls(deployment.tokens("line"))
    rate = SHARE * bench.polls(deployment)
    pages = []

    def polled() -> float:
        enough = _enough(polls, rate * bench.seconds)
        load = arrivals.send(deployment.web_port, enough, rate=rate, seconds=bench.seconds, connections=READERS)
        return _p99_ms(load)

    def polled_beside_pages() -> float:
        with tempfile.TemporaryDirectory(prefix="fairgate-pages-") as made:
            enough = _enough(polls, rate * bench.seconds)
            # The load of pages starts with the polls and lasts a little longer.
            process = arrivals.begin(
                deployment.web_port, enough, rate=rate, seconds=bench.seconds, connections=READERS, folder=Path(made)
            )
            flow = bench.flow(deployment.web_port, [raw_requests.get(PAGE)], connections=READERS_OF_PAGES, again=True,
                              seconds=bench.seconds + 1)  # fmt: skip
            load = arrivals.finish(process)
        if flow.refused > flow.responses // 100:
            raise SuiteFailed(f"{flow.refused} of {flow.responses} pages were refused")
        pages.append(flow.good_rate)
        return _p99_ms(load)

    with_and_without = {"beside pages": polled_beside_pages, "alone": polled}
    found = in_turn(bench.rounds, with_and_without, bench.say)
    with bench.profiled("8", deployment):
        polled_beside_pages()
    title = "poll p99 with the site's pages at saturation ÷ without"
    slow, usual = found["beside pages"], found["alone"]
    ratio = compare("8", title, slow, usual, acceptable=3, goal=1.5, better="lower", unit="ms")
    load = f"{rate:,.0f} polls/s, random arrivals, beside {sorted(pages)[len(pages) // 2]:,.0f} pages/s, on two cores"
    return Findings([ratio], [Fact("Row 8 load", load)])


def _enough(polls: list[bytes], count: float) -> list[bytes]:
    return polls * (int(1.3 * count) // len(polls) + 1)


def _p99_ms(load: arrivals.Load) -> float:
    if load.good < load.offered * 0.99:
        raise SuiteFailed(f"{load.good} of {load.offered} polls got a response: {load.statuses}")
    return load.p99_ms
