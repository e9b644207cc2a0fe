"""Viewers of seats are rechecked for their admission, all by one task."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError

from apps.kernel.http import problems
from apps.kernel.push.hub import Hub
from apps.queue import facade as queue
from apps.reservations.live import seat_viewers as watched
from apps.reservations.live.seat_viewers import SeatViewers
from tests.kernel.push.test_hub import FakeListener, numbered, until

CONCERT: Any = SimpleNamespace(id=1)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Exception | None]]:
    """The result for each caller, one after the other; the last one is repeated."""
    results: dict[str, list[Exception | None]] = {}

    async def status(event: Any, caller: Any) -> Any:
        answer = results[caller].pop(0) if len(results[caller]) > 1 else results[caller][0]
        if answer is not None:
            raise answer

    monkeypatch.setattr(queue, "claim_or_get_entry_async", status)
    monkeypatch.setattr(queue, "require_entry", lambda event_id, entry: entry)
    monkeypatch.setattr(watched, "RECHECK_SECONDS", 0.0)
    monkeypatch.setattr(watched, "ROUND_SECONDS", 0.0)
    return results


async def test_a_viewer_whose_admission_is_over_gets_no_more_seats_and_all_others_do(answers: dict[str, Any]) -> None:
    hub = Hub()
    shoppers = SeatViewers(hub)
    answers |= {
        "over": [None, queue.AdmissionExpired()],
        "stays": [None],
        # No viewer loses the seats because the system is busy, or the database unavailable for a moment.
        "lucky": [problems.Busy(), OperationalError("the connection is lost"), RuntimeError("whatever"), None],
    }
    listeners = {name: FakeListener() for name in answers}
    for name, listener in listeners.items():
        hub.listen(listener, ["event:1", "seats:1"])
        shoppers.add(listener, CONCERT, name, {"seats:1": "hall"})  # type: ignore[arg-type]
    await until(lambda: not listeners["over"].topics.count("seats:1") and len(answers["lucky"]) == 1)
    hub.publish("seats:1", numbered("seats", 1))
    hub.publish("event:1", numbered("sections", 2))
    await until(lambda: all(b"2" in listener.received for listener in listeners.values()))
    ended = b'{"section_id":"hall","seats":{},"ended":"admission-expired"}'
    assert {name: listener.received for name, listener in listeners.items()} == {
        "over": [ended, b"2"], "stays": [b"1", b"2"], "lucky": [b"1", b"2"],
    }  # fmt: skip
    shoppers.close()
    await hub.close()


async def test_all_viewers_take_one_task_and_none_when_all_have_left(answers: dict[str, Any]) -> None:
    hub = Hub()
    shoppers = SeatViewers(hub)
    answers["another"] = [None]
    listeners = [FakeListener() for _ in range(3 * watched.BATCH_MAX)]
    before = len(asyncio.all_tasks())
    for listener in listeners:
        shoppers.add(listener, CONCERT, "another", {"seats:1": "hall"})  # type: ignore[arg-type]
    assert len(asyncio.all_tasks()) == before + 1
    for listener in listeners:
        hub.leave(listener)
    await until(lambda: len(asyncio.all_tasks()) == before)
