"""Listeners at a house that says what is so, at houses that end streams, and at houses that say something else."""

import asyncio
import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from tests.ticketing.simulator.fake_site import Voice, counts, open_house, problem, tells_the_truth
from ticketing.simulator import stream_listeners
from ticketing.simulator.plan import Plan, PlanRefused
from ticketing.simulator.population import Run, run
from ticketing.simulator.report import progress, report
from ticketing.simulator.stream_listeners import Frame, StreamListener, StreamListeners
from ticketing.simulator.streams import Stream, _FrameCache

DOORS = ("sse", "websocket")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_listeners, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(stream_listeners, "SETTLED_SECONDS", 0.2)
    monkeypatch.setattr(stream_listeners, "CHECK_SECONDS", 0.02)


async def listened(house: Any, **wishes: Any) -> Run:
    usual = {"event": "concert", "base": house.base, "visitors": 1, "over_seconds": 0.1, "stay_seconds": 0.01}
    result = await run(Plan(**{**usual, "leavers": 0.0, "listeners": 8, "least_seconds": 0.3, **wishes}))
    assert "\n".join(report(result))
    assert progress(result, 0, 1.0)
    assert result.listeners is not None
    return result


def heard(result: Run) -> stream_listeners.ListenerResults:
    assert result.listeners is not None
    return result.listeners.results


@pytest.mark.parametrize("door", DOORS)
async def test_all_hear_what_the_house_says(door: str) -> None:
    async with open_house() as house:
        result = await listened(house, listen_by=door)
    assert result.is_clean, result.figures.breaches
    assert (heard(result).opened, heard(result).wrong, heard(result).broke) == (8, 0, 0)
    assert "8 of 8 ended with what the house says" in "\n".join(report(result))


@pytest.mark.parametrize("door", DOORS)
async def test_one_who_ends_with_something_else_is_noticed(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_listeners, "SETTLE_SECONDS_MAX", 0.5)

    async def lies_to_one(voice: Voice, number: int, house: Any) -> None:
        await voice.say("sections", counts(house.free + (number == 3)), "e-1")
        await voice.stay()

    async with open_house() as house:
        house.streams.speaks = lies_to_one
        result = await listened(house, listen_by=door)
    assert result.figures.breaches.counts == {"listeners that ended wrong": 1}
    assert heard(result).wrong == 1


@pytest.mark.parametrize("door", DOORS)
async def test_streams_that_end_without_a_word_are_opened_again_and_say_what_was_read(door: str) -> None:
    async def ends_at_first(voice: Voice, number: int, house: Any) -> None:
        await voice.say("sections", counts(house.free), f"e-{number}")
        if number > 8:
            await voice.stay()

    async with open_house() as house:
        house.streams.speaks = ends_at_first
        result = await listened(house, listen_by=door)
    assert result.is_clean, result.figures.breaches
    found = heard(result)
    assert (found.broke, found.sent_away, found.came_back, found.wrong) == (8, 0, 8, 0)
    assert sorted(filter(None, house.streams.came)) == sorted(f"e-{number}" for number in range(1, 9))
    assert len(found.away) == 8


@pytest.mark.parametrize("door", DOORS)
async def test_who_is_sent_away_comes_back_when_told_to(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    open_in = StreamListeners.open_in

    def note(self: StreamListeners, seconds: float, ear: StreamListener) -> None:
        pauses.append(seconds)
        open_in(self, seconds, ear)

    monkeypatch.setattr(StreamListeners, "open_in", note)

    async def sends_away(voice: Voice, number: int, house: Any) -> None:
        await voice.say("sections", counts(house.free), "e-1")
        if number <= 8:
            await voice.say("bye", {"retry_ms": 100 + number})
            return
        await voice.stay()

    async with open_house() as house:
        house.streams.speaks = sends_away
        result = await listened(house, listen_by=door)
    assert result.is_clean, result.figures.breaches
    found = heard(result)
    assert (found.broke, found.sent_away, found.came_back, found.wrong) == (0, 8, 8, 0)
    assert sorted(pauses[8:]) == [(100 + number) / 1_000 for number in range(1, 9)]


async def test_a_house_that_is_full_is_asked_again() -> None:
    def full(number: int) -> web.Response | None:
        return problem(503, "busy") if number <= 8 else None

    async with open_house() as house:
        house.streams.refuses = full
        result = await listened(house)
    assert result.is_clean, result.figures.breaches
    assert result.figures.refusals["stream: 503"] == 8
    assert heard(result).wrong == 0


@pytest.mark.parametrize(
    "said",
    [b"event: sections\ndata: {\n\n", b"event: bye\ndata: {}\n\n", b'event: sections\ndata: {"sections":[1]}\n\n'],
)
async def test_a_stream_of_something_else_is_noticed(said: bytes) -> None:
    async def babbles(voice: Voice, number: int, house: Any) -> None:
        if number <= 8:
            await voice.raw(said)
            return
        await tells_the_truth(voice, number, house)

    async with open_house() as house:
        house.streams.speaks = babbles
        result = await listened(house)
    assert result.figures.breaches.counts == {"unexpected answers": 8}
    assert heard(result).wrong == 0


async def test_a_refusal_of_somebody_who_did_nothing_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_listeners, "SETTLE_SECONDS_MAX", 0.3)
    async with open_house() as house:
        house.streams.refuses = lambda number: problem(404, "not-found")
        result = await listened(house)
    assert result.figures.breaches.counts == {"unexpected answers": 8, "listeners that ended wrong": 8}


async def test_who_hears_nothing_any_more_asks_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_listeners, "SILENT_SECONDS_MAX", 0.4)

    async def falls_silent(voice: Voice, number: int, house: Any) -> None:
        if number <= 8:
            await asyncio.Event().wait()
        await tells_the_truth(voice, number, house)

    async with open_house() as house:
        house.streams.speaks = falls_silent
        result = await listened(house, least_seconds=1.0)
    assert result.is_clean, result.figures.breaches
    assert heard(result).wrong == 0
    assert result.figures.retries["stream: fell silent"] >= 8


async def test_what_changes_at_the_end_is_waited_for() -> None:
    """The last of it is heard after the crowd has gone."""
    changes = asyncio.Event()

    async def tells_later(voice: Voice, number: int, house: Any) -> None:
        await voice.say("sections", counts(house.free), "e-1")
        await changes.wait()
        await voice.say("sections", counts(house.free), "e-2")
        await voice.stay()

    async with open_house() as house:
        house.streams.speaks = tells_later
        truth = StreamListeners._fetch_counts

        async def sold_meanwhile(self: StreamListeners) -> Any:
            house.free = 19
            found = await truth(self)
            changes.set()
            return found

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(StreamListeners, "_fetch_counts", sold_meanwhile)
            result = await listened(house)
    assert result.is_clean, result.figures.breaches
    assert heard(result).wrong == 0
    assert heard(result).last_right_at >= heard(result).first_right_at > 0


async def test_told_to_stop_nobody_waits_for_the_last_word() -> None:
    stopping = asyncio.Event()
    async with open_house() as house:
        plan = Plan("concert", house.base, 1, 0.1, listeners=3, least_seconds=60, stay_seconds=0.01, leavers=0.0)
        result = await run(plan, lambda seen: stopping.set(), stopping)
    assert result.ended == "interrupted"
    assert heard(result).wrong is None
    assert "not held against what the house says" in "\n".join(report(result))


def test_listeners_need_ports_and_a_door() -> None:
    with pytest.raises(PlanRefused, match="sse or websocket or poll"):
        Plan("concert", "http://127.0.0.1:1", 1, 1, listen_by="pigeon")
    with pytest.raises(PlanRefused, match="one address has ports for 25,000"):
        Plan("concert", "http://127.0.0.1:1", 1, 1, listeners=25_001)
    assert Plan("concert", "http://127.0.0.1:1", 1, 1, listeners=25_001, listen_by="poll").streams == 0


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class _Ear:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.last_data_at = 0.0
        self.line: Any = None
        self.listeners: Any = type("Ears", (), {"door": type("Door", (), {"now": staticmethod(lambda: 0.0)})})

    def opened(self) -> None: ...

    def receive(self, frame: Frame) -> None:
        self.frames.append(frame)

    def report_breach(self, example: str) -> None:
        raise AssertionError(example)


def _cut(data: bytes, at: list[int]) -> Iterator[bytes]:
    ends = sorted({min(len(data), one) for one in at} | {0, len(data)})
    return (data[begin:end] for begin, end in itertools.pairwise(ends))


@given(st.lists(st.integers(0, 400)), st.integers(1, 60), st.integers(0, 1_000))
def test_wherever_a_stream_is_cut_the_same_is_heard(cuts: list[int], size: int, seed: int) -> None:
    events = [b"event: sections\nid: e-%d\ndata: %b\n\n" % (n, json.dumps(counts(n)).encode()) for n in range(3)]
    body = b": \n\n".join([*events, b'event: bye\ndata: {"retry_ms": 1500}\n\n'])
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    data = HEAD + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    random.Random(seed).shuffle(cuts)
    ear = _Ear()
    stream = Stream(ear, b"", _FrameCache())  # type: ignore[arg-type]
    for some in _cut(data, cuts):
        stream.data_received(some)
    assert [frame.id for frame in ear.frames if frame.free] == ["e-0", "e-1", "e-2"]
    assert [frame.free for frame in ear.frames if frame.free] == [(("floor", n),) for n in range(3)]
    assert ear.frames[-1].retry_seconds == 1.5
