"""Row page: an event page from the memory of `web`, compared with servers that only send the same bytes."""

import contextlib
from http.client import HTTPConnection

from benchmarks.suite import systems
from benchmarks.suite.baselines import nginx
from benchmarks.suite.bench import Bench
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.load import raw_requests
from benchmarks.suite.results import Fact, Findings, compare, in_turn
from ticketing.devserver.ports import free_port

PAGE = "/events/arena/"
_CODING = "br"


def run(bench: Bench) -> Findings:
    deployment = bench.deployment
    body = _page(deployment.web_port)
    stored = bench.folder / "stored-page"
    stored.write_bytes(body)
    port = free_port()
    command = systems.command_of("web", application="benchmarks.suite.baselines.stored_page:application")
    environment = {**deployment.environment, "PORT": str(port), "STORED_PAGE": str(stored)}
    request = [raw_requests.get(PAGE, accept_encoding=_CODING)]
    with (
        systems.started(bench.servers, "stored-page", command, environment) as bare,
        nginx.serving(bench.servers, bench.programs.nginx, body) as nginx_port,
    ):
        systems.wait_until_answering(port, bare, "the bare server")
        found = in_turn(
            bench.rounds,
            {
                "ours": lambda: bench.reads(deployment.web_port, request),
                "bare": lambda: bench.reads(port, request),
                "nginx": lambda: bench.reads(nginx_port, [raw_requests.get(nginx.PATH)]),
            },
            bench.say,
        )
    with bench.profiled("page", deployment):
        bench.reads(deployment.web_port, request)
    ours = found["ours"]
    title = "event page from the memory of web ÷ bare ASGI of the same bytes, same server"
    return Findings(
        [
            compare("page-a", title, ours, found["bare"], acceptable=0.5, goal=0.75),
            compare("page-b", "the same ÷ nginx, the same bytes as a file", ours, found["nginx"],
                    acceptable=0.15, goal=0.3),
        ],
        [Fact("Row page", f"{len(body):,} bytes in {_CODING}")],
    )  # fmt: skip


def _page(port: int) -> bytes:
    """Return the page as it is sent to browsers."""
    with contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("GET", PAGE, headers={"Accept-Encoding": _CODING})
        response = connection.getresponse()
        if response.headers["Content-Encoding"] != _CODING:
            raise SuiteFailed(f"the page has the content coding {response.headers['Content-Encoding']}")
        return response.read()
