"""Row 11: an uncached page through `web`, compared with the same view under Django's own ASGI handler."""

from benchmarks.suite import systems
from benchmarks.suite.bench import Bench
from benchmarks.suite.load import raw_requests
from benchmarks.suite.results import Findings, compare, in_turn
from benchmarks.suite.rows.pages import PAGE, READERS_OF_PAGES
from ticketing.devserver.ports import free_port


def run(bench: Bench) -> Findings:
    deployment = bench.deployment
    port = free_port()
    page = [raw_requests.get(PAGE)]
    command = systems.command_of("web", application="benchmarks.suite.baselines.stock_django:application")
    with systems.started(bench.servers, "stock-pages", command, {**deployment.environment, "PORT": str(port)}) as stock:
        systems.wait_until_ready(port, PAGE, stock, "Django's own ASGI handler")
        found = in_turn(
            bench.rounds,
            {
                "ours": lambda: bench.reads(deployment.web_port, page, connections=READERS_OF_PAGES),
                "stock": lambda: bench.reads(port, page, connections=READERS_OF_PAGES),
            },
            bench.say,
        )
    with bench.profiled("11", deployment, "site"):
        bench.reads(deployment.web_port, page, connections=READERS_OF_PAGES)
    title = "an uncached page through web ÷ Django's own ASGI handler, same view"
    return Findings([compare("11", title, found["ours"], found["stock"], acceptable=2.5, goal=2.5)])
