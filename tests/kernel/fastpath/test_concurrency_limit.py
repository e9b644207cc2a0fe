"""The concurrency limit of one event's requests, and which request starts when another one ends."""

import asyncio
import tempfile
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from apps.kernel.fastpath import concurrency_limit as module
from apps.kernel.fastpath.active_events import ACTIVE_SECONDS, ActiveEvents
from apps.kernel.fastpath.concurrency_limit import ConcurrencyLimit
from apps.kernel.fastpath.dispatcher import Dispatcher, PendingAnswer, Route
from apps.kernel.fastpath.request import ForwardToSite, Request
from apps.kernel.fastpath.response import Reply, private_reply
from apps.kernel.http import problems
from tests.support.connections import connection, request
from tests.support.event_loops import run_loop_once


def make_limit(**given: Any) -> ConcurrencyLimit:
    if "activity" not in given:
        given["activity"] = ActiveEvents(Path(mkdtemp(prefix="fairgate-limit-")) / "active")
    return ConcurrencyLimit(
        "tests", **{"alone_max": 2, "beside_max": 1, "waiting_max": 2, "knows": lambda event: True, **given}
    )


class Clocks:
    """The limit's clock, which stands still until `run`."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._numbers = count()
        self._due: list[tuple[float, int, Any, tuple[Any, ...]]] = []

    def call_later(self, seconds: float, act: Any, *args: Any) -> None:
        self._due.append((self.now + seconds, next(self._numbers), act, args))

    async def run(self, seconds: float) -> None:
        until = self.now + seconds
        while due := [one for one in self._due if one[0] <= until]:
            first = min(due)
            self._due.remove(first)
            self.now = first[0]
            first[2](*first[3])
            await run_loop_once()
        self.now = until
        await run_loop_once()


@pytest.fixture
async def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    monkeypatch.setattr(module, "monotonic", lambda: clocks.now)
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", clocks.call_later, raising=False)
    return clocks


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def busy_event_beside_another() -> tuple[ConcurrencyLimit, list[int]]:
    """Two requests of the event are running and five wait. Return the limit and the numbers of those that have
    started."""
    limit = make_limit(beside_max=2, waiting_max=9)
    started: list[int] = []
    assert limit.try_acquire("quiet")
    assert [limit.try_acquire("hot") for _ in range(3)] == [True, True, False]
    for number in range(5):
        limit.wait("hot", lambda refusal, number=number: started.append(number))
    return limit, started


async def test_requests_above_the_limit_start_in_order_as_others_leave() -> None:
    limit = make_limit()
    started: list[object] = []
    assert [limit.try_acquire("a") for _ in range(3)] == [True, True, False]
    limit.wait("a", lambda refusal: started.append((1, refusal)))
    assert not limit.try_acquire("a")
    limit.wait("a", lambda refusal: started.append((2, refusal)))
    with pytest.raises(problems.Busy):
        limit.wait("a", started.append)
    limit.leave("a")
    assert not limit.try_acquire("a"), "no request overtakes those that wait"
    await run_loop_once()
    assert started == [(1, None)]
    limit.leave("a")
    limit.leave("a")
    await run_loop_once()
    assert started == [(1, None), (2, None)]
    limit.leave("a")
    assert [limit.try_acquire("a") for _ in range(3)] == [True, True, False]


async def test_beside_another_event_fewer_run_until_that_event_has_been_quiet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    limit = make_limit()
    assert limit.try_acquire("a")
    assert limit.try_acquire("b")
    assert not limit.try_acquire("a")
    limit.leave("b")
    assert not limit.try_acquire("a"), "b was active a moment ago"
    now += 2 * ACTIVE_SECONDS
    assert limit.try_acquire("a")
    assert not limit.try_acquire("a")


async def test_beside_another_event_a_busy_event_runs_in_groups_with_a_pause_after_each(clocks: Clocks) -> None:
    limit, started = busy_event_beside_another()
    limit.leave("hot")
    await clocks.run(0.05)
    assert started == [], "the next group starts when all of this one have left"
    limit.leave("hot")
    await clocks.run(0.05 * module.PAUSE_FACTOR - 0.01)
    assert started == []
    assert not limit.try_acquire("hot")
    await clocks.run(0.02)
    assert started == [0, 1]
    assert limit.try_acquire("quiet")
    limit.leave("hot")
    await clocks.run(0.2)
    limit.leave("hot")
    await clocks.run(module.PAUSE_SECONDS_MAX)
    assert started == [0, 1, 2, 3], "no pause is longer"
    # One is waiting: no busy event any more, so it starts at once.
    limit.leave("hot")
    await run_loop_once()
    assert started == [0, 1, 2, 3, 4]
    limit.leave("hot")
    limit.leave("hot")
    assert limit.try_acquire("hot")


async def test_a_slow_request_keeps_only_its_own_slot(clocks: Clocks) -> None:
    limit, started = busy_event_beside_another()
    limit.leave("hot")
    await clocks.run(module.CHECK_SECONDS)
    assert started == [0], "the other request is slow"
    limit.leave("hot")
    await clocks.run(module.PAUSE_SECONDS_MAX)
    assert started == [0, 1]
    limit.leave("hot")
    limit.leave("hot")
    await clocks.run(module.PAUSE_SECONDS_MAX)
    assert started == [0, 1, 2, 3]


async def test_a_request_that_has_waited_too_long_is_refused_though_none_leaves(clocks: Clocks) -> None:
    limit = make_limit(alone_max=1)
    started: list[Any] = []
    assert limit.try_acquire("a")
    limit.wait("a", started.append)
    await clocks.run(module.WAIT_SECONDS_MAX)
    assert started == []
    await clocks.run(2 * module.CHECK_SECONDS)
    assert [type(what) for what in started] == [problems.Busy]
    limit.leave("a")
    assert limit.try_acquire("a")


async def test_a_request_that_has_waited_too_long_is_refused_at_its_turn_and_the_next_one_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    limit = make_limit(alone_max=1)
    started: list[Any] = []
    assert limit.try_acquire("a")
    limit.wait("a", started.append)
    now += module.WAIT_SECONDS_MAX + 1
    assert not limit.try_acquire("a")
    limit.wait("a", started.append)
    limit.leave("a")
    await run_loop_once()
    assert [type(what) for what in started] == [problems.Busy, type(None)]


async def test_a_canceled_request_takes_no_slot() -> None:
    limit = make_limit(alone_max=1)
    assert limit.try_acquire("a")
    canceled, stays = asyncio.create_task(limit.acquire("a")), asyncio.create_task(limit.acquire("a"))
    await run_loop_once()
    canceled.cancel()
    await run_loop_once()
    limit.leave("a")
    await asyncio.wait_for(stays, 20)
    limit.leave("a")
    await asyncio.wait_for(limit.acquire("a"), 20)
    late = asyncio.create_task(limit.acquire("a"))
    await run_loop_once()
    limit.leave("a")
    asyncio.get_running_loop().call_soon(late.cancel)  # In the same step in which its turn came.
    await asyncio.wait([late])
    assert late.cancelled()
    await asyncio.wait_for(limit.acquire("a"), 20)


async def test_unknown_events_are_not_limited() -> None:
    limit = make_limit(knows=lambda event: event == "a")
    assert limit.applies_to("a")
    assert not limit.applies_to("made up")


@pytest.mark.parametrize("limits", [{"alone_max": 0}, {"beside_max": 0}, {"waiting_max": -1}])
def test_limits_that_would_let_no_request_through_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ImproperlyConfigured):
        make_limit(**limits)


class Application:
    """One route with a concurrency limit, whose replies come when the test resolves their futures."""

    def __init__(self, limit: ConcurrencyLimit) -> None:
        self.pending: list[asyncio.Future[None]] = []
        self._dispatcher = Dispatcher(
            [Route("POST", "events/<slug>/thing", self._handle, "thing", "hold", self._respond_sync, limit)], echo
        )
        self.respond_sync = self._dispatcher.respond_sync

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._dispatcher(scope, receive, send)

    def _respond_sync(self, request: Request, slug: str, body: bytes | bytearray) -> PendingAnswer:
        if body == b"{}":
            raise problems.NotOwner
        self.pending.append(asyncio.get_running_loop().create_future())
        return PendingAnswer(self.pending[-1], lambda result: private_reply({"by": slug}))

    async def _handle(self, request: Request, slug: str) -> Reply:
        return private_reply({"handled": await request.json_object()})


async def echo(scope: Any, receive: Any, send: Any) -> None:
    pytest.fail("no request here is for the site")


def thing(event: str, body: bytes = b'{"a":1}') -> bytes:
    return request("POST", f"/api/events/{event}/thing", body)


async def test_requests_of_a_busy_event_wait_and_those_of_another_event_do_not() -> None:
    application = Application(make_limit())
    connections = [connection(application) for _ in range(5)]
    for protocol, _ in connections:
        protocol.data_received(thing("hot"))
    assert len(application.pending) == 2
    assert (await connections[4][1].answers(1))[0][0] == 503
    protocol, line = connection(application)
    protocol.data_received(thing("quiet"))
    assert len(application.pending) == 3
    application.pending[2].set_result(None)
    assert await line.answers(1) == [(200, {"by": "quiet"})]
    connections[2][0].connection_lost(None)
    application.pending[0].set_result(None)
    application.pending[1].set_result(None)
    async with asyncio.timeout(20):
        while len(application.pending) < 4:
            await run_loop_once()
    # A disconnected client was skipped.
    assert len(application.pending) == 4
    application.pending[3].set_result(None)
    for number in (0, 1, 3):
        assert await connections[number][1].answers(1) == [(200, {"by": "hot"})]


async def test_an_incomplete_request_keeps_no_slot() -> None:
    application = Application(make_limit(alone_max=1))
    slow, slow_line = connection(application)
    slow.data_received(thing("hot")[:-1])
    for _ in range(5):
        await run_loop_once()
    protocol, line = connection(application)
    protocol.data_received(thing("hot"))
    application.pending[0].set_result(None)
    assert await line.answers(1) == [(200, {"by": "hot"})]
    slow.data_received(thing("hot")[-1:])
    assert await slow_line.answers(1) == [(200, {"handled": {"a": 1}})]


async def test_a_client_that_does_not_read_keeps_no_slot() -> None:
    application = Application(make_limit(alone_max=1))
    paused, paused_line = connection(application)
    paused.pause_writing()
    paused.data_received(thing("hot"))
    for _ in range(5):
        await run_loop_once()
    assert paused_line.written == b""
    protocol, line = connection(application)
    protocol.data_received(thing("hot"))
    application.pending[0].set_result(None)
    assert await line.answers(1) == [(200, {"by": "hot"})]
    paused.resume_writing()
    assert await paused_line.answers(1) == [(200, {"handled": {"a": 1}})]


async def test_a_body_read_before_its_turn_is_there_for_the_site() -> None:
    async def handler(request: Request, slug: str) -> Reply:
        raise ForwardToSite

    async def site(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        body += message["body"]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    limit = make_limit(alone_max=1)
    protocol, line = connection(
        Dispatcher([Route("POST", "events/<slug>/thing", handler, "thing", "hold", None, limit)], site)
    )
    for _ in range(2):
        raw = thing("hot")
        for piece in (raw[:-3], raw[-3:-1], raw[-1:]):
            protocol.data_received(piece)
            await run_loop_once()
        assert await line.answers(1) == [(200, {"a": 1})]
        assert limit.try_acquire("hot")
        limit.leave("hot")


async def test_every_outcome_releases_the_slot() -> None:
    application = Application(make_limit(alone_max=1))
    protocol, line = connection(application)
    for _ in range(2):
        protocol.data_received(thing("hot", b"{}"))  # Refused synchronously.
        assert (await line.answers(1))[0][0] == 403
        protocol.data_received(thing("hot")[:-1])
        protocol.data_received(thing("hot")[-1:])  # By the handler, since it arrived in two parts.
        assert await line.answers(1) == [(200, {"handled": {"a": 1}})]
        protocol.data_received(thing("hot"))
        application.pending[-1].set_exception(problems.NotOwner())
        assert (await line.answers(1))[0][0] == 403
    disconnected, _ = connection(application)
    disconnected.data_received(thing("hot"))
    disconnected.connection_lost(None)
    protocol.data_received(thing("hot"))
    assert line.written == b""
    application.pending[-1].set_result(None)
    await run_loop_once()
    await run_loop_once()
    application.pending[-1].set_result(None)
    assert await line.answers(1) == [(200, {"by": "hot"})]
