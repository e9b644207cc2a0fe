"""What is answered in the very step in which its request came, beside what takes a task."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from apps.kernel.fastpath.dispatcher import Dispatcher, PendingAnswer, Route
from apps.kernel.fastpath.request import ForwardToSite, Request
from apps.kernel.fastpath.response import Reply, private_reply
from apps.kernel.http import problems
from tests.support.connections import connection, request
from tests.support.event_loops import run_loop_once

THING = "/api/events/concert/thing"


class House:
    """A lane whose one route answers as the test says, and a site behind it."""

    def __init__(self, sight: Callable[[Request, str, bytearray], Any]) -> None:
        self.asked = 0
        """Times that the handler was."""
        self._lane = Dispatcher([Route(method, "events/<slug>/thing", self._handle, "thing", "read", sight)
                           for method in ("GET", "POST")], self._site)  # fmt: skip
        self.respond_sync = self._lane.respond_sync

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._lane(scope, receive, send)

    async def _handle(self, request: Request, slug: str) -> Reply:
        self.asked += 1
        body = await request.json_object() if request.method == "POST" else {}
        return private_reply({"by": "handler", **body})

    async def _site(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"{}"})


async def test_what_is_told_at_sight_makes_no_task() -> None:
    house = House(lambda request, slug, body: private_reply({"by": "sight", "of": slug, "body": body.decode()}))
    wire, line = connection(house)
    wire.data_received(request("POST", THING, b'{"a":1}'))
    assert not wire.tasks
    assert await line.answers(1) == [(200, {"by": "sight", "of": "concert", "body": '{"a":1}'})]
    assert house.asked == 0


async def test_what_cannot_be_told_at_sight_the_handler_tells_body_and_all() -> None:
    house = House(lambda request, slug, body: None)
    wire, line = connection(house)
    whole = request("POST", THING, b'{"a":1}')
    wire.data_received(whole)
    assert await line.answers(1) == [(200, {"by": "handler", "a": 1})]
    # Nor is a request that comes in two pieces.
    house = House(lambda request, slug, body: pytest.fail("only half of it is here"))
    wire, line = connection(house)
    wire.data_received(whole[:-3])
    wire.data_received(whole[-3:])
    assert await line.answers(1) == [(200, {"by": "handler", "a": 1})]


async def test_answers_keep_the_order_of_their_requests() -> None:
    """The first waits for somebody else's answer; those sent behind it, which could be told at once, wait for it."""
    heard: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def sight(request: Request, slug: str, body: bytearray) -> Any:
        return (
            PendingAnswer(heard, lambda said: private_reply({"said": said}))
            if request.method == "POST"
            else private_reply({})
        )

    wire, line = connection(House(sight))
    wire.data_received(request("POST", THING, b"{}") + request("GET", THING) * 3)
    assert line.written == b""
    heard.set_result("at last")
    assert await line.answers(4) == [(200, {"said": "at last"})] + [(200, {})] * 3
    wire.data_received(request("GET", THING))
    assert await line.answers(1) == [(200, {})]


async def test_what_was_heard_may_be_a_refusal_a_fault_or_the_beginning_of_more() -> None:
    loop = asyncio.get_running_loop()

    async def rest() -> Reply:
        return private_reply({"by": "rest"}, 201)

    said: list[tuple[Exception | str, Callable[[Any], Any]]] = [
        (problems.NotOwner(), lambda answer: pytest.fail("it is a refusal")),
        (KeyError("broken"), lambda answer: pytest.fail("it is a fault")),
        ("good", lambda answer: 1 / 0),
        ("good", lambda answer: rest),
    ]
    found = []
    for what, then in said:
        heard: asyncio.Future[Any] = loop.create_future()
        wire, line = connection(House(lambda request, slug, body: PendingAnswer(heard, then)))  # noqa: B023 - asked at once
        wire.data_received(request("GET", THING))
        heard.set_exception(what) if isinstance(what, Exception) else heard.set_result(what)
        found += await line.answers(1)
    assert [(status, document.get("type", document.get("by"))) for status, document in found] == [
        (403, "not-owner"), (500, "fault"), (500, "fault"), (201, "rest"),
    ]  # fmt: skip


async def test_a_refusal_at_sight_is_the_handlers_and_what_is_the_sites_goes_there() -> None:
    def refuse(error: Exception) -> Any:
        raise error

    for error, status in ((problems.NotOwner(), 403), (ZeroDivisionError(), 500)):
        wire, line = connection(House(lambda request, slug, body: refuse(error)))  # noqa: B023 - asked at once
        wire.data_received(request("GET", THING))
        assert [found for found, _ in await line.answers(1)] == [status]

    class Forwarding(House):
        async def _handle(self, request: Request, slug: str) -> Reply:
            raise ForwardToSite

    for house in (Forwarding(lambda request, slug, body: refuse(ForwardToSite())), Forwarding(lambda *_: None)):
        wire, line = connection(house)
        wire.data_received(request("GET", THING) + request("GET", "/elsewhere"))
        assert [found for found, _ in await line.answers(2)] == [404, 404]


async def test_a_client_that_has_gone_is_written_nothing_and_one_that_does_not_read_has_a_task() -> None:
    heard: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    wire, line = connection(House(lambda request, slug, body: PendingAnswer(heard, lambda said: private_reply({}))))
    wire.data_received(request("GET", THING))
    wire.connection_lost(None)
    heard.set_result("too late")
    await run_loop_once()
    await run_loop_once()
    assert line.written == b""

    wire, line = connection(House(lambda request, slug, body: pytest.fail("nobody reads")))
    wire.pause_writing()
    wire.data_received(request("GET", THING))
    assert len(wire.tasks) == 1
    wire.resume_writing()
    assert await line.answers(1) == [(200, {"by": "handler"})]
