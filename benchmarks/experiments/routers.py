"""The cost of routing: ways to find the handler of a request, on one server, in one run.

    python -m benchmarks.experiments.routers [--rounds 5] [--seconds 2] [--connections 64]

Needs `wrk`, and Starlette in its environment (which Fairgate does not install). Every way is one uvicorn process with
one worker and knows the same five routes; all give the same response to the same poll. They are measured in a new
random order in each round; the figures are medians, and the ratio to the bare application is computed in each round.
Also measured: the CPU time of a request in the server, and the CPU time of the way alone, called in this process
without a server, the minimum of the rounds. On a machine with other work, the last is the most stable figure.
"""

import argparse
import asyncio
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import psutil

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Endpoint = Callable[[Scope, Receive, Send], Awaitable[None]]

TARGET = "/api/events/midsummer-night/queue/status"
BODY = (
    b'{"status":"waiting","position_in_queue":12345,"estimated_wait_time":600,"estimated_wait_range":[480,780],'
    b'"next_poll":5000}'
)
HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", str(len(BODY)).encode()),
    (b"cache-control", b"no-store"),
]
ROUTES = [
    ("POST", "/api/events/{event}/queue"),
    ("GET", "/api/events/{event}/queue/status"),
    ("GET", "/api/events/{event}/sections"),
    ("POST", "/api/events/{event}/reservations"),
    ("GET", "/api/reservations/{reservation}"),
]
OPTIONS = ["--loop", "uvloop", "--http", "httptools", "--lifespan", "off", "--no-access-log", "--log-level", "warning"]


async def no_op(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})


def bare() -> Endpoint:
    return no_op


def channels() -> Endpoint:
    """Return `ProtocolTypeRouter`, which runs before everything else."""
    from channels.routing import ProtocolTypeRouter

    return ProtocolTypeRouter({"http": no_op})


def starlette_router() -> Endpoint:
    """Return Starlette's router with ASGI endpoints."""
    from starlette.routing import Route, Router

    class Raw:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await no_op(scope, receive, send)

    return Router([Route(path, Raw(), methods=[method]) for method, path in ROUTES])


def starlette_responses() -> Endpoint:
    """Return Starlette's router with its Request and its JSONResponse."""
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route, Router

    async def endpoint(request: Request) -> Response:
        assert request.path_params
        return JSONResponse(
            {
                "status": "waiting",
                "position_in_queue": 12345,
                "estimated_wait_time": 600,
                "estimated_wait_range": [480, 780],
                "next_poll": 5000,
            },
            headers={"cache-control": "no-store"},
        )

    return Router([Route(path, endpoint, methods=[method]) for method, path in ROUTES])


def starlette_application() -> Endpoint:
    """Return a whole Starlette application (with its exception and error middleware) with ASGI endpoints."""
    from starlette.applications import Starlette

    return Starlette(routes=starlette_router().routes)  # type: ignore[attr-defined]


async def unknown(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 404, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def own_dictionary() -> Endpoint:
    """Return a router that splits the path at its slashes and finds the fixed parts in one dictionary."""
    # In ("", "api", "events", EVENT, "queue", "status") the name is the third or second part, so the key omits it.
    table: dict[tuple[str, str, str], Endpoint] = {}
    for method, path in ROUTES:
        before, _, after = path.partition("{")
        table[method, before, after.partition("}")[2]] = no_op

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path.startswith("/api/events/"):
            name, slash, rest = path[12:].partition("/")
            handler = table.get((scope["method"], "/api/events/", slash + rest), unknown)
        elif path.startswith("/api/reservations/"):
            name, slash, rest = path[18:].partition("/")
            handler = table.get((scope["method"], "/api/reservations/", slash + rest), unknown)
        else:
            name, handler = "", unknown
        scope["name"] = name
        await handler(scope, receive, send)

    return application


def own_expression() -> Endpoint:
    """Return a router with one compiled regular expression for each method; the last group identifies the route."""
    handlers: dict[str, tuple[re.Pattern[str], list[Endpoint]]] = {}
    for method in {method for method, _ in ROUTES}:
        paths = [path for known, path in ROUTES if known == method]
        pattern = "|".join(re.sub(r"\{\w+\}", "([^/]+)", path) for path in paths)
        handlers[method] = (re.compile(pattern), [no_op] * len(paths))

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        of_method = handlers.get(scope["method"])
        match = of_method[0].fullmatch(scope["path"]) if of_method else None
        if of_method is None or match is None or match.lastindex is None:
            await unknown(scope, receive, send)
            return
        scope["name"] = match[match.lastindex]
        await of_method[1][match.lastindex - 1](scope, receive, send)

    return application


WAYS: dict[str, Callable[[], Endpoint]] = {
    "bare": bare,
    "channels": channels,
    "own_dictionary": own_dictionary,
    "own_expression": own_expression,
    "starlette_router": starlette_router,
    "starlette_responses": starlette_responses,
    "starlette_application": starlette_application,
}


def application() -> Endpoint:
    """Return the application of one way; uvicorn calls this factory in its process."""
    return WAYS[os.environ["ROUTER"]]()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--ways", default=",".join(WAYS))
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("This needs wrk: apt-get install wrk")
    ways = options.ways.split(",")
    ports = {way: free_port() for way in ways}
    servers = {way: start(way, port) for way, port in ports.items()}
    try:
        for way, port in ports.items():
            wait_for(way, port)
            rate(port, options.connections, 1, servers[way].pid)
        rounds: list[dict[str, tuple[float, float]]] = []
        for _ in range(options.rounds):
            in_turn = random.sample(ways, len(ways))
            rounds.append(
                {way: rate(ports[way], options.connections, options.seconds, servers[way].pid) for way in in_turn}
            )
    finally:
        for server in servers.values():
            server.terminate()
        for server in servers.values():
            server.wait(10)
    print("| way | requests/s | ratio to bare | lowest | highest | CPU time | the way alone | above bare |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    calls = {way: min(alone(WAYS[way]()) for _ in range(options.rounds)) for way in ways}
    spent = {way: statistics.median(taken[way][1] for taken in rounds) for way in ways}
    for way in ways:
        shares = [taken[way][0] / taken[ways[0]][0] for taken in rounds]
        print(
            f"| {way} | {statistics.median(taken[way][0] for taken in rounds):,.0f} | {statistics.median(shares):.2f} "
            f"| {min(shares):.2f} | {max(shares):.2f} | {spent[way]:.1f} µs "
            f"| {calls[way]:.1f} µs | {calls[way] - calls[ways[0]]:.1f} µs |"
        )


def start(way: str, port: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "uvicorn",
            "benchmarks.experiments.routers:application",
            "--factory",
            "--port",
            str(port),
            *OPTIONS,
        ],
        env={**os.environ, "ROUTER": way},
    )


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_for(way: str, port: int) -> None:
    from urllib.request import urlopen

    until = time.monotonic() + 20
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}{TARGET}") as response:
                assert response.read() == BODY, way
                return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def rate(port: int, connections: int, seconds: int, process_id: int) -> tuple[float, float]:
    """Return the responses a second to connections that send without pause, and the server's CPU time of one in µs."""
    before = psutil.Process(process_id).cpu_times()
    output = subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", f"http://127.0.0.1:{port}{TARGET}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    after = psutil.Process(process_id).cpu_times()
    if "Non-2xx" in output or "Socket errors" in output:
        sys.exit(f"Some requests failed:\n{output}")
    found = re.search(r"Requests/sec:\s+([\d.]+)", output)
    answered = re.search(r"(\d+) requests in", output)
    assert found is not None, output
    assert answered is not None, output
    spent = after.user + after.system - before.user - before.system
    return float(found[1]), 1e6 * spent / int(answered[1])


def alone(handler: Endpoint, calls: int = 20_000) -> float:
    """Return the CPU time of one call in µs, with a `send` that does nothing."""

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        pass

    async def call() -> float:
        scope = {
            "type": "http",
            "method": "GET",
            "path": TARGET,
            "raw_path": TARGET.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(b"host", b"127.0.0.1:8000")],
        }
        begun = time.process_time()
        for _ in range(calls):
            await handler(dict(scope), receive, send)
        return 1e6 * (time.process_time() - begun) / calls

    return asyncio.run(call())


if __name__ == "__main__":
    main()
