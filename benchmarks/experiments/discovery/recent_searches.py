"""What a read of recent searches costs on the fast path: from the copy in Redis, from PostgreSQL, and without either.

    python -m benchmarks.experiments.discovery.recent_searches [--owners 1000] [--reads 2000]

Starts PostgreSQL and Valkey for itself and removes them afterwards. In one process, through the dispatcher and without
a network: each read is one request whose browser or account is another one than the last's. The kinds take turns, so
that other load concerns all of them alike: a browser and an account whose copy in Redis is that of the last search (the
header comes from PostgreSQL in each read, on the event loop), the same with reads of PostgreSQL in a thread, a browser
while Redis is away (the list comes from PostgreSQL, too), and a browser without a cookie. Goal: a median under a
millisecond from the copy.
"""

import argparse
import asyncio
import logging
import os
import statistics
import sys
import time
from typing import Any

import uvloop

from benchmarks.support.recent_searches import BROWSER, fill
from benchmarks.support.rooms import start_servers

GOAL_MS = 1.0
AWAY, NEW = "browser, Redis away", "new browser"
IN_THREAD = ", PostgreSQL in a thread"
TOGETHER = 32
"""Reads at once in the second part."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--owners", type=int, default=1_000, help="accounts, and as many browsers")
    parser.add_argument("--reads", type=int, default=2_000, help="of each kind, after a tenth as many to warm up")
    options = parser.parse_args()
    os.environ["RATE_LIMITS_EXEMPT"] = "127.0.0.0/8"
    with start_servers(durable=True):
        from django.conf import settings

        settings.ALLOWED_HOSTS = ["*"]
        saved = fill(options.owners)
        in_threads = {kind + IN_THREAD: cookies for kind, cookies in saved.items()}
        cookies = saved | in_threads | {AWAY: saved[BROWSER], NEW: [""]}
        # As in `web`.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            times, rates = runner.run(measure(cookies, options.reads))
    print("| read | p50, ms | p99, ms | a second, 32 at once |\n| --- | ---: | ---: | ---: |")
    for kind, values in times.items():
        quantiles = statistics.quantiles(values, n=100)
        print(f"| {kind} | {quantiles[49]:.2f} | {quantiles[98]:.2f} | {rates[kind]:,.0f} |")
    middle = statistics.median(times[BROWSER])
    print(f"{'reached' if middle < GOAL_MS else 'missed'}: {middle:.2f} ms from Redis, goal under {GOAL_MS:g} ms")


async def measure(cookies: dict[str, list[str]], reads: int) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return the times of single reads, in ms, and how many of 32 at once are answered in a second."""
    from apps.events.recents import async_views, history
    from apps.kernel import redis
    from apps.kernel.db import async_reader
    from apps.kernel.fastpath import redis_connection
    from ticketing.fastpath_routes import create_dispatcher

    logging.getLogger("ticketing.access").disabled = True
    sys.setswitchinterval(0.001)  # As in `web`.
    dispatcher = create_dispatcher(_refuse)
    redis._outage.paused_until = 0.0
    assert await redis_connection.shared.wait_until_connected()
    lists = history.SEARCHES_MAX
    on_loop, never_started = async_reader.shared, async_reader.AsyncReader()
    await on_loop.start()

    async def read(kind: str, number: int) -> float:
        redis._outage.paused_until = float("inf") if kind == AWAY else 0.0
        async_reader.shared = never_started if kind.endswith(IN_THREAD) else on_loop
        headers = cookies[kind]
        started = time.perf_counter()
        body = await _get(dispatcher, headers[number % len(headers)])
        elapsed = 1_000 * (time.perf_counter() - started)
        assert body.count(b'"q"') == (0 if kind == NEW else lists), body
        return elapsed

    times: dict[str, list[float]] = {kind: [] for kind in cookies}
    for number in range(reads + reads // 10):
        for kind in cookies:
            elapsed = await read(kind, number)
            if number >= reads // 10:
                times[kind].append(elapsed)
    rates = {}
    for kind in cookies:
        started = time.perf_counter()
        for number in range(0, reads, TOGETHER):
            await asyncio.gather(*(read(kind, number + one) for one in range(TOGETHER)))
        rates[kind] = reads / (time.perf_counter() - started)
    await on_loop.close()
    assert not async_views._repair_tasks, "a copy was not the one of the last search"
    return times, rates


async def _get(dispatcher: Any, cookie: str) -> bytes:
    headers = [(b"host", b"localhost"), *([(b"cookie", cookie.encode())] if cookie else [])]
    scope = {
        "type": "http", "method": "GET", "path": "/api/search/recents", "raw_path": b"/api/search/recents",
        "query_string": b"", "scheme": "http", "headers": headers, "client": ("127.0.0.1", 50_000),
    }  # fmt: skip
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await dispatcher(scope, _receive, send)
    assert sent[0]["status"] == 200, sent
    return bytes(sent[1]["body"])


async def _receive() -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _refuse(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("a read was forwarded to the site")


if __name__ == "__main__":
    main()
