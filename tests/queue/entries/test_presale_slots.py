"""Joins of a presale take a slot of their event only once their condition was checked."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from apps.events import facade as events
from apps.kernel import clock
from apps.queue import async_views
from apps.queue.entries import presale
from tests.support.connections import connection, request
from tests.support.factories import make_access_code, make_event
from ticketing.fastpath_routes import create_dispatcher

pytestmark = pytest.mark.django_db(transaction=True)


async def _forward(scope: Any, receive: Any, send: Any) -> None:
    pytest.fail("no request here is for the site")


async def _join(visitor: str, code: str) -> int:
    dispatcher = create_dispatcher(_forward)
    protocol, line = connection(dispatcher)
    body = json.dumps({"visitor_id": visitor.rjust(16, "-"), "access_code": code}).encode()
    protocol.data_received(request("POST", "/api/events/concert/queue", body))
    ((status, _),) = await line.answers(1)
    return int(status)


def test_joins_that_wait_for_a_thread_hold_no_slot_of_their_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client's join waits for a thread to check its code, while another client's join is handled."""
    event = make_event(general_admission=50, presale=events.Presale("code", clock.now() + timedelta(hours=1)))
    make_access_code(event, code="CLUB")
    for limit in (async_views.join_limit, async_views.presale_limit):
        monkeypatch.setattr(limit, "_alone_max", 1)
        monkeypatch.setattr(limit, "_beside_max", 1)

    async def run() -> None:
        waits, may_go = asyncio.Event(), asyncio.Event()

        async def get_access(event: Any, caller: Any, code: str, address: Any) -> Any:
            if code == "SLOW":
                waits.set()
                await may_go.wait()
            return await presale.get_access_async(event, caller, "CLUB", address)

        monkeypatch.setattr(async_views, "get_access_async", get_access)
        assert await _join("first", "CLUB") == 201, "the process knows the event now"
        slow = asyncio.create_task(_join("slow", "SLOW"))
        async with asyncio.timeout(10):
            await waits.wait()
            assert await _join("quick", "CLUB") == 201
        may_go.set()
        assert await slow == 201

    asyncio.run(run())
