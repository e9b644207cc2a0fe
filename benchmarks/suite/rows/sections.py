"""Row 2: section availability, compared with nginx serving the same bytes from a file."""

import urllib.request

from benchmarks.suite.baselines import nginx
from benchmarks.suite.bench import Bench
from benchmarks.suite.load import raw_requests
from benchmarks.suite.results import Findings, compare, in_turn


def run(bench: Bench) -> Findings:
    deployment = bench.deployment
    with urllib.request.urlopen(f"http://127.0.0.1:{deployment.web_port}/api/events/arena/sections") as response:
        body = response.read()
    with nginx.serving(bench.servers, bench.programs.nginx, body) as port:
        found = in_turn(
            bench.rounds,
            {
                "ours": lambda: bench.sections(deployment),
                "nginx": lambda: bench.reads(port, [raw_requests.get(nginx.PATH)]),
            },
            bench.say,
        )
    with bench.profiled("2", deployment):
        bench.sections(deployment)
    title = "section availability ÷ nginx, the same bytes as a file"
    return Findings([compare("2", title, found["ours"], found["nginx"], acceptable=0.15, goal=0.3)])
