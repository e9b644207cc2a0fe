"""Event loops in tests."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def outside_event_loop() -> Iterator[None]:
    """In the block this thread runs no loop as far as anybody can tell: Django gives it the connection that it has
    outside of one, with the transaction that a test is wrapped in."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)


async def run_loop_once() -> None:
    """The loop has gone round once: whatever was ready has gone on."""
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await turned
