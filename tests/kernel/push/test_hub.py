"""The hub: every listener receives each frame, slow listeners the newest, and departed listeners cost nothing."""

import asyncio
from collections.abc import Callable
from operator import attrgetter

import pytest
from websockets.frames import Frame as WebSocketFrame
from websockets.frames import Opcode

from apps.kernel.push import hub as hubs
from apps.kernel.push.buffered_listener import WAITING_MAX, QueuedListener
from apps.kernel.push.frames import DeltaFrame, Frame, Key, frame
from apps.kernel.push.hub import Hub, Listener


class FakeListener(Listener):
    def __init__(self) -> None:
        super().__init__("events")
        self.received: list[bytes] = []
        self.slow = False
        self.beats = 0
        self.closings: list[float] = []

    def write(self, frame: Frame) -> None:
        self.received.append(frame.data)

    def is_slow(self) -> bool:
        return self.slow

    def keep_alive(self) -> None:
        self.beats += 1

    def close(self, retry_seconds: float) -> None:
        self.closings.append(retry_seconds)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await _a_step()


async def _a_step() -> None:
    """Let the event loop run one iteration."""
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, None)
    await future


def numbered(kind: str, number: int) -> Frame:
    return frame(kind, number)


async def test_all_listeners_of_a_topic_receive_its_frames_in_order_and_no_others_do() -> None:
    hub, listeners, other = Hub(), [FakeListener() for _ in range(3 * hubs.SLICE)], FakeListener()
    for listener in listeners:
        hub.listen(listener, ["one"])
    hub.listen(other, ["two"])
    hub.publish("one", numbered("sections", 1))
    await until(lambda: all(listener.received == [b"1"] for listener in listeners))
    hub.publish("one", numbered("queue", 2))
    await until(lambda: all(listener.received == [b"1", b"2"] for listener in listeners))
    assert other.received == []
    await hub.close()


def test_a_slow_listener_that_would_need_a_large_copy_is_disconnected() -> None:
    """The first frame is shared by all listeners; what is merged with it would be a copy for this one alone."""
    listener, key = FakeListener(), Key("seats", "hall")
    listener.slow = True
    shared = DeltaFrame(key, {"complete": True}, "seats", {f"hall-A-{number}": "sold" for number in range(10_000)})
    listener.send_frame(shared)
    assert not listener.closings
    listener.send_frame(DeltaFrame(key, {}, "seats", {"hall-A-1": "available"}))
    assert len(listener.closings) == 1
    other = FakeListener()
    other.slow = True
    for number in range(100):
        other.send_frame(DeltaFrame(key, {}, "seats", {f"hall-A-{number}": "sold"}))
    assert not other.closings


async def test_frames_published_faster_than_they_are_sent_are_merged() -> None:
    hub, listener = Hub(), FakeListener()
    hub.listen(listener, ["one"])
    for number in range(5):
        hub.publish("one", numbered("sections", number))
    await until(lambda: bool(listener.received))
    assert listener.received == [b"4"]
    await hub.close()


async def test_a_slow_listener_catches_up_with_the_newest_of_each_kind_and_delays_no_other() -> None:
    hub, asleep, awake = Hub(), FakeListener(), FakeListener()
    hub.listen(asleep, ["one"])
    hub.listen(awake, ["one"])
    asleep.slow = True
    for number in range(5):
        hub.publish("one", numbered("sections", number))
        hub.publish("one", numbered("queue", 10 + number))
        await until(lambda number=number: awake.received[-2:] == [b"%d" % number, b"%d" % (10 + number)])
    assert asleep.received == []
    asleep.slow = False
    asleep.catch_up()
    assert asleep.received == [b"4", b"14"]
    hub.publish("one", numbered("sections", 5))
    await until(lambda: asleep.received == [b"4", b"14", b"5"])
    await hub.close()


async def test_a_listener_too_far_behind_is_disconnected() -> None:
    listener = FakeListener()
    listener.slow = True
    for number in range(hubs.HELD_BACK_MAX + 1):
        assert listener.closings == []
        listener.send_frame(frame("announcement", number, about=str(number)))
    assert len(listener.closings) == 1


async def test_a_listener_that_leaves_is_forgotten_and_may_leave_again() -> None:
    hub, listener = Hub(), FakeListener()
    hub.listen(listener, ["one", "two"])
    assert hub.count == 1
    hub.leave(listener)
    hub.leave(listener)
    assert hub.count == 0
    assert not hub.has_listeners("one")
    assert hub._topics == {}
    hub.listen(listener, ["three"])
    assert not hub.has_listeners("three"), "a listener that has left does not return"


async def test_a_listener_that_leaves_during_a_publication_receives_nothing_more() -> None:
    hub, listeners = Hub(), [FakeListener() for _ in range(2 * hubs.SLICE)]
    for listener in listeners:
        hub.listen(listener, ["one"])
    listeners[0].write = lambda frame: hub.leave(listeners[-1])  # type: ignore[method-assign]
    hub.publish("one", numbered("sections", 1))
    await until(lambda: bool(listeners[-2].received))
    assert listeners[-1].received == []
    await hub.close()


async def test_idle_listeners_are_kept_alive_and_old_ones_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "BEAT_SECONDS", 0.0)
    hub, young, old = Hub(), FakeListener(), FakeListener()
    old.until = 0.0
    hub.listen(young, ["one"])
    hub.listen(old, ["one"])
    await until(lambda: young.beats > 2 and len(old.closings) == 1)
    assert young.closings == []
    assert hub.count == 1
    await hub.close()


async def test_on_close_listeners_receive_spread_reconnect_delays() -> None:
    hub, listeners = Hub(), [FakeListener() for _ in range(50)]
    for listener in listeners:
        hub.listen(listener, ["one"])
    await hub.close()
    assert hub.count == 0
    seconds = sorted(one for listener in listeners for one in listener.closings)
    assert len(set(seconds)) > 40
    assert 0.5 <= seconds[0] < seconds[-1] <= 0.5 + hubs.RECONNECT_SECONDS_MAX


async def test_a_queue_that_is_not_read_stays_short_and_ends_with_the_newest() -> None:
    listener = QueuedListener("socket", attrgetter("text"))
    for number in range(50):
        listener.send_frame(numbered("sections", number))
    assert len(listener._queue) == WAITING_MAX
    texts = [await listener.next() for _ in range(WAITING_MAX + 1)]
    assert '"data":49' in str(texts[-1])
    listener.close(1.0)
    assert "bye" in str(await listener.next())
    assert await listener.next() is None


@pytest.mark.parametrize("size", [1, 200, 70_000])
async def test_sockets_share_the_bytes_of_a_frame(size: int) -> None:
    listeners = [QueuedListener("socket", attrgetter("socket_frame")) for _ in range(2)]
    large = frame("seats", "x" * size)
    for listener in listeners:
        listener.send_frame(large)
    first, second = [await listener.next() for listener in listeners]
    assert first is second
    assert first == WebSocketFrame(Opcode.TEXT, large.item).serialize(mask=False)


async def test_a_listener_waiting_for_a_message_is_woken_when_it_is_removed() -> None:
    hub, listener = Hub(), QueuedListener("socket", attrgetter("text"))
    hub.listen(listener, ["one"])
    waiting = asyncio.create_task(listener.next())
    await _a_step()
    hub.leave(listener)
    assert await asyncio.wait_for(waiting, 20) is None
