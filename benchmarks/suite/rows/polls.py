"""Row 1: what a status poll costs beside the server doing nothing, and beside the same view in the framework."""

from benchmarks.suite import systems
from benchmarks.suite.bench import Bench
from benchmarks.suite.load import raw_requests
from benchmarks.suite.results import Findings, compare, in_turn
from ticketing.devserver.ports import free_port


def run(bench: Bench) -> Findings:
    house = bench.house
    bare_port, stock_port = free_port(), free_port()
    polls = raw_requests.polls(house.tokens("line"))
    with (
        systems.started(
            bench.ground, "noop", systems.command_of("web", application="benchmarks.suite.baselines.noop:application"),
            {**house.environment, "PORT": str(bare_port)},
        ) as bare,
        systems.started(
            bench.ground, "stock",
            systems.command_of("web", application="benchmarks.suite.baselines.stock_django:application"),
            {**house.environment, "PORT": str(stock_port)},
        ) as stock,
    ):  # fmt: skip
        systems.wait_until_answering(bare_port, bare, "the bare server")
        systems.wait_until_ready(stock_port, "/api/events/arena/sections", stock, "Django's own ASGI handler")
        found = in_turn(
            bench.rounds,
            {
                "lane": lambda: bench.polls(house),
                "bare": lambda: bench.reads(bare_port, polls),
                "site": lambda: bench.reads(house.site_port, polls),
                "stock": lambda: bench.reads(stock_port, polls),
            },
            bench.say,
        )
    with bench.profiled("1", house):
        bench.polls(house)
    lane = found["lane"]
    return Findings(
        [
            compare("1a", "status poll ÷ bare ASGI, same server", lane, found["bare"], acceptable=0.5, goal=0.75),
            compare("1b", "status poll ÷ the same view in DRF, same server", lane, found["stock"],
                    acceptable=20, goal=40),
            compare("1c", "the same ÷ DRF under the site's WSGI server", lane, found["site"],
                    acceptable=None, goal=None),
        ]
    )  # fmt: skip
