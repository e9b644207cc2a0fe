"""Row 11: an uncached page through the lane, beside the same view under Django's own ASGI handler."""

from benchmarks.suite import systems
from benchmarks.suite.bench import Bench
from benchmarks.suite.load import raw_requests
from benchmarks.suite.results import Findings, compare, in_turn
from benchmarks.suite.rows.pages import PAGE, READERS_OF_PAGES
from ticketing.devserver.ports import free_port


def run(bench: Bench) -> Findings:
    house = bench.house
    port = free_port()
    page = [raw_requests.get(PAGE)]
    command = systems.command_of("web", application="benchmarks.suite.baselines.stock_django:application")
    with systems.started(bench.ground, "stock-pages", command, {**house.environment, "PORT": str(port)}) as stock:
        systems.wait_until_ready(port, PAGE, stock, "Django's own ASGI handler")
        found = in_turn(
            bench.rounds,
            {
                "lane": lambda: bench.reads(house.web_port, page, connections=READERS_OF_PAGES),
                "stock": lambda: bench.reads(port, page, connections=READERS_OF_PAGES),
            },
            bench.say,
        )
    with bench.profiled("11", house, "site"):
        bench.reads(house.web_port, page, connections=READERS_OF_PAGES)
    title = "an uncached page through the lane ÷ Django's own ASGI handler, same view"
    return Findings([compare("11", title, found["lane"], found["stock"], acceptable=2.5, goal=2.5)])
