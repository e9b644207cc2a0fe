"""The JSON text for waiting visitors, compared with the fully built response."""

import json
import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.events import facade as events
from apps.queue.identity.caller import Caller
from apps.queue.serializers import status_answer
from apps.queue.snapshot.room_snapshot import RoomSnapshot
from apps.queue.status import estimates, status_json
from apps.queue.status.status import QueueStatus

NOW = datetime(2026, 5, 1, 19, tzinfo=UTC)
EVENT = events.EventView(
    1, "concert", "Concert", "Hall", "", "UTC", NOW + timedelta(days=9), "EUR", "published",
    events.Policy(NOW, None, 10, 3, 60, 8, None),
)  # fmt: skip

snapshots = st.builds(
    RoomSnapshot,
    event_id=st.just(1),
    at=st.just(NOW),
    state=st.sampled_from(["open", "paused"]),
    head=st.integers(0, 10**6),
    next_number=st.just(10**9),
    rate=st.floats(0.01, 5_000),
    rate_ceiling=st.integers(1, 5_000),
    active=st.integers(0, 10_000),
    freed_count=st.integers(-10, 10_000),
    observed_seconds=st.floats(0, 1_000),
    active_before=st.integers(0, 10_000),
    admitted_count=st.integers(0, 10_000),
    passed_count=st.integers(0, 20_000),
    open_seconds=st.floats(0, 10_000),
    active_max=st.integers(0, 10_000),
    claim_seconds=st.integers(1, 600),
    admission_seconds=st.integers(1, 3_600),
    supply_available=st.none() | st.integers(0, 10**6),
    supply_held=st.none() | st.integers(0, 10**6),
    message=st.text(max_size=40),
    message_at=st.none(),
    lobby_count=st.just(0),
    is_frozen=st.just(False),
    is_drawn=st.just(False),
    chain_head=st.just(""),
    epoch=st.just(1),
)


@given(snapshot=snapshots, ahead=st.integers(1, 2_000_000), seed=st.integers(0, 1_000))
def test_the_text_equals_the_full_response(snapshot: RoomSnapshot, ahead: int, seed: int) -> None:
    number = snapshot.head + ahead
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimates, "_random", random.Random(seed))
        in_full = status_answer(EVENT, QueueStatus(estimates.estimate_for_number(snapshot, number)), Caller())
        patch.setattr(estimates, "_random", random.Random(seed))
        status_json.encode_status(snapshot, number)  # The first use of a snapshot computes its estimate.
        patch.setattr(estimates, "_random", random.Random(seed))
        text = status_json.encode_status(snapshot, number)
    assert text is not None
    assert json.loads(text) == in_full


def test_in_a_drained_room_the_full_response_is_built() -> None:
    drained = RoomSnapshot(
        1, NOW, "drained", 5, 10, 1.0, 1, 0, 0, 0.0, 0, 0, 0, 0.0, 5, 60, 60, 0, 0, "", None, 0, False, False, "", 1
    )  # fmt: skip
    assert status_json.encode_status(drained, 7) is None
