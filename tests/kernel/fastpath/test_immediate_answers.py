"""Requests that are answered in the step in which they arrived, and those that need a task."""

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


class Application:
    """A dispatcher with one route, whose synchronous handler the test gives, and a site behind it."""

    def __init__(self, respond_sync: Callable[[Request, str, bytearray], Any]) -> None:
        self.calls = 0
        """Calls of the asynchronous handler."""
        self._dispatcher = Dispatcher([Route(method, "events/<slug>/thing", self._handle, "thing", "read", respond_sync)
                           for method in ("GET", "POST")], self._site)  # fmt: skip
        self.respond_sync = self._dispatcher.respond_sync

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._dispatcher(scope, receive, send)

    async def _handle(self, request: Request, slug: str) -> Reply:
        self.calls += 1
        body = await request.json_object() if request.method == "POST" else {}
        return private_reply({"by": "handler", **body})

    async def _site(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"{}"})


async def test_a_synchronous_answer_creates_no_task() -> None:
    application = Application(
        lambda request, slug, body: private_reply({"by": "sync", "of": slug, "body": body.decode()})
    )
    protocol, line = connection(application)
    protocol.data_received(request("POST", THING, b'{"a":1}'))
    assert not protocol.tasks
    assert await line.answers(1) == [(200, {"by": "sync", "of": "concert", "body": '{"a":1}'})]
    assert application.calls == 0


async def test_without_a_synchronous_answer_the_handler_gets_the_whole_request() -> None:
    application = Application(lambda request, slug, body: None)
    protocol, line = connection(application)
    whole = request("POST", THING, b'{"a":1}')
    protocol.data_received(whole)
    assert await line.answers(1) == [(200, {"by": "handler", "a": 1})]
    # Nor is a request that arrives in two parts answered synchronously.
    application = Application(lambda request, slug, body: pytest.fail("only half of the request is here"))
    protocol, line = connection(application)
    protocol.data_received(whole[:-3])
    protocol.data_received(whole[-3:])
    assert await line.answers(1) == [(200, {"by": "handler", "a": 1})]


async def test_responses_keep_the_order_of_their_requests() -> None:
    """The first request waits for a future. Those pipelined behind it could be answered at once, but wait for it."""
    pending: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def respond_sync(request: Request, slug: str, body: bytearray) -> Any:
        return (
            PendingAnswer(pending, lambda result: private_reply({"result": result}))
            if request.method == "POST"
            else private_reply({})
        )

    protocol, line = connection(Application(respond_sync))
    protocol.data_received(request("POST", THING, b"{}") + request("GET", THING) * 3)
    assert line.written == b""
    pending.set_result("at last")
    assert await line.answers(4) == [(200, {"result": "at last"})] + [(200, {})] * 3
    protocol.data_received(request("GET", THING))
    assert await line.answers(1) == [(200, {})]


async def test_a_pending_answer_may_become_a_refusal_a_fault_or_a_continuation() -> None:
    loop = asyncio.get_running_loop()

    async def rest() -> Reply:
        return private_reply({"by": "rest"}, 201)

    cases: list[tuple[Exception | str, Callable[[Any], Any]]] = [
        (problems.NotOwner(), lambda answer: pytest.fail("it is a refusal")),
        (KeyError("broken"), lambda answer: pytest.fail("it is a fault")),
        ("good", lambda answer: 1 / 0),
        ("good", lambda answer: rest),
    ]
    found = []
    for what, then in cases:
        pending: asyncio.Future[Any] = loop.create_future()
        protocol, line = connection(Application(lambda request, slug, body: PendingAnswer(pending, then)))  # noqa: B023 - called at once
        protocol.data_received(request("GET", THING))
        pending.set_exception(what) if isinstance(what, Exception) else pending.set_result(what)
        found += await line.answers(1)
    assert [(status, document.get("type", document.get("by"))) for status, document in found] == [
        (403, "not-owner"), (500, "fault"), (500, "fault"), (201, "rest"),
    ]  # fmt: skip


async def test_a_synchronous_refusal_is_the_response_and_a_forwarded_request_reaches_the_site() -> None:
    def refuse(error: Exception) -> Any:
        raise error

    for error, status in ((problems.NotOwner(), 403), (ZeroDivisionError(), 500)):
        protocol, line = connection(Application(lambda request, slug, body: refuse(error)))  # noqa: B023 - called at once
        protocol.data_received(request("GET", THING))
        assert [found for found, _ in await line.answers(1)] == [status]

    class Forwarding(Application):
        async def _handle(self, request: Request, slug: str) -> Reply:
            raise ForwardToSite

    for application in (Forwarding(lambda request, slug, body: refuse(ForwardToSite())), Forwarding(lambda *_: None)):
        protocol, line = connection(application)
        protocol.data_received(request("GET", THING) + request("GET", "/elsewhere"))
        assert [found for found, _ in await line.answers(2)] == [404, 404]


async def test_a_disconnected_client_gets_no_bytes_and_a_client_that_does_not_read_gets_a_task() -> None:
    pending: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    protocol, line = connection(
        Application(lambda request, slug, body: PendingAnswer(pending, lambda result: private_reply({})))
    )
    protocol.data_received(request("GET", THING))
    protocol.connection_lost(None)
    pending.set_result("too late")
    await run_loop_once()
    await run_loop_once()
    assert line.written == b""

    protocol, line = connection(Application(lambda request, slug, body: pytest.fail("the client does not read")))
    protocol.pause_writing()
    protocol.data_received(request("GET", THING))
    assert len(protocol.tasks) == 1
    protocol.resume_writing()
    assert await line.answers(1) == [(200, {"by": "handler"})]
