"""Stream listeners at sites that send correct counts, end streams, or send something else."""

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

from tests.ticketing.simulator.fake_site import FakeStream, counts, open_site, problem, send_counts
from ticketing.simulator import stream_listeners
from ticketing.simulator.plan import Plan, PlanRefused
from ticketing.simulator.population import Run, run
from ticketing.simulator.report import progress, report
from ticketing.simulator.stream_listeners import Frame, StreamListener, StreamListeners
from ticketing.simulator.streams import Stream

PROTOCOLS = ("sse", "websocket")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_listeners, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(stream_listeners, "SETTLED_SECONDS", 0.2)
    monkeypatch.setattr(stream_listeners, "CHECK_SECONDS", 0.02)


async def listened(site: Any, **overrides: Any) -> Run:
    usual = {"event": "concert", "base": site.base, "visitors": 1, "over_seconds": 0.1, "stay_seconds": 0.01}
    result = await run(Plan(**{**usual, "leavers": 0.0, "listeners": 8, "least_seconds": 0.3, **overrides}))
    assert "\n".join(report(result))
    assert progress(result, 0, 1.0)
    assert result.listeners is not None
    return result


def results_of(result: Run) -> stream_listeners.ListenerResults:
    assert result.listeners is not None
    return result.listeners.results


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_all_listeners_receive_the_counts(protocol: str) -> None:
    async with open_site() as site:
        result = await listened(site, listen_by=protocol)
    assert result.is_clean, result.figures.breaches
    assert (results_of(result).opened, results_of(result).wrong, results_of(result).broke) == (8, 0, 0)
    assert "8 of 8 listeners have the site's counts" in "\n".join(report(result))


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_listener_with_wrong_counts_is_noticed(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_listeners, "SETTLE_SECONDS_MAX", 0.5)

    async def wrong_for_one(stream: FakeStream, number: int, site: Any) -> None:
        await stream.send("sections", counts(site.free + (number == 3)), "e-1")
        await stream.stay()

    async with open_site() as site:
        site.streams.serve = wrong_for_one
        result = await listened(site, listen_by=protocol)
    assert result.figures.breaches.counts == {"listeners with wrong counts": 1}
    assert results_of(result).wrong == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_broken_streams_are_reopened_with_the_last_event_id(protocol: str) -> None:
    async def ends_at_first(stream: FakeStream, number: int, site: Any) -> None:
        await stream.send("sections", counts(site.free), f"e-{number}")
        if number > 8:
            await stream.stay()

    async with open_site() as site:
        site.streams.serve = ends_at_first
        result = await listened(site, listen_by=protocol)
    assert result.is_clean, result.figures.breaches
    found = results_of(result)
    assert (found.broke, found.sent_away, found.came_back, found.wrong) == (8, 0, 8, 0)
    assert sorted(filter(None, site.streams.last_event_ids)) == sorted(f"e-{number}" for number in range(1, 9))
    assert len(found.away) == 8


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_stream_that_the_server_ends_is_reopened_after_the_given_time(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    open_in = StreamListeners.open_in

    def record(self: StreamListeners, seconds: float, listener: StreamListener) -> None:
        pauses.append(seconds)
        open_in(self, seconds, listener)

    monkeypatch.setattr(StreamListeners, "open_in", record)

    async def end_with_retry(stream: FakeStream, number: int, site: Any) -> None:
        await stream.send("sections", counts(site.free), "e-1")
        if number <= 8:
            await stream.send("bye", {"retry_ms": 100 + number})
            return
        await stream.stay()

    async with open_site() as site:
        site.streams.serve = end_with_retry
        result = await listened(site, listen_by=protocol)
    assert result.is_clean, result.figures.breaches
    found = results_of(result)
    assert (found.broke, found.sent_away, found.came_back, found.wrong) == (0, 8, 8, 0)
    assert sorted(pauses[8:]) == [(100 + number) / 1_000 for number in range(1, 9)]


async def test_a_full_site_is_retried() -> None:
    def full(number: int) -> web.Response | None:
        return problem(503, "busy") if number <= 8 else None

    async with open_site() as site:
        site.streams.refuse = full
        result = await listened(site)
    assert result.is_clean, result.figures.breaches
    assert result.figures.refusals["stream: 503"] == 8
    assert results_of(result).wrong == 0


@pytest.mark.parametrize(
    "data",
    [b"event: sections\ndata: {\n\n", b"event: bye\ndata: {}\n\n", b'event: sections\ndata: {"sections":[1]}\n\n'],
)
async def test_invalid_messages_are_noticed(data: bytes) -> None:
    async def send_invalid(stream: FakeStream, number: int, site: Any) -> None:
        if number <= 8:
            await stream.raw(data)
            return
        await send_counts(stream, number, site)

    async with open_site() as site:
        site.streams.serve = send_invalid
        result = await listened(site)
    assert result.figures.breaches.counts == {"unexpected responses": 8}
    assert results_of(result).wrong == 0


async def test_an_unexpected_refusal_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_listeners, "SETTLE_SECONDS_MAX", 0.3)
    async with open_site() as site:
        site.streams.refuse = lambda number: problem(404, "not-found")
        result = await listened(site)
    assert result.figures.breaches.counts == {"unexpected responses": 8, "listeners with wrong counts": 8}


async def test_a_silent_stream_is_reopened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_listeners, "SILENT_SECONDS_MAX", 0.4)

    async def fall_silent(stream: FakeStream, number: int, site: Any) -> None:
        if number <= 8:
            await asyncio.Event().wait()
        await send_counts(stream, number, site)

    async with open_site() as site:
        site.streams.serve = fall_silent
        result = await listened(site, least_seconds=1.0)
    assert result.is_clean, result.figures.breaches
    assert results_of(result).wrong == 0
    assert result.figures.retries["stream: fell silent"] >= 8


async def test_the_run_waits_for_the_final_counts() -> None:
    """They arrive after the visitors are done."""
    changes = asyncio.Event()

    async def send_later(stream: FakeStream, number: int, site: Any) -> None:
        await stream.send("sections", counts(site.free), "e-1")
        await changes.wait()
        await stream.send("sections", counts(site.free), "e-2")
        await stream.stay()

    async with open_site() as site:
        site.streams.serve = send_later
        fetch_counts = StreamListeners._fetch_counts

        async def sold_meanwhile(self: StreamListeners) -> Any:
            site.free = 19
            found = await fetch_counts(self)
            changes.set()
            return found

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(StreamListeners, "_fetch_counts", sold_meanwhile)
            result = await listened(site)
    assert result.is_clean, result.figures.breaches
    assert results_of(result).wrong == 0
    assert results_of(result).last_right_at >= results_of(result).first_right_at > 0


async def test_an_interrupted_run_does_not_wait_for_the_final_counts() -> None:
    stopping = asyncio.Event()
    async with open_site() as site:
        plan = Plan("concert", site.base, 1, 0.1, listeners=3, least_seconds=60, stay_seconds=0.01, leavers=0.0)
        result = await run(plan, lambda seen: stopping.set(), stopping)
    assert result.ended == "interrupted"
    assert results_of(result).wrong is None
    assert "final state not checked" in "\n".join(report(result))


def test_the_plan_checks_the_protocol_and_the_number_of_ports() -> None:
    with pytest.raises(PlanRefused, match="sse or websocket or poll"):
        Plan("concert", "http://127.0.0.1:1", 1, 1, listen_by="pigeon")
    with pytest.raises(PlanRefused, match="one address has ports for 25,000"):
        Plan("concert", "http://127.0.0.1:1", 1, 1, listeners=25_001)
    assert Plan("concert", "http://127.0.0.1:1", 1, 1, listeners=25_001, listen_by="poll").streams == 0


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class _RecordingListener:
    """Records the frames that it receives."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.last_data_at = 0.0
        self.stream: Any = None
        self.group: Any = type("Group", (), {"context": type("Context", (), {"now": staticmethod(lambda: 0.0)})})

    def opened(self) -> None: ...

    def receive(self, frame: Frame) -> None:
        self.frames.append(frame)

    def report_breach(self, example: str) -> None:
        raise AssertionError(example)


def _cut(data: bytes, at: list[int]) -> Iterator[bytes]:
    ends = sorted({min(len(data), one) for one in at} | {0, len(data)})
    return (data[begin:end] for begin, end in itertools.pairwise(ends))


@given(st.lists(st.integers(0, 400)), st.integers(1, 60), st.integers(0, 1_000))
def test_a_stream_cut_anywhere_gives_the_same_frames(cuts: list[int], size: int, seed: int) -> None:
    events = [b"event: sections\nid: e-%d\ndata: %b\n\n" % (n, json.dumps(counts(n)).encode()) for n in range(3)]
    body = b": \n\n".join([*events, b'event: bye\ndata: {"retry_ms": 1500}\n\n'])
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    data = HEAD + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    random.Random(seed).shuffle(cuts)
    listener = _RecordingListener()
    stream = Stream(listener, b"")  # type: ignore[arg-type]
    for some in _cut(data, cuts):
        stream.data_received(some)
    assert [frame.id for frame in listener.frames if frame.free] == ["e-0", "e-1", "e-2"]
    assert [frame.free for frame in listener.frames if frame.free] == [(("floor", n),) for n in range(3)]
    assert listener.frames[-1].retry_seconds == 1.5
