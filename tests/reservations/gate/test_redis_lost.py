"""A gate whose Redis is killed, emptied, restarted with old data, out of memory or unavailable: it lets requests
through, and is restored from the database. Each test has a server of its own."""

from typing import Any

import pytest

from apps.events import facade as events
from apps.kernel import redis
from apps.kernel.fastpath import cache
from apps.reservations import facade as reservations
from apps.reservations.gate import rebuild
from apps.reservations.lifecycle import gate_counts
from tests.support.factories import assert_audit_clean, hold, join, make_event
from tests.support.own_redis import OwnRedis
from tests.support.reservations.gates import (
    HOUR_MS,
    ask_gate,
    count_answers,
    disable_expiry,
    is_refused,
    open_gate,
    read_gate_field,
    section_of,
    write_gate_fields,
)

pytestmark = pytest.mark.django_db(transaction=True)

PLACE = {"ga_section": "floor", "ga_quantity": 1}


@pytest.fixture(autouse=True)
def _no_count_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    disable_expiry(monkeypatch)


@pytest.fixture
def sold_out(own_redis: OwnRedis) -> Any:
    """A sold-out event with an open gate, and the holder of its only ticket."""
    event = make_event(rows=0, general_admission=1)
    holder = join(event)
    hold(event, holder, **PLACE, key="last")
    open_gate(event)
    assert is_refused(event, **PLACE)
    return event, holder


def heals(event: events.EventView, holder: Any) -> None:
    """After the next reset it refuses again, but not the holder of the last ticket."""
    redis.forget_outage()
    cache.clear_all()
    assert rebuild.reset_due() == 1
    assert is_refused(event, **PLACE)
    assert not is_refused(event, holder, **PLACE)
    assert "pending_payment" in reservations.hold_one(event, holder, PLACE, "last").body
    assert_audit_clean()


def test_a_gate_without_redis_lets_through(sold_out: Any, own_redis: OwnRedis) -> None:
    event, holder = sold_out
    own_redis.kill()
    away_before = count_answers("away")
    assert not is_refused(event, **PLACE)
    assert count_answers("away") == away_before + 1
    with pytest.raises(reservations.SoldOut):
        reservations.hold_one(event, join(event), PLACE, "a-key")
    assert rebuild.reset(event.id) == "away"
    own_redis.return_empty()
    heals(event, holder)


@pytest.mark.parametrize("lost", ["everything", "marks", "gate"])
def test_a_gate_that_lost_data_lets_through_until_it_is_reset(sold_out: Any, lost: str) -> None:
    event, holder = sold_out
    if lost == "everything":
        redis.client().flushall()
    else:
        redis.client().delete(gate_counts.keys(event.id)[lost == "marks"])
    unloaded = count_answers("unloaded")
    assert not is_refused(event, **PLACE)
    assert count_answers("unloaded") == unloaded + 1
    heals(event, holder)


def test_a_server_that_returns_with_old_data_refuses_no_request(sold_out: Any, own_redis: OwnRedis) -> None:
    """As after a restart with a snapshot, or a failover to a replica that lags: the keys are from an earlier moment,
    the run id is another one."""
    event, holder = sold_out
    dumps = {key: redis.client().dump(key) for key in gate_counts.keys(event.id)}
    # The old clock is set to the current time: the restart took no time at all, the hardest case.
    own_redis.kill()
    own_redis.return_empty()
    for key, dumped in dumps.items():
        redis.client().restore(key, 0, dumped)  # type: ignore[arg-type]
    now = int(redis.client().time()[0]) * 1_000  # type: ignore[index]
    write_gate_fields(event, read_at=now - 1_000, until=now + HOUR_MS)
    another = count_answers("another_server")
    assert not is_refused(event, **PLACE)
    assert count_answers("another_server") == another + 1
    heals(event, holder)


def test_a_server_out_of_memory_refuses_no_request_until_the_database_was_read(sold_out: Any) -> None:
    """The hold's update is refused, so the gate is shut for every process at once; memory is available again, and the
    gate stays shut until a reset."""
    event, holder = sold_out
    reservations.release(reservations.live_reservation_of(holder.id).id, "test")  # type: ignore[union-attr]
    redis.client().config_set("maxmemory", 1)
    late = join(event)
    hold(event, late, **PLACE, key="last")
    assert read_gate_field(event, "until") == ""
    write_refused = count_answers("out_of_memory")
    assert not is_refused(event, **PLACE)
    assert count_answers("out_of_memory") == write_refused + 1
    assert rebuild.reset(event.id) == "out_of_memory"
    redis.client().config_set("maxmemory", 0)
    assert int(read_gate_field(event, f"left {section_of(event, 'floor')}")) == 1, (
        "the gate lacks the update that was refused"
    )
    shut = count_answers("shut")
    assert ask_gate(event, **PLACE) is None
    assert count_answers("shut") == shut + 1
    heals(event, late)
