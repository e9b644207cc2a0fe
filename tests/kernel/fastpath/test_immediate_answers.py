"""Requests that are answered in the step in which they arrived, and those that need a task."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from apps.kernel.fastpath.dispatcher import Dispatcher, Route
from apps.kernel.fastpath.request import ForwardToSite, Request
from apps.kernel.fastpath.response import Reply, private_reply
from apps.kernel.http import problems
from apps.kernel.observability import log_context
from tests.support.connections import connection, request
from tests.support.event_loops import run_loop_once

THING = "/api/events/concert/thing"


class Application:
    """A dispatcher with one route, whose handler the test gives, and a site behind it."""

    def __init__(self, handler: Callable[[Request, str], Awaitable[Reply]]) -> None:
        routes = [Route(method, "events/<slug>/thing", handler, "thing", "read") for method in ("GET", "POST")]
        self._dispatcher = Dispatcher(routes, self._site)
        self.respond_sync = self._dispatcher.respond_sync

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._dispatcher(scope, receive, send)

    async def _site(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive() if scope["method"] == "POST" else {"body": b"{}"}
        body = message["body"]
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})


async def handle(request: Request, slug: str) -> Reply:
    return private_reply({"of": slug, **(await request.json_object())})


async def test_a_handler_that_does_not_wait_needs_no_task() -> None:
    protocol, line = connection(Application(handle))
    protocol.data_received(request("POST", THING, b'{"a":1}'))
    assert not protocol.tasks
    assert line.written.endswith(b'{"of":"concert","a":1}')


async def test_a_request_that_arrives_in_two_parts_has_a_task() -> None:
    protocol, line = connection(Application(handle))
    whole = request("POST", THING, b'{"a":1}')
    protocol.data_received(whole[:-3])
    assert len(protocol.tasks) == 1
    protocol.data_received(whole[-3:])
    assert await line.answers(1) == [(200, {"of": "concert", "a": 1})]


async def test_responses_keep_the_order_of_their_requests() -> None:
    """The first request waits for a future. Those pipelined behind it could be answered at once, but wait for it."""
    pending: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def wait_for_post(request: Request, slug: str) -> Reply:
        return private_reply({"result": await pending} if request.method == "POST" else {})

    protocol, line = connection(Application(wait_for_post))
    protocol.data_received(request("POST", THING, b"{}") + request("GET", THING) * 3)
    assert line.written == b""
    pending.set_result("at last")
    assert await line.answers(4) == [(200, {"result": "at last"})] + [(200, {})] * 3
    protocol.data_received(request("GET", THING))
    assert await line.answers(1) == [(200, {})]


async def test_log_records_after_a_wait_have_the_id_of_their_own_request() -> None:
    async def log(request: Request, slug: str) -> Reply:
        await run_loop_once()
        assert log_context.request_id.get() == request.id
        return private_reply({"id": request.id})

    protocol, line = connection(Application(log))
    before = log_context.request_id.get()
    for name in (f"request-{number}" for number in range(3)):
        protocol.data_received(request("GET", THING, X_Request_Id=name))
        assert log_context.request_id.get() == before
        assert await line.answers(1) == [(200, {"id": name})]


@pytest.mark.parametrize("waits", [False, True])
async def test_an_unexpected_error_is_logged_with_the_id_of_its_request(
    waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(request: Request, slug: str) -> Reply:
        if waits:
            await run_loop_once()
        raise KeyError("broken")

    before = log_context.request_id.get()
    protocol, line = connection(Application(fail))
    before = log_context.request_id.get()
    with caplog.filtering(log_context.RequestIdFilter()):
        protocol.data_received(request("GET", THING, X_Request_Id="request-1"))
        assert [status for status, _ in await line.answers(1)] == [500]
    (logged,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert logged.__dict__["request_id"] == "request-1"
    assert log_context.request_id.get() == before


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(("error", "status"), [(problems.NotOwner(), 403), (KeyError("broken"), 500)])
async def test_an_error_becomes_the_response_before_and_after_a_wait(
    error: Exception, status: int, waits: bool
) -> None:
    async def fail(request: Request, slug: str) -> Reply:
        if waits:
            await run_loop_once()
        raise error

    protocol, line = connection(Application(fail))
    protocol.data_received(request("GET", THING))
    assert bool(line.written) is not waits
    assert [found for found, _ in await line.answers(1)] == [status]


@pytest.mark.parametrize("waits", [False, True])
async def test_a_forwarded_request_reaches_the_site_with_its_body_before_and_after_a_wait(waits: bool) -> None:
    calls = []

    async def forward(request: Request, slug: str) -> Reply:
        calls.append(slug)
        if waits:
            await run_loop_once()
        raise ForwardToSite

    protocol, line = connection(Application(forward))
    protocol.data_received(request("POST", THING, b'{"a":1}'))
    assert await line.answers(1) == [(404, {"a": 1})]
    protocol.data_received(request("GET", THING) + request("GET", "/elsewhere"))
    assert await line.answers(2) == [(404, {})] * 2
    assert len(calls) == 2, "no handler is called twice"


async def test_a_disconnected_client_gets_no_bytes() -> None:
    pending: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def wait(request: Request, slug: str) -> Reply:
        return private_reply(await pending)

    protocol, line = connection(Application(wait))
    protocol.data_received(request("GET", THING))
    protocol.connection_lost(None)
    pending.set_result({})
    for _ in range(3):
        await run_loop_once()
    assert line.written == b""


async def test_a_client_that_does_not_read_gets_a_task() -> None:
    protocol, line = connection(Application(handle))
    protocol.pause_writing()
    protocol.data_received(request("GET", THING))
    assert len(protocol.tasks) == 1
    protocol.resume_writing()
    assert await line.answers(1) == [(200, {"of": "concert"})]
