"""Event loops in tests."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def outside_event_loop() -> Iterator[None]:
    """Make this thread look as if it ran no event loop: Django then gives it the connection it has outside of one, with
    the transaction that the test is wrapped in."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)


async def run_loop_once() -> None:
    """Let the event loop run one iteration: every callback that was ready has run."""
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await turned
