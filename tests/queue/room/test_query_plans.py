"""Query plans of statements that run under the room's lock: by the index, for any number of entries."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from apps.events.facade import EventView
from apps.kernel import clock
from apps.kernel.db import sql
from tests.support.queue.proven_rooms import join_entries
from tests.support.queue.rooms import make_room

WAITING = 2_000
LET_IN = {
    "most": 5,
    "only_marked": False,
    "numbered_through": None,
    "present": [],
    "admission_seconds": 300,
    "claim_seconds": 120,
}


@pytest.fixture
def line(db: None) -> EventView:
    event = make_room()
    join_entries(event, WAITING)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE queue_queueentry")
    return event


@pytest.mark.parametrize("name", ["admit", "lock_visitor_entries", "lowest_waiting", "rooms_to_tick"])
def test_a_tick_or_a_join_never_scans_the_table(line: EventView, name: str) -> None:
    """A plan whose cost grows with the queue is unnoticed at this size, and blocks the system at a million entries."""
    given = {
        "event_id": line.id,
        "visitor_ids": ["visitor-1", "visitor-2"],
        "now": clock.now(),
        "lately_seconds": 10,
        **LET_IN,
    }
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (FORMAT JSON) " + sql.load("apps.queue", name).text, given)
        (((found,),),) = cursor.fetchall()
    steps = [step["Node Type"] for step in _steps(found["Plan"]) if step.get("Relation Name") == "queue_queueentry"]
    assert any("Index" in step for step in steps)
    assert not any("Seq" in step for step in steps), steps


@pytest.mark.parametrize("name", ["account_entries", "guest_entries"])
def test_an_owners_entry_is_found_by_the_index(line: EventView, name: str) -> None:
    given = {"event_ids": [line.id] * 3, "account_ids": [1, 2, 3], "visitor_ids": ["one", "two", "three"]}
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (FORMAT JSON) " + sql.load("apps.queue", name).text, given)
        (((found,),),) = cursor.fetchall()
    steps = [step["Index Name"] for step in _steps(found["Plan"]) if step.get("Relation Name") == "queue_queueentry"]
    assert steps == [f"queue_entry_one_place_per_{'account' if name == 'account_entries' else 'visitor'}"]


def _steps(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", []):
        yield from _steps(part)
