"""The gate on the event loop: requests for sold-out tickets are refused without a thread. If Redis is killed or hangs
while a request waits for its answer, or has restarted without data, the gate lets the request through to PostgreSQL."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from apps.events import facade as events
from apps.kernel.fastpath import thread_pool
from apps.kernel.fastpath.redis_connection import AsyncRedis
from apps.queue import facade as queue
from apps.reservations import facade as reservations
from apps.reservations.gate import gate
from apps.reservations.gate.async_gate import AsyncGate
from tests.support.event_loops import run_loop_once
from tests.support.factories import assert_audit_clean, hold, join, make_event
from tests.support.own_redis import OwnRedis
from tests.support.reservations.gates import count_answers, disable_expiry, open_gate

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS_MAX = 20
ONE_TICKET = {"ga_section": "floor", "ga_quantity": 1}


@pytest.fixture(autouse=True)
def _no_count_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    disable_expiry(monkeypatch)


@pytest.fixture
def sold_out() -> tuple[events.EventView, queue.EntryView, queue.EntryView]:
    """A sold-out event with an open gate, the holder of its only ticket, and a late visitor."""
    event = make_event(rows=0, general_admission=1)
    holder, late = join(event), join(event)
    hold(event, holder, **ONE_TICKET, key="last")
    open_gate(event)
    return event, holder, late


class Asker:
    """The gate of one process, with its own connection to Redis."""

    def __init__(self, event: events.EventView) -> None:
        self.event = event
        self.redis = AsyncRedis()
        self.gate = AsyncGate(self.redis)

    async def ready(self) -> "Asker":
        """Connect to Redis and ask once, so that this process caches the event."""
        assert await self.redis.wait_until_connected()
        await asyncio.gather(self.put(missing_entry(self.event)), return_exceptions=True)
        return self

    def put(self, entry_id: Any, key: str = "a-key") -> "asyncio.Task[queue.LoadedEntry | None]":
        return asyncio.create_task(self.gate.ask(gate.Question(self.event, entry_id, ONE_TICKET, key)))

    async def outcome(self, entry: queue.EntryView, key: str = "a-key") -> str:
        return await outcome_of(self.put(entry.id, key))


def missing_entry(event: events.EventView) -> Any:
    """Return the id of an entry that does not exist."""
    return gate.UUID(int=event.id)


async def outcome_of(question: "asyncio.Task[queue.LoadedEntry | None]") -> str:
    try:
        loaded = await asyncio.wait_for(question, SECONDS_MAX)
    except reservations.SoldOut:
        return "sold out"
    assert loaded is not None
    return "let through"


def record_thread_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list to which the name of each function that runs in a thread is added."""
    calls: list[str] = []

    def count(name: str) -> None:
        run_in_thread = getattr(thread_pool, name)

        async def counting(act: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            calls.append(act.__name__)
            return await run_in_thread(act, *args, **kwargs)

        monkeypatch.setattr(thread_pool, name, counting)

    count("run_in_thread")
    count("run_for_client")
    return calls


def test_sold_out_requests_are_refused_without_a_thread_until_tickets_are_released(
    sold_out: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    event, holder, late = sold_out
    calls = record_thread_calls(monkeypatch)

    async def ask() -> None:
        asker = await Asker(event).ready()
        calls.clear()
        refused = count_answers("refused")
        questions = [asker.put(late.id), asker.put(holder.id, "last"), asker.put(late.id, "another")]
        assert [await outcome_of(question) for question in questions] == ["sold out", "let through", "sold out"]
        assert count_answers("refused") == refused + 2
        assert calls == ["_read"], "entries are read only for requests that the gate lets through"
        await thread_pool.run_in_thread(reservations.release, live, "test")
        assert await asker.outcome(late) == "let through"
        asker.redis.close()

    live = reservations.live_reservation_of(holder.id).id  # type: ignore[union-attr]
    asyncio.run(ask())
    assert "pending_payment" in reservations.hold_one(event, late, ONE_TICKET, "a-key").body
    assert_audit_clean()


@pytest.mark.parametrize("dies", [True, False])
def test_requests_are_let_through_if_redis_dies_or_hangs_while_they_wait(
    own_redis: OwnRedis, sold_out: Any, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    event, holder, late = sold_out
    pid = own_redis.server.pid

    async def ask() -> None:
        asker = await Asker(event).ready()
        away_before = count_answers("away")
        os.kill(pid, signal.SIGSTOP)
        sent = [asker.put(late.id), asker.put(holder.id, "last")]
        for _ in range(2):
            await run_loop_once()  # The first batch has been sent.
        waiting = asker.put(late.id, "another")
        if dies:
            own_redis.kill()
        assert [await outcome_of(question) for question in (*sent, waiting)] == ["let through"] * 3
        assert count_answers("away") == away_before + 3
        asker.redis.close()

    asyncio.run(ask())
    if dies:
        own_redis.return_empty()
    else:
        os.kill(pid, signal.SIGCONT)
    with pytest.raises(reservations.SoldOut):
        reservations.hold_one(event, late, ONE_TICKET, "a-key")
    assert "pending_payment" in reservations.hold_one(event, holder, ONE_TICKET, "last").body
    assert_audit_clean()


def test_an_empty_redis_lets_requests_through_until_the_gate_is_opened_again(
    own_redis: OwnRedis, sold_out: Any
) -> None:
    event, holder, late = sold_out
    own_redis.kill()
    own_redis.return_empty()

    async def ask() -> None:
        asker = await Asker(event).ready()
        assert await asker.outcome(late, "before") == "let through"
        await thread_pool.run_in_thread(open_gate, event)
        assert await asker.outcome(late, "after") == "sold out"
        assert await asker.outcome(holder, "last") == "let through"
        asker.redis.close()

    asyncio.run(ask())
    assert_audit_clean()
