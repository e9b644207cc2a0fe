"""Row 1: status polls, compared with a minimal ASGI application and with the same view in DRF."""

from benchmarks.suite import systems
from benchmarks.suite.bench import Bench
from benchmarks.suite.load import raw_requests
from benchmarks.suite.results import Findings, compare, in_turn
from ticketing.devserver.ports import free_port


def run(bench: Bench) -> Findings:
    deployment = bench.deployment
    bare_port, stock_port = free_port(), free_port()
    polls = raw_requests.polls(deployment.tokens("line"))
    with (
        systems.started(
            bench.servers, "noop", systems.command_of("web", application="benchmarks.suite.baselines.noop:application"),
            {**deployment.environment, "PORT": str(bare_port)},
        ) as bare,
        systems.started(
            bench.servers, "stock",
            systems.command_of("web", application="benchmarks.suite.baselines.stock_django:application"),
            {**deployment.environment, "PORT": str(stock_port)},
        ) as stock,
    ):  # fmt: skip
        systems.wait_until_answering(bare_port, bare, "the bare server")
        systems.wait_until_ready(stock_port, "/api/events/arena/sections", stock, "Django's own ASGI handler")
        found = in_turn(
            bench.rounds,
            {
                "ours": lambda: bench.polls(deployment),
                "bare": lambda: bench.reads(bare_port, polls),
                "site": lambda: bench.reads(deployment.site_port, polls),
                "stock": lambda: bench.reads(stock_port, polls),
            },
            bench.say,
        )
    with bench.profiled("1", deployment):
        bench.polls(deployment)
    ours = found["ours"]
    return Findings(
        [
            compare("1a", "status poll ÷ bare ASGI, same server", ours, found["bare"], acceptable=0.5, goal=0.75),
            compare("1b", "status poll ÷ the same view in DRF, same server", ours, found["stock"],
                    acceptable=20, goal=40),
            compare("1c", "the same ÷ DRF under the site's WSGI server", ours, found["site"],
                    acceptable=None, goal=None),
        ]
    )  # fmt: skip
