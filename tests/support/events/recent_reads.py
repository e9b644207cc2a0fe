"""Reads of recent searches through the fast path, with its connection to Redis and its repairs."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from apps.events.recents import async_views, owners
from apps.kernel.fastpath import redis_connection
from apps.kernel.fastpath.request import Request


class Reader:
    """A process of `web`: one event loop with one connection to Redis."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self.ledger_reads = 0
        """Lists that were read from PostgreSQL, because the copy in Redis was not that of the header."""

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._runner.run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        redis_connection.shared.close()

    def read(self, cookies: Mapping[str, str]) -> dict[str, Any]:
        """Return the document for a browser with these cookies, once the copy is repaired if that was necessary."""
        return self._runner.run(self._read(cookies))

    def searches(self, cookies: Mapping[str, str]) -> list[str]:
        return [one["q"] for one in self.read(cookies)["searches"]]

    async def _read(self, cookies: Mapping[str, str]) -> dict[str, Any]:
        await redis_connection.shared.wait_until_connected()
        header = "; ".join(f"{name}={value}" for name, value in cookies.items())
        headers = [(b"host", b"testserver"), *([(b"cookie", header.encode())] if header else [])]
        scope = {
            "type": "http", "method": "GET", "path": "/api/search/recents", "query_string": b"", "scheme": "http",
            "headers": headers, "client": ("127.0.0.1", 50_000),
        }  # fmt: skip
        states = async_views._states
        ask = states.ask

        async def count_and_ask(owner: str) -> Any:
            self.ledger_reads += 1
            return await ask(owner)

        states.ask = count_and_ask  # type: ignore[method-assign]
        try:
            reply = await async_views.recent_searches(Request(scope), "")
        finally:
            del states.ask  # type: ignore[attr-defined]
        while async_views._repair_tasks:
            await asyncio.wait(set(async_views._repair_tasks))
        document: dict[str, Any] = json.loads(reply.body)
        return document


def browser_cookies() -> tuple[owners.Owner, dict[str, str]]:
    """Return a new browser and its cookies."""
    owner, secret = owners.new_browser()
    return owner, {owners.COOKIE: owners._signer.sign(secret)}
