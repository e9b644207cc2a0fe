"""States that the listeners of a process follow: read once for all who begin to follow them."""

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from apps.kernel.push.hub import Hub
from apps.reservations.live import watched_states
from apps.reservations.live.watched_states import SeatStates
from tests.kernel.push.test_hub import FakeListener, until

HALL = (7, "hall")


class Ledger:
    """The seats of every section, and the reads of them."""

    def __init__(self) -> None:
        self.seats: dict[str, str] = {"hall-A-1": "sold"}
        self.reads: list[list[int]] = []

    def read(self, section_ids: Collection[int]) -> dict[int, dict[str, str]]:
        self.reads.append(list(section_ids))
        return {section_id: dict(self.seats) for section_id in section_ids}


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    ledger = Ledger()
    monkeypatch.setattr(watched_states, "read_seats", ledger.read)
    monkeypatch.setattr(watched_states, "ROUND_SECONDS", 0.0)
    return ledger


async def test_many_listeners_that_begin_to_follow_a_section_share_its_read(ledger: Ledger) -> None:
    hub = Hub()
    seats = SeatStates(hub)
    found: list[Any] = await asyncio.gather(*(seats.watch(FakeListener(), HALL) for _ in range(50)))
    assert ledger.reads == [[7]]
    assert len({id(frame) for frame in found}) == 1
    assert await seats.watch(FakeListener(), HALL) is found[0]
    assert ledger.reads == [[7]], "it is followed now"
    await hub.close()


async def test_a_change_after_the_shared_read_reaches_a_new_listener_in_the_next_round(ledger: Ledger) -> None:
    """L1 begins to follow the section: it is read, and the seat is free
    the seat is sold; the message about it comes while the section is not followed, and is ignored
    L1 gets the read, and the next round's
    """
    ledger.seats = {}
    hub, listener = Hub(), FakeListener()
    seats = SeatStates(hub)
    watched = asyncio.create_task(seats.watch(listener, HALL))
    await until(lambda: bool(ledger.reads))
    ledger.seats = {"hall-A-1": "sold"}
    seats.mark_due([HALL])
    first = await watched
    assert first is not None
    assert first.data == b'{"section_id":"hall","complete":true,"seats":{}}'
    seats._reread_at = float("inf")
    seats.tick()
    await until(lambda: bool(listener.received))
    assert listener.received == [b'{"section_id":"hall","seats":{"hall-A-1":"sold"}}']
    await hub.close()


async def test_large_sections_delay_a_small_one_by_a_round_and_do_not_wait_forever(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_states, "ENTRIES_MAX", 10)
    sizes = {1: 8, 2: 8, 3: 50, 4: 8, 7: 1, 8: 2}

    def read(section_ids: Collection[int]) -> dict[int, dict[str, str]]:
        ledger.reads.append(list(section_ids))
        return {one: {f"hall-A-{number}": "sold" for number in range(sizes[one])} for one in section_ids}

    monkeypatch.setattr(watched_states, "read_seats", read)
    hub = Hub()
    seats = SeatStates(hub)
    for section_id in sizes:
        await seats.watch(FakeListener(), (section_id, f"hall-{section_id}"))
    seats._reread_at = float("inf")
    ledger.reads.clear()

    async def round_reads() -> set[int]:
        before = len(ledger.reads)
        seats.tick()
        await until(lambda: len(ledger.reads) > before and seats._reading is not None and seats._reading.done())
        return set(ledger.reads[-1])

    assert await round_reads() == {7, 8}, "those of few entries"
    assert await round_reads() == {1}, "what has waited longest"
    seats.mark_due([(7, "hall-7")])
    assert await round_reads() == {7, 2}
    assert await round_reads() == {3}, "also one of more entries than a round has"
    assert await round_reads() == {4}
    assert not seats._changed
    await hub.close()
