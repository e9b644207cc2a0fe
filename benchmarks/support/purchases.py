"""Buyers over HTTP, as tasks of one event loop: each joins, holds tickets, checks out, and polls its order until it has
tickets. A refused request that names a time (`Retry-After`) is repeated then, under the same key."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.suite.load.raw_requests import get, post

POLL_SECONDS, POLL_SECONDS_MAX = 0.25, 2.0
"""The first pause between two polls of an order, and the longest."""
ATTEMPTS_MAX = 100
OPEN = frozenset({"placed", "paying"})
_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class PurchaseFailed(Exception):
    """A request got a response that no buyer expects."""


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    document: dict[str, Any]
    retry_after: float | None


class Shop:
    """Kept connections to one server, at most `connections`; further requests wait for one."""

    def __init__(self, port: int, connections: int) -> None:
        self._port = port
        self._free: asyncio.LifoQueue[_Stream | None] = asyncio.LifoQueue()
        for _ in range(connections):
            self._free.put_nowait(None)
        self.refused_count = 0
        """Requests that were asked to come back."""

    async def call(self, request: bytes) -> Response:
        """Send the request until it gets a response other than "come back later". Raises PurchaseFailed."""
        for _ in range(ATTEMPTS_MAX):
            try:
                response = await self._send(request)
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(random.uniform(0.1, 0.3))  # noqa: S311 - spreads load
                continue
            if response.status not in (429, 503):
                return response
            self.refused_count += 1
            await asyncio.sleep((response.retry_after or 1.0) * random.uniform(1.0, 1.5))  # noqa: S311 - the same
        raise PurchaseFailed(f"no response after {ATTEMPTS_MAX} attempts to {request.splitlines()[0]!r}")

    async def _send(self, request: bytes) -> Response:
        stream = await self._free.get()
        kept: _Stream | None = None
        try:
            reader, writer = stream or await asyncio.open_connection("127.0.0.1", self._port)
            try:
                writer.write(request)
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
                body = await reader.readexactly(int(headers["content-length"]))
            except BaseException:
                writer.close()
                raise
            if headers.get("connection") == "close":
                writer.close()
            else:
                kept = reader, writer
        finally:
            self._free.put_nowait(kept)
        later = headers.get("retry-after")
        return Response(int(head.split(" ", 2)[1]), json.loads(body), float(later) if later else None)

    def close(self) -> None:
        while not self._free.empty():
            if stream := self._free.get_nowait():
                stream[1].close()


@asynccontextmanager
async def open_shop(port: int, connections: int) -> AsyncIterator[Shop]:
    shop = Shop(port, connections)
    try:
        yield shop
    finally:
        shop.close()


async def join(shop: Shop, event: str, visitor: str) -> str:
    """Join the event's line and return the admission token: the event has no waiting room. Raises PurchaseFailed."""
    response = await shop.call(post(f"/api/events/{event}/queue", json.dumps({"visitor_id": visitor})))
    if token := response.document.get("admission_token"):
        return str(token)
    raise PurchaseFailed(f"joined without an admission: {response}")


async def buy(
    shop: Shop, event: str, visitor: str, token: str, selections: Iterable[Mapping[str, Any]], *, payment_method: str
) -> float | None:
    """Hold the first of these selections that is not refused, check out, and poll until the order has its tickets.
    Return the moment of the poll that showed them (monotonic clock), or None if everything was taken. Raises
    PurchaseFailed."""
    path = f"/api/events/{event}/reservations"
    for number, selection in enumerate(selections):
        held = await shop.call(post(path, json.dumps(selection), token, f"{visitor}-{number}"))
        if held.status == 201:
            break
        if held.status != 409:
            raise PurchaseFailed(f"hold: {held}")
    else:
        return None
    buyer = {"email": f"{visitor}@example.org", "name": "Ada Buyer", "payment_method": payment_method}
    path = f"/api/reservations/{held.document['reservation_id']}/checkout"
    placed = await shop.call(post(path, json.dumps(buyer), token, f"{visitor}-pay"))
    if placed.status not in (200, 202):
        raise PurchaseFailed(f"checkout: {placed}")
    pause = POLL_SECONDS
    while True:
        await asyncio.sleep(pause)
        order = await shop.call(get(f"/api/orders/{placed.document['order_id']}", token))
        tickets = order.document.get("tickets") or []
        if order.status == 200 and order.document["status"] == "confirmed" and tickets:
            return time.monotonic()
        if order.status != 200 or order.document["status"] not in (*OPEN, "confirmed"):
            raise PurchaseFailed(f"order: {order}")
        pause = min(POLL_SECONDS_MAX, pause * 1.5)
