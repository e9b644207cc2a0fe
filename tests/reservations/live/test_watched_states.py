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
