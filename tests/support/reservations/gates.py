"""Gates in tests: open them, query them, and store wrong values in them."""

from typing import Any

import pytest

from apps.events import facade as events
from apps.kernel import redis
from apps.kernel.http import problems
from apps.queue import facade as queue
from apps.reservations import facade
from apps.reservations.gate import gate, rebuild
from apps.reservations.holds import event_cache
from apps.reservations.lifecycle import gate_counts
from tests.support.factories import join

HOUR_MS = 3_600_000


def disable_expiry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing expire by itself, however slow the machine is: a test sets ages explicitly."""
    monkeypatch.setattr(gate, "VALID_MS", HOUR_MS)
    monkeypatch.setattr(gate, "REQUEST_MARK_MS", HOUR_MS)
    for name in ("RESET_AFTER_MS", "CALM_AFTER_MS", "QUIET_AFTER_MS", "WANTED_AFTER_MS"):
        monkeypatch.setattr(rebuild, name, HOUR_MS // 2)
    monkeypatch.setattr(rebuild, "EXAMINE_AGAIN_SECONDS", HOUR_MS / 1_000)
    monkeypatch.setattr(rebuild, "GATED_SECONDS", 0.0)
    monkeypatch.setattr(facade, "HOLD_TIMEOUT_MS", HOUR_MS)
    monkeypatch.setattr(event_cache.seating, "fresh_seconds", HOUR_MS / 1_000)


def open_gate(event: events.EventView) -> None:
    outcome = rebuild.reset(event.id)
    assert outcome in rebuild.OPENED, outcome


def ask_gate(
    event: events.EventView, entry: queue.EntryView | None = None, *, key: str = "a-key", **payload: Any
) -> problems.Problem | None:
    """Return the gate's refusal of this entry, or of a new one."""
    return gate.refusal(event, (entry or join(event)).id, payload, key)


def is_refused(event: events.EventView, entry: queue.EntryView | None = None, **payload: Any) -> bool:
    return ask_gate(event, entry, **payload) is not None


def section_of(event: events.EventView, slug: str) -> int:
    (found,) = [section.id for section in events.list_sections(event.id) if section.slug == slug]
    return found


def read_gate_field(event: events.EventView, name: str) -> str:
    """Return one field of the gate from Redis."""
    return gate.text(redis.client().hget(gate_counts.keys(event.id)[0], name))  # type: ignore[arg-type]


def write_gate_fields(event: events.EventView, **fields: Any) -> None:
    """Overwrite fields of the gate, right or wrong. `left_floor=0` is the count of section floor."""
    for name, value in fields.items():
        kind, _, slug = name.partition("_")
        of_section = kind in ("left", "lapses", "ended")
        field = f"{kind} {section_of(event, slug)}" if of_section else name
        redis.client().hset(gate_counts.keys(event.id)[0], field, value)


def count_answers(answer: str) -> float:
    """Return how often this process gave this answer."""
    return gate.asked.labels(answer)._value.get()


def jump_clock(event: events.EventView, milliseconds: int) -> None:
    """Simulate a jump of Redis's clock, forward or back, by shifting every time that the gate stored."""
    client, (name, marks) = redis.client(), gate_counts.keys(event.id)
    for mark, ends in client.zrange(marks, 0, -1, withscores=True):  # type: ignore[union-attr]
        client.zadd(marks, {mark: ends - milliseconds})
    for dated in ("read_at", "until", "marked_at"):
        found = client.hget(name, dated)
        if found is not None:
            client.hset(name, dated, int(found) - milliseconds)  # type: ignore[arg-type]


def count_left(event: events.EventView, slug: str = "floor") -> int:
    """Return the gate's count of the section."""
    return int(read_gate_field(event, f"left {section_of(event, slug)}"))
