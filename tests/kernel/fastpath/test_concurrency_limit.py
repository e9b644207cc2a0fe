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
from apps.kernel.fastpath import eager
from apps.kernel.fastpath.active_events import ACTIVE_SECONDS, ActiveEvents
from apps.kernel.fastpath.concurrency_limit import ConcurrencyLimit
from apps.kernel.fastpath.dispatcher import Dispatcher, Route
from apps.kernel.fastpath.request import ForwardToSite, Request
from apps.kernel.fastpath.response import Reply, private_reply
from apps.kernel.http import problems
from tests.support.connections import connection, request
from tests.support.event_loops import run_loop_once

LATE_SECONDS = 0.25


def make_limit(**given: Any) -> ConcurrencyLimit:
    if "activity" not in given:
        given["activity"] = ActiveEvents(Path(mkdtemp(prefix="fairgate-limit-")) / "active", requests_min=1)
    return ConcurrencyLimit(
        "tests",
        **{
            "alone_max": 2,
            "beside_max": 1,
            "waiting_max": 2,
            "late_seconds": LATE_SECONDS,
            "find_key": lambda event: event,
            **given,
        },
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


class Requests:
    """Requests at one limit, by name."""

    def __init__(self, **given: Any) -> None:
        self.limit = make_limit(**given)
        self.started: list[str] = []
        self.refused: list[str] = []

    def begin(self, event: str, name: str = "") -> bool:
        """Begin a request. Return whether it does not have to wait."""
        result = eager.start(self._run(event, name))
        if isinstance(result, eager.Waiting):
            result.resume_later(lambda result, error: None)
            return False
        return True

    async def _run(self, event: str, name: str) -> bool:
        try:
            await self.limit.acquire(event)
        except problems.Busy:
            self.refused.append(name)
        else:
            self.started.append(name)
            self.limit.note_activity(event)
        return True


def busy_event_beside_another() -> Requests:
    """Two requests of the event are running and five wait, named by their numbers."""
    requests = Requests(alone_max=9, beside_max=2, waiting_max=9)
    assert requests.begin("quiet")
    assert [requests.begin("hot") for _ in range(2)] == [True, True]
    assert not any(requests.begin("hot", str(number)) for number in range(5))
    requests.started.clear()
    return requests


async def test_requests_above_the_limit_start_in_order_as_others_leave() -> None:
    requests = Requests()
    assert [requests.begin("a", name) for name in "12345"] == [True, True, False, False, True]
    assert requests.refused == ["5"]
    requests.limit.leave("a")
    requests.begin("a", "6")
    await run_loop_once()
    assert requests.started == ["1", "2", "3"], "no request overtakes those that wait"
    for _ in range(2):
        requests.limit.leave("a")
    await run_loop_once()
    assert requests.started == ["1", "2", "3", "4", "6"]
    for _ in range(2):
        requests.limit.leave("a")
    assert [requests.begin("a") for _ in range(3)] == [True, True, False]


async def test_beside_another_event_fewer_run_until_that_event_has_been_quiet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    requests = Requests()
    assert requests.begin("a")
    assert requests.begin("b")
    assert not requests.begin("a", "first")
    requests.limit.leave("b")
    assert not requests.begin("a", "second"), "b was active a moment ago"
    now += 2 * ACTIVE_SECONDS
    requests.limit.leave("a")
    await run_loop_once()
    assert requests.started == ["", "", "first", "second"]
    assert not requests.begin("a")


async def test_beside_another_event_a_busy_event_runs_in_groups_with_a_pause_after_each(clocks: Clocks) -> None:
    requests = busy_event_beside_another()
    requests.limit.leave("hot")
    await clocks.run(0.05)
    assert requests.started == [], "the next group starts when all of this one have left"
    requests.limit.leave("hot")
    await clocks.run(0.05 * module.PAUSE_FACTOR - 0.01)
    assert requests.started == []
    assert not requests.begin("hot", "5")
    await clocks.run(0.02)
    assert requests.started == ["0", "1"]
    assert requests.begin("quiet", "quiet")
    requests.limit.leave("hot")
    await clocks.run(0.2)
    requests.limit.leave("hot")
    await clocks.run(module.PAUSE_SECONDS_MAX)
    assert requests.started == ["0", "1", "quiet", "2", "3"], "no pause is longer"
    for _ in range(2):
        requests.limit.leave("hot")
    await clocks.run(module.PAUSE_SECONDS_MAX)
    assert requests.started[-2:] == ["4", "5"]
    # No request waits: no busy event any more, so the next one starts at once.
    requests.limit.leave("hot")
    assert requests.begin("hot")


async def test_a_slow_request_keeps_only_its_own_slot(clocks: Clocks) -> None:
    requests = busy_event_beside_another()
    requests.limit.leave("hot")
    await clocks.run(module.CHECK_SECONDS)
    assert requests.started == ["0"], "the other request is slow"
    requests.limit.leave("hot")
    await clocks.run(module.PAUSE_SECONDS_MAX)
    assert requests.started == ["0", "1"]
    for _ in range(2):
        requests.limit.leave("hot")
    await clocks.run(module.PAUSE_SECONDS_MAX)
    assert requests.started == ["0", "1", "2", "3"]


async def test_a_request_that_has_waited_too_long_is_refused_even_if_no_other_ends(clocks: Clocks) -> None:
    requests = Requests(alone_max=1)
    assert requests.begin("a", "1")
    assert not requests.begin("a", "2")
    await clocks.run(module.WAIT_SECONDS_MAX)
    assert requests.refused == []
    await clocks.run(2 * module.CHECK_SECONDS)
    assert (requests.started, requests.refused) == (["1"], ["2"])
    requests.limit.leave("a")
    assert requests.begin("a")


async def test_under_overload_requests_that_have_waited_a_while_are_refused_until_the_queue_is_short(
    clocks: Clocks,
) -> None:
    requests = Requests(alone_max=2, waiting_max=9)
    assert [requests.begin("a", name) for name in "12345"] == [True, True, False, False, False]
    await clocks.run(LATE_SECONDS + 2 * module.CHECK_SECONDS)
    assert (requests.started, requests.refused) == (["1", "2"], ["3"]), "two may wait as long as two run"
    requests.limit.leave("a")
    await run_loop_once()
    assert (requests.started, requests.refused) == (["1", "2", "4"], ["3"])


async def test_under_overload_a_request_is_refused_on_arrival_if_the_oldest_has_waited_a_while(clocks: Clocks) -> None:
    requests = Requests(alone_max=1, waiting_max=9)
    assert [requests.begin("a", name) for name in "123"] == [True, False, False]
    clocks.now += LATE_SECONDS
    assert not requests.begin("a", "4"), "the oldest is not late yet"
    clocks.now += 0.01
    assert requests.begin("a", "5")
    assert requests.begin("b", "6"), "another event has a queue of its own"
    assert (requests.started, requests.refused) == (["1", "6"], ["5"])


async def test_beside_another_event_requests_may_wait_longer_before_they_are_refused(clocks: Clocks) -> None:
    requests = Requests(alone_max=1, beside_max=1, waiting_max=9)
    assert [requests.begin("a", name) for name in "123"] == [True, False, False]
    clocks.now += LATE_SECONDS + 0.01
    assert requests.begin("quiet")
    assert not requests.begin("a", "4")
    clocks.now += LATE_SECONDS * module.BESIDE_PATIENCE
    assert requests.begin("quiet") is False
    assert requests.begin("a", "5")
    assert requests.refused == ["5"]


async def test_without_activity_other_events_make_no_difference(clocks: Clocks) -> None:
    requests = Requests(alone_max=2, beside_max=None, activity=None)
    assert requests.begin("quiet")
    assert [requests.begin("hot", name) for name in "1234"] == [True, True, False, False]
    requests.limit.leave("hot")
    await run_loop_once()
    assert requests.started == ["", "1", "2", "3"]


async def test_a_request_that_has_waited_too_long_is_refused_at_its_turn_and_the_next_one_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    requests = Requests(alone_max=1)
    assert requests.begin("a", "1")
    assert not requests.begin("a", "2")
    now += module.WAIT_SECONDS_MAX + 1
    assert not requests.begin("a", "3")
    requests.limit.leave("a")
    await run_loop_once()
    assert (requests.started, requests.refused) == (["1", "3"], ["2"])


async def test_a_canceled_request_takes_no_slot() -> None:
    limit = make_limit(alone_max=1)
    await limit.acquire("a")
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
    late.cancel()  # In the same step in which its turn came.
    await asyncio.wait([late])
    assert late.cancelled()
    await asyncio.wait_for(limit.acquire("a"), 20)


async def test_unknown_events_are_not_limited() -> None:
    limit = make_limit(find_key=lambda event: "a" if event == "a" else None)
    assert limit.key_of("a") == "a"
    assert limit.key_of("made up") is None


@pytest.mark.parametrize("limits", [{"alone_max": 0}, {"beside_max": 0}, {"waiting_max": -1}])
def test_limits_that_would_let_no_request_through_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ImproperlyConfigured):
        make_limit(**limits)


class Application:
    """One route with a concurrency limit, whose replies come when the test resolves their futures."""

    def __init__(self, limit: ConcurrencyLimit) -> None:
        self.pending: list[asyncio.Future[None]] = []
        self._dispatcher = Dispatcher(
            [Route("POST", "events/<slug>/thing", self._handle, "thing", "hold", limit)], echo
        )
        self.respond_sync = self._dispatcher.respond_sync

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._dispatcher(scope, receive, send)

    async def _handle(self, request: Request, slug: str) -> Reply:
        body = await request.json_object()
        if not body:
            raise problems.NotOwner
        self.pending.append(asyncio.get_running_loop().create_future())
        await self.pending[-1]
        return private_reply({"by": slug})

    async def resolve_last(self, count: int) -> None:
        """Wait for `count` requests to have been handled in all, and let the last one be answered."""
        async with asyncio.timeout(20):
            while len(self.pending) < count:
                await run_loop_once()
        self.pending[-1].set_result(None)


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
    await application.resolve_last(4)  # The disconnected client's request was not handled.
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
    await application.resolve_last(2)
    assert await slow_line.answers(1) == [(200, {"by": "hot"})]


async def test_a_client_that_does_not_read_keeps_no_slot() -> None:
    application = Application(make_limit(alone_max=1))
    paused, paused_line = connection(application)
    paused.pause_writing()
    paused.data_received(thing("hot"))
    await application.resolve_last(1)
    for _ in range(5):
        await run_loop_once()
    assert paused_line.written == b""
    protocol, line = connection(application)
    protocol.data_received(thing("hot"))
    await application.resolve_last(2)
    assert await line.answers(1) == [(200, {"by": "hot"})]
    paused.resume_writing()
    assert await paused_line.answers(1) == [(200, {"by": "hot"})]


async def test_a_body_read_while_the_request_waits_is_forwarded_to_the_site() -> None:
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
        Dispatcher([Route("POST", "events/<slug>/thing", handler, "thing", "hold", limit)], site)
    )
    for _ in range(2):
        raw = thing("hot")
        for piece in (raw[:-3], raw[-3:-1], raw[-1:]):
            protocol.data_received(piece)
            await run_loop_once()
        assert await line.answers(1) == [(200, {"a": 1})]
        await asyncio.wait_for(limit.acquire("hot"), 20)
        limit.leave("hot")


async def test_every_outcome_releases_the_slot() -> None:
    application = Application(make_limit(alone_max=1))
    protocol, line = connection(application)
    for number in range(2):
        protocol.data_received(thing("hot", b"{}"))  # Refused without waiting.
        assert (await line.answers(1))[0][0] == 403
        protocol.data_received(thing("hot")[:-1])
        protocol.data_received(thing("hot")[-1:])
        await application.resolve_last(2 * number + 1)
        assert await line.answers(1) == [(200, {"by": "hot"})]
        protocol.data_received(thing("hot"))
        application.pending[-1].set_exception(problems.NotOwner())
        assert (await line.answers(1))[0][0] == 403
    gone, _ = connection(application)
    gone.data_received(thing("hot"))
    gone.connection_lost(None)
    protocol.data_received(thing("hot"))
    assert line.written == b""
    application.pending[-1].set_result(None)
    await application.resolve_last(6)
    assert await line.answers(1) == [(200, {"by": "hot"})]
