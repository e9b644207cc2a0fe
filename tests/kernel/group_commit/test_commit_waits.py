"""A group commit with few requests waits for more while many arrive, and an idle one commits at once."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from apps.kernel.group_commit import arrivals
from apps.kernel.group_commit import batcher as batchers
from apps.kernel.group_commit.arrivals import FREQUENT_MIN, KEYS_MAX, WINDOW_SECONDS, Arrivals
from tests.support.batches import TIMEOUT_MS, BackgroundCall, Decider, Note, batcher, notes, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_note_tables")]


@pytest.fixture
def at_wait(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What happens during each wait, in this order; it must be used up."""
    acts: list[Callable[[], object]] = []
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: acts.pop(0)())
    monkeypatch.setattr(batchers, "time", clock)
    return acts


def test_requests_that_arrive_during_the_wait_are_in_the_batch(
    at_wait: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Arrivals, "are_frequent", lambda *_: True)
    decider, others = Decider(), list[BackgroundCall]()
    with batcher(decider) as target:

        def arrive() -> None:
            others.append(BackgroundCall(lambda: target.submit_sync(Note("second"), TIMEOUT_MS)))
            wait_until(lambda: target.waiting_count == 2, "the second request waits")

        at_wait.append(arrive)
        assert target.submit_sync(Note("first"), TIMEOUT_MS) == 1
        assert others[0].result() == 2
    assert decider.batches == [["first", "second"]]


def test_without_many_requests_or_with_many_that_wait_or_if_it_is_turned_off_no_batch_waits(
    at_wait: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    with batcher(Decider()) as target:
        assert [target.submit_sync(note, TIMEOUT_MS) for note in notes(3)] == [1, 2, 3]
    monkeypatch.setattr(Arrivals, "are_frequent", lambda *_: True)
    monkeypatch.setattr(batchers, "FEW", 1)
    with batcher(Decider()) as target:
        assert target.submit_sync(Note("one"), TIMEOUT_MS) == 4
    monkeypatch.setattr(batchers, "FEW", 16)
    settings.GROUP_COMMIT_GATHER_MS = 0
    with batcher(Decider()) as target:
        assert target.submit_sync(Note("two"), TIMEOUT_MS) == 5
    assert at_wait == []


def test_arrivals_are_frequent_by_the_present_or_the_last_window() -> None:
    counted, begun = Arrivals(), 1_000 * WINDOW_SECONDS
    for _ in range(FREQUENT_MIN - 1):
        counted.note("busy", begun)
    counted.note("quiet", begun)
    assert not counted.are_frequent("busy", begun)
    counted.note("busy", begun)
    assert counted.are_frequent("busy", begun)
    assert counted.are_frequent("busy", begun + 1.5 * WINDOW_SECONDS)
    assert not counted.are_frequent("busy", begun + 2.5 * WINDOW_SECONDS)
    assert not counted.are_frequent("quiet", begun)
    assert not counted.are_frequent("another", begun)
    counted.note("busy", begun + 1.5 * WINDOW_SECONDS)
    assert counted.are_frequent("busy", begun + 1.5 * WINDOW_SECONDS)
    counted.note("busy", begun + 3.5 * WINDOW_SECONDS)
    assert not counted.are_frequent("busy", begun + 3.5 * WINDOW_SECONDS), "a window without requests lies between"


def test_counted_keys_are_bounded() -> None:
    counted = Arrivals()
    for key in range(3 * KEYS_MAX):
        counted.note(key, 1.0)
    assert len(counted._counts) <= arrivals.KEYS_MAX
