"""How many of one event's requests are under way at once, and who goes on when one has left."""

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


def turnstile(**given: Any) -> ConcurrencyLimit:
    if "activity" not in given:
        given["activity"] = ActiveEvents(Path(mkdtemp(prefix="fairgate-turnstile-")) / "active")
    return ConcurrencyLimit(
        "tests", **{"alone_max": 2, "beside_max": 1, "waiting_max": 2, "knows": lambda event: True, **given}
    )


class Clocks:
    """The turnstile's time, which stands still unless it is told to pass."""

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


def a_crowd_beside_another_event() -> tuple[ConcurrencyLimit, list[int]]:
    """Two of it are under way and five wait; who of those has gone on."""
    gate = turnstile(beside_max=2, waiting_max=9)
    went: list[int] = []
    assert gate.try_acquire("quiet")
    assert [gate.try_acquire("hot") for _ in range(3)] == [True, True, False]
    for number in range(5):
        gate.wait("hot", lambda refusal, number=number: went.append(number))
    return gate, went


async def test_so_many_pass_and_the_others_go_on_in_their_order_as_these_leave() -> None:
    gate = turnstile()
    went: list[object] = []
    assert [gate.try_acquire("a") for _ in range(3)] == [True, True, False]
    gate.wait("a", lambda refusal: went.append((1, refusal)))
    assert not gate.try_acquire("a")
    gate.wait("a", lambda refusal: went.append((2, refusal)))
    with pytest.raises(problems.Busy):
        gate.wait("a", went.append)
    gate.leave("a")
    assert not gate.try_acquire("a"), "nobody overtakes those who wait"
    await run_loop_once()
    assert went == [(1, None)]
    gate.leave("a")
    gate.leave("a")
    await run_loop_once()
    assert went == [(1, None), (2, None)]
    gate.leave("a")
    assert [gate.try_acquire("a") for _ in range(3)] == [True, True, False]


async def test_beside_another_event_fewer_are_under_way_until_that_has_been_quiet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    gate = turnstile()
    assert gate.try_acquire("a")
    assert gate.try_acquire("b")
    assert not gate.try_acquire("a")
    gate.leave("b")
    assert not gate.try_acquire("a"), "b was active a moment ago"
    now += 2 * ACTIVE_SECONDS
    assert gate.try_acquire("a")
    assert not gate.try_acquire("a")


async def test_beside_another_event_a_crowd_comes_in_groups_and_rests_after_each(clocks: Clocks) -> None:
    gate, went = a_crowd_beside_another_event()
    gate.leave("hot")
    await clocks.run(0.05)
    assert went == [], "the next group comes when all of this one have left"
    gate.leave("hot")
    await clocks.run(0.05 * module.PAUSE_FACTOR - 0.01)
    assert went == []
    assert not gate.try_acquire("hot")
    await clocks.run(0.02)
    assert went == [0, 1]
    assert gate.try_acquire("quiet")
    gate.leave("hot")
    await clocks.run(0.2)
    gate.leave("hot")
    await clocks.run(module.PAUSE_SECONDS_MAX)
    assert went == [0, 1, 2, 3], "no rest is longer"
    # One is left: no crowd any more, which goes on at once.
    gate.leave("hot")
    await run_loop_once()
    assert went == [0, 1, 2, 3, 4]
    gate.leave("hot")
    gate.leave("hot")
    assert gate.try_acquire("hot")


async def test_one_who_is_slow_keeps_no_place_but_its_own(clocks: Clocks) -> None:
    gate, went = a_crowd_beside_another_event()
    gate.leave("hot")
    await clocks.run(module.CHECK_SECONDS)
    assert went == [0], "the other one is slow"
    gate.leave("hot")
    await clocks.run(module.PAUSE_SECONDS_MAX)
    assert went == [0, 1]
    gate.leave("hot")
    gate.leave("hot")
    await clocks.run(module.PAUSE_SECONDS_MAX)
    assert went == [0, 1, 2, 3]


async def test_who_has_waited_too_long_hears_so_though_nobody_leaves(clocks: Clocks) -> None:
    gate = turnstile(alone_max=1)
    went: list[Any] = []
    assert gate.try_acquire("a")
    gate.wait("a", went.append)
    await clocks.run(module.WAIT_SECONDS_MAX)
    assert went == []
    await clocks.run(2 * module.CHECK_SECONDS)
    assert [type(what) for what in went] == [problems.Busy]
    gate.leave("a")
    assert gate.try_acquire("a")


async def test_who_has_waited_too_long_is_refused_at_its_turn_and_the_next_one_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    gate = turnstile(alone_max=1)
    went: list[Any] = []
    assert gate.try_acquire("a")
    gate.wait("a", went.append)
    now += module.WAIT_SECONDS_MAX + 1
    assert not gate.try_acquire("a")
    gate.wait("a", went.append)
    gate.leave("a")
    await run_loop_once()
    assert [type(what) for what in went] == [problems.Busy, type(None)]


async def test_who_goes_while_it_waits_takes_nobodys_turn() -> None:
    gate = turnstile(alone_max=1)
    assert gate.try_acquire("a")
    gone, stays = asyncio.create_task(gate.acquire("a")), asyncio.create_task(gate.acquire("a"))
    await run_loop_once()
    gone.cancel()
    await run_loop_once()
    gate.leave("a")
    await asyncio.wait_for(stays, 20)
    gate.leave("a")
    await asyncio.wait_for(gate.acquire("a"), 20)
    late = asyncio.create_task(gate.acquire("a"))
    await run_loop_once()
    gate.leave("a")
    asyncio.get_running_loop().call_soon(late.cancel)  # In the very step in which its turn has come.
    await asyncio.wait([late])
    assert late.cancelled()
    await asyncio.wait_for(gate.acquire("a"), 20)


async def test_events_that_nobody_knows_do_not_pass_here() -> None:
    gate = turnstile(knows=lambda event: event == "a")
    assert gate.applies_to("a")
    assert not gate.applies_to("made up")


@pytest.mark.parametrize("limits", [{"alone_max": 0}, {"beside_max": 0}, {"waiting_max": -1}])
def test_limits_by_which_nobody_could_pass_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ImproperlyConfigured):
        turnstile(**limits)


class House:
    """One route behind a turnstile, whose answers come when the test says so."""

    def __init__(self, gate: ConcurrencyLimit) -> None:
        self.heard: list[asyncio.Future[None]] = []
        self._lane = Dispatcher(
            [Route("POST", "events/<slug>/thing", self._handle, "thing", "hold", self._look, gate)], echo
        )
        self.respond_sync = self._lane.respond_sync

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._lane(scope, receive, send)

    def _look(self, request: Request, slug: str, body: bytes | bytearray) -> PendingAnswer:
        if body == b"{}":
            raise problems.NotOwner
        self.heard.append(asyncio.get_running_loop().create_future())
        return PendingAnswer(self.heard[-1], lambda said: private_reply({"by": slug}))

    async def _handle(self, request: Request, slug: str) -> Reply:
        return private_reply({"handled": await request.json_object()})


async def echo(scope: Any, receive: Any, send: Any) -> None:
    pytest.fail("nothing here is the site's")


def thing(event: str, body: bytes = b'{"a":1}') -> bytes:
    return request("POST", f"/api/events/{event}/thing", body)


async def test_a_crowd_waits_before_the_door_and_another_event_does_not() -> None:
    house = House(turnstile())
    crowd = [connection(house) for _ in range(5)]
    for wire, _ in crowd:
        wire.data_received(thing("hot"))
    assert len(house.heard) == 2
    assert (await crowd[4][1].answers(1))[0][0] == 503
    wire, line = connection(house)
    wire.data_received(thing("quiet"))
    assert len(house.heard) == 3
    house.heard[2].set_result(None)
    assert await line.answers(1) == [(200, {"by": "quiet"})]
    crowd[2][0].connection_lost(None)
    house.heard[0].set_result(None)
    house.heard[1].set_result(None)
    async with asyncio.timeout(20):
        while len(house.heard) < 4:
            await run_loop_once()
    # Who has gone was passed over.
    assert len(house.heard) == 4
    house.heard[3].set_result(None)
    for number in (0, 1, 3):
        assert await crowd[number][1].answers(1) == [(200, {"by": "hot"})]


async def test_who_has_not_sent_all_of_it_keeps_nobodys_place() -> None:
    house = House(turnstile(alone_max=1))
    slow, slow_line = connection(house)
    slow.data_received(thing("hot")[:-1])
    for _ in range(5):
        await run_loop_once()
    wire, line = connection(house)
    wire.data_received(thing("hot"))
    house.heard[0].set_result(None)
    assert await line.answers(1) == [(200, {"by": "hot"})]
    slow.data_received(thing("hot")[-1:])
    assert await slow_line.answers(1) == [(200, {"handled": {"a": 1}})]


async def test_who_does_not_read_the_answer_keeps_nobodys_place() -> None:
    house = House(turnstile(alone_max=1))
    deaf, deaf_line = connection(house)
    deaf.pause_writing()
    deaf.data_received(thing("hot"))
    for _ in range(5):
        await run_loop_once()
    assert deaf_line.written == b""
    wire, line = connection(house)
    wire.data_received(thing("hot"))
    house.heard[0].set_result(None)
    assert await line.answers(1) == [(200, {"by": "hot"})]
    deaf.resume_writing()
    assert await deaf_line.answers(1) == [(200, {"handled": {"a": 1}})]


async def test_what_was_read_before_its_turn_is_there_for_the_site() -> None:
    async def handler(request: Request, slug: str) -> Reply:
        raise ForwardToSite

    async def site(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        body += message["body"]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    gate = turnstile(alone_max=1)
    wire, line = connection(
        Dispatcher([Route("POST", "events/<slug>/thing", handler, "thing", "hold", None, gate)], site)
    )
    for _ in range(2):
        asked = thing("hot")
        for piece in (asked[:-3], asked[-3:-1], asked[-1:]):
            wire.data_received(piece)
            await run_loop_once()
        assert await line.answers(1) == [(200, {"a": 1})]
        assert gate.try_acquire("hot")
        gate.leave("hot")


async def test_every_way_out_leaves_the_turnstile() -> None:
    house = House(turnstile(alone_max=1))
    wire, line = connection(house)
    for _ in range(2):
        wire.data_received(thing("hot", b"{}"))  # Refused at sight.
        assert (await line.answers(1))[0][0] == 403
        wire.data_received(thing("hot")[:-1])
        wire.data_received(thing("hot")[-1:])  # By the handler, since it came in two pieces.
        assert await line.answers(1) == [(200, {"handled": {"a": 1}})]
        wire.data_received(thing("hot"))
        house.heard[-1].set_exception(problems.NotOwner())
        assert (await line.answers(1))[0][0] == 403
    gone, _ = connection(house)
    gone.data_received(thing("hot"))
    gone.connection_lost(None)
    wire.data_received(thing("hot"))
    assert line.written == b""
    house.heard[-1].set_result(None)
    await run_loop_once()
    await run_loop_once()
    house.heard[-1].set_result(None)
    assert await line.answers(1) == [(200, {"by": "hot"})]
