"""One client occupies few threads of the site: its further requests wait in `web`, and those of others do not."""

import asyncio
import contextlib
import gc
import ipaddress
from collections.abc import AsyncIterator
from typing import Any

import pytest

from apps.kernel.rate_limits import address_caps
from tests.support.event_loops import run_loop_once
from ticketing.server import site_turns
from ticketing.server.site_proxy import REQUESTS_PER_ADDRESS_MAX, Forwarder

WAIT_SECONDS_MAX = 10
BUSY, OTHER = "203.0.113.1", "203.0.113.2"


class WaitingSite:
    """A site that records the addresses of its requests, and answers when `go_on` is set: `/begins` has the headers of
    its answer before."""

    def __init__(self) -> None:
        self.arrived: list[str] = []
        self.go_on, self._arrival = asyncio.Event(), asyncio.Condition()
        self.forwarder: Forwarder

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        async with self._arrival:
            self.arrived.append(head.partition("x-forwarded-for: ")[2].split("\r\n")[0])
            self._arrival.notify_all()
        start = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n"
        if "/begins" in head:
            writer.write(start)
            start = b""
        await self.go_on.wait()
        writer.write(start + b"x")
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS_MAX), self._arrival:
            await self._arrival.wait_for(lambda: len(self.arrived) >= count)

    def ask(self, address: str, path: str = "/healthz", leaves: asyncio.Event | None = None) -> "asyncio.Task[int]":
        """Send a request; its task returns the status of the answer, 0 for none. The client goes away at `leaves`."""
        statuses = []

        async def receive() -> Any:
            await (leaves or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            statuses.append(message.get("status"))

        async def forward() -> int:
            scope = {"type": "http", "method": "GET", "path": path, "client": (address, 1), "headers": []}
            await self.forwarder(scope, receive, send)
            return statuses[0] if statuses else 0

        return asyncio.create_task(forward())


@contextlib.asynccontextmanager
async def waiting_site(turns_per_address: int) -> AsyncIterator[WaitingSite]:
    """Run such a site behind a forwarder with so many turns. At the end it answers, and no client may be kept."""
    site = WaitingSite()
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
    site.forwarder = Forwarder("127.0.0.1", server.sockets[0].getsockname()[1], turns_per_address=turns_per_address)
    yield site
    gc.collect()  # A refused request leaves its frames to the collector.
    assert not site.forwarder._slots
    assert not site.forwarder._turns._semaphores
    await site.forwarder.close()
    server.close()


async def test_requests_of_one_address_wait_for_each_other_and_not_for_those_of_others() -> None:
    """The further requests of the first address come before that of the second, and reach the site after it."""
    async with waiting_site(REQUESTS_PER_ADDRESS_MAX) as site:
        asking = [site.ask(BUSY) for _ in range(REQUESTS_PER_ADDRESS_MAX + 5)]
        await site.until(REQUESTS_PER_ADDRESS_MAX)
        asking.append(site.ask(OTHER))
        await site.until(REQUESTS_PER_ADDRESS_MAX + 1)
        assert site.arrived == [BUSY] * REQUESTS_PER_ADDRESS_MAX + [OTHER]
        site.go_on.set()
        assert await asyncio.gather(*asking) == [200] * len(asking)
        del asking


async def test_slow_requests_of_one_address_occupy_its_turns_only() -> None:
    """Sixteen of them reached the site at once, and kept its few threads from all others until all were answered."""
    async with waiting_site(2) as site:
        asking = [site.ask(BUSY) for _ in range(REQUESTS_PER_ADDRESS_MAX)]
        await site.until(2)
        asking.append(site.ask(OTHER))
        await site.until(3)
        assert site.arrived == [BUSY, BUSY, OTHER]
        site.go_on.set()
        assert await asyncio.gather(*asking) == [200] * len(asking)
        del asking


async def test_a_turn_ends_when_the_site_begins_its_answer() -> None:
    """A colleague who does not read a download, or reads it slowly, occupies no thread of the site."""
    async with waiting_site(1) as site:
        asking = [site.ask(BUSY, "/begins"), site.ask(BUSY, "/begins"), site.ask(BUSY)]
        await site.until(3)
        site.go_on.set()
        assert await asyncio.gather(*asking) == [200] * 3
        del asking


async def test_a_client_that_goes_away_keeps_its_turn_until_the_site_begins_its_answer() -> None:
    """The site's thread goes on. Sixty requests that were aborted at once kept all threads from others for seconds."""
    async with waiting_site(1) as site:
        leaves = asyncio.Event()
        asking = [site.ask(BUSY, leaves=leaves)]
        await site.until(1)
        leaves.set()
        for _ in range(10):
            await run_loop_once()
        asking += [site.ask(BUSY), site.ask(OTHER)]
        await site.until(2)
        assert site.arrived == [BUSY, OTHER]
        site.go_on.set()
        assert await asyncio.gather(*asking) == [0, 200, 200]
        del asking


async def test_a_client_that_goes_away_while_it_waits_leaves_its_place() -> None:
    async with waiting_site(1) as site:
        leaves = asyncio.Event()
        asking = [site.ask(BUSY)]
        await site.until(1)
        asking.append(site.ask(BUSY, leaves=leaves))
        await run_loop_once()
        leaves.set()
        assert await asking[1] == 0
        site.go_on.set()
        assert await asking[0] == 200
        assert site.arrived == [BUSY]
        del asking


async def test_the_turn_of_an_export_ends_after_some_seconds_and_that_of_a_page_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When all did, one address reached all threads with a slow page every five seconds."""
    monkeypatch.setattr(site_turns, "EXPORT_SECONDS_MAX", 0.01)
    export = "/admin/events/event/1/orders.csv"
    async with waiting_site(1) as site:
        asking = [site.ask(BUSY, export), site.ask(BUSY, export), site.ask(BUSY), site.ask(BUSY, "/admin/")]
        await site.until(3)
        asking.append(site.ask(OTHER))
        await site.until(4)
        assert site.arrived == [BUSY] * 3 + [OTHER]
        site.go_on.set()
        assert await asyncio.gather(*asking) == [200] * 5
        del asking


async def test_pages_that_are_rendered_for_all_visitors_take_turns_of_the_client_that_asked() -> None:
    """One address had as many large pages rendered at once as the site has threads."""

    async def render(site: WaitingSite, address: str) -> int:
        scope = {"type": "http", "method": "GET", "path": "/", "scheme": "http", "client": (address, 1), "headers": []}
        async with site.forwarder.render_slot(scope):
            response = await site.forwarder.fetch(scope, "/", "testserver", "en", 1_000, is_repeated=False)
        assert response is not None
        return response.status

    async with waiting_site(1) as site:
        rendering = [asyncio.create_task(render(site, BUSY)) for _ in range(3)]
        await site.until(1)
        rendering.append(asyncio.create_task(render(site, OTHER)))
        await site.until(2)
        for _ in range(10):
            await run_loop_once()
        assert len(site.arrived) == 2
        site.go_on.set()
        assert await asyncio.gather(*rendering) == [200] * 4
        del rendering


async def test_a_request_that_waits_too_long_is_refused_and_one_that_is_canceled_leaves_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with waiting_site(1) as site:
        first = site.ask(BUSY)
        await site.until(1)
        canceled = site.ask(BUSY)
        await run_loop_once()
        monkeypatch.setattr(site_turns, "WAIT_SECONDS_MAX", 0.01)
        assert await site.ask(BUSY) == 503
        canceled.cancel()
        await asyncio.wait([canceled])
        monkeypatch.setattr(site_turns, "WAIT_SECONDS_MAX", WAIT_SECONDS_MAX)
        last = site.ask(BUSY)
        await run_loop_once()
        site.go_on.set()
        assert await asyncio.gather(first, last) == [200, 200]
        del first, canceled, last


async def test_the_addresses_of_a_48_share_twice_the_turns_of_one_of_them() -> None:
    async with waiting_site(1) as site:
        asking = [site.ask(f"2001:db8:0:{number}::1") for number in range(6)]
        await site.until(2)
        asking.append(site.ask("2001:db8:1::1"))
        await site.until(3)
        assert site.arrived[2] == "2001:db8:1::1"
        site.go_on.set()
        assert await asyncio.gather(*asking) == [200] * len(asking)
        del asking


@pytest.mark.parametrize(
    ("address", "most"),
    [pytest.param("203.0.113.1", 6, id="raised"), pytest.param("", 10, id="without limits")],
)
async def test_an_address_may_have_more_turns_or_need_none(settings: Any, address: str, most: int) -> None:
    settings.ADDRESS_CAPS_RAISED = [(ipaddress.ip_network("203.0.113.0/24"), 3)]
    address_caps.forget_settings()
    try:
        async with waiting_site(2) as site:
            asking = [site.ask(address) for _ in range(10)]
            await site.until(most)
            asking.append(site.ask("198.51.100.1"))
            await site.until(most + 1)
            assert site.arrived == [address] * most + ["198.51.100.1"]
            site.go_on.set()
            assert await asyncio.gather(*asking) == [200] * len(asking)
            del asking
    finally:
        address_caps.forget_settings()


@pytest.mark.parametrize(
    ("threads", "processes", "share"), [(2, 1, 1), (4, 2, 1), (16, 8, 1), (1, 1, 1), (8, 1, 7), (12, 4, 2)]
)
def test_an_address_cannot_occupy_all_threads_by_way_of_all_processes(threads: int, processes: int, share: int) -> None:
    assert site_turns.share_of_threads(threads, processes) == share
