"""The hub: everybody is told, the slow are told the newest, and whoever has gone costs nothing."""

import asyncio
from collections.abc import Callable

import pytest

from apps.kernel.push import hub as hubs
from apps.kernel.push.buffered_listener import WAITING_MAX, QueuedListener
from apps.kernel.push.frames import Frame, frame
from apps.kernel.push.hub import Hub, Listener


class Ear(Listener):
    def __init__(self) -> None:
        super().__init__("events")
        self.heard: list[bytes] = []
        self.sleeps = False
        self.beats = 0
        self.farewells: list[float] = []

    def write(self, frame: Frame) -> None:
        self.heard.append(frame.data)

    def is_slow(self) -> bool:
        return self.sleeps

    def keep_alive(self) -> None:
        self.beats += 1

    def close(self, retry_seconds: float) -> None:
        self.farewells.append(retry_seconds)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await _a_step()


async def _a_step() -> None:
    """The loop has gone round once."""
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, None)
    await future


def said(kind: str, number: int) -> Frame:
    return frame(kind, number)


async def test_everybody_who_listens_is_told_in_order_and_nobody_else() -> None:
    hub, ears, other = Hub(), [Ear() for _ in range(3 * hubs.SLICE)], Ear()
    for ear in ears:
        hub.listen(ear, ["one"])
    hub.listen(other, ["two"])
    hub.publish("one", said("sections", 1))
    await until(lambda: all(ear.heard == [b"1"] for ear in ears))
    hub.publish("one", said("queue", 2))
    await until(lambda: all(ear.heard == [b"1", b"2"] for ear in ears))
    assert other.heard == []
    await hub.close()


async def test_frames_that_come_faster_than_they_can_be_told_are_one() -> None:
    hub, ear = Hub(), Ear()
    hub.listen(ear, ["one"])
    for number in range(5):
        hub.publish("one", said("sections", number))
    await until(lambda: bool(ear.heard))
    assert ear.heard == [b"4"]
    await hub.close()


async def test_who_sleeps_wakes_to_the_newest_of_each_kind_and_holds_nobody_up() -> None:
    hub, asleep, awake = Hub(), Ear(), Ear()
    hub.listen(asleep, ["one"])
    hub.listen(awake, ["one"])
    asleep.sleeps = True
    for number in range(5):
        hub.publish("one", said("sections", number))
        hub.publish("one", said("queue", 10 + number))
        await until(lambda number=number: awake.heard[-2:] == [b"%d" % number, b"%d" % (10 + number)])
    assert asleep.heard == []
    asleep.sleeps = False
    asleep.catch_up()
    assert asleep.heard == [b"4", b"14"]
    hub.publish("one", said("sections", 5))
    await until(lambda: asleep.heard == [b"4", b"14", b"5"])
    await hub.close()


async def test_who_sleeps_through_more_than_is_kept_is_sent_away() -> None:
    ear = Ear()
    ear.sleeps = True
    for number in range(hubs.HELD_BACK_MAX + 1):
        assert ear.farewells == []
        ear.send_frame(frame("announcement", number, about=str(number)))
    assert len(ear.farewells) == 1


async def test_who_leaves_is_forgotten_and_leaving_again_is_nothing() -> None:
    hub, ear = Hub(), Ear()
    hub.listen(ear, ["one", "two"])
    assert hub.count == 1
    hub.leave(ear)
    hub.leave(ear)
    assert hub.count == 0
    assert not hub.has_listeners("one")
    assert hub._topics == {}
    hub.listen(ear, ["three"])
    assert not hub.has_listeners("three"), "whoever has gone does not come back"


async def test_who_leaves_while_others_are_told_is_told_no_more() -> None:
    hub, ears = Hub(), [Ear() for _ in range(2 * hubs.SLICE)]
    for ear in ears:
        hub.listen(ear, ["one"])
    ears[0].write = lambda frame: hub.leave(ears[-1])  # type: ignore[method-assign]
    hub.publish("one", said("sections", 1))
    await until(lambda: bool(ears[-2].heard))
    assert ears[-1].heard == []
    await hub.close()


async def test_silence_is_broken_and_lives_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "BEAT_SECONDS", 0.0)
    hub, young, old = Hub(), Ear(), Ear()
    old.until = 0.0
    hub.listen(young, ["one"])
    hub.listen(old, ["one"])
    await until(lambda: young.beats > 2 and len(old.farewells) == 1)
    assert young.farewells == []
    assert hub.count == 1
    await hub.close()


async def test_at_the_end_everybody_is_told_another_moment_to_come_back() -> None:
    hub, ears = Hub(), [Ear() for _ in range(50)]
    for ear in ears:
        hub.listen(ear, ["one"])
    await hub.close()
    assert hub.count == 0
    seconds = sorted(one for ear in ears for one in ear.farewells)
    assert len(set(seconds)) > 40
    assert 0.5 <= seconds[0] < seconds[-1] <= 0.5 + hubs.RECONNECT_SECONDS_MAX


async def test_a_queue_that_is_not_emptied_holds_little_and_then_the_newest() -> None:
    listener = QueuedListener("socket", as_text=True)
    for number in range(50):
        listener.send_frame(said("sections", number))
    assert len(listener._queue) == WAITING_MAX
    told = [await listener.next() for _ in range(WAITING_MAX + 1)]
    assert '"data":49' in str(told[-1])
    listener.close(1.0)
    assert "bye" in str(await listener.next())
    assert await listener.next() is None


async def test_who_waits_for_a_message_and_is_left_hears_the_end() -> None:
    hub, listener = Hub(), QueuedListener("socket", as_text=True)
    hub.listen(listener, ["one"])
    waiting = asyncio.create_task(listener.next())
    await _a_step()
    hub.leave(listener)
    assert await asyncio.wait_for(waiting, 20) is None
