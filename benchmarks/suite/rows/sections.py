"""Row 2: section availability beside nginx with the same bytes in a file."""

import urllib.request

from benchmarks.suite.baselines import nginx
from benchmarks.suite.bench import Bench
from benchmarks.suite.load import raw_requests
from benchmarks.suite.results import Findings, compare, in_turn


def run(bench: Bench) -> Findings:
    house = bench.house
    with urllib.request.urlopen(f"http://127.0.0.1:{house.web_port}/api/events/arena/sections") as answer:
        body = answer.read()
    with nginx.serving(bench.ground, bench.programs.nginx, body) as port:
        found = in_turn(
            bench.rounds,
            {
                "lane": lambda: bench.sections(house),
                "nginx": lambda: bench.reads(port, [raw_requests.get(nginx.PATH)]),
            },
            bench.say,
        )
    with bench.profiled("2", house):
        bench.sections(house)
    title = "section availability ÷ nginx, the same bytes as a file"
    return Findings([compare("2", title, found["lane"], found["nginx"], acceptable=0.15, goal=0.3)])
