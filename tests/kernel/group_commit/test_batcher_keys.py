"""Group commit by key (an event, for example): each key has its own queue, and no request waits for another key's."""

import pytest

from apps.kernel.group_commit import batcher as group_commit
from apps.kernel.http import problems
from tests.support.batches import (
    TIMEOUT_MS,
    BackgroundCall,
    Breakpoint,
    Decider,
    Note,
    batcher,
    notes,
    submit_in_order,
    threads_of,
    wait_until,
    written_notes,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_note_tables")]


def key_of(note: Note) -> str:
    """Return the first word: the key of `concert 3` is `concert`."""
    return note.text.split()[0]


class Stuck:
    """A decider that holds each batch with a note of the key `stuck` at a gate, before its transaction begins."""

    def __init__(self) -> None:
        self.gate = Breakpoint()
        self.decider = Decider()

    def __call__(self, connection: object, requests: list[Note]) -> list[int]:
        if any(key_of(note) == "stuck" for note in requests):
            self.gate.arrive_and_wait()
        return self.decider(connection, requests)  # type: ignore[arg-type]

    @property
    def find(self) -> object:
        return self.decider.find


def of(key: str, count: int) -> list[Note]:
    return [Note(f"{key} {number}") for number in range(count)]


def test_a_stuck_key_delays_no_other_key_and_continues_in_order_afterwards() -> None:
    """One batch of `stuck` hangs and more of its requests wait; another key's requests are decided immediately."""
    stuck = Stuck()
    with batcher(stuck, key=key_of, committers_max=2) as target:
        first = BackgroundCall(lambda: target.submit_sync(Note("stuck 0"), TIMEOUT_MS))
        stuck.gate.wait_until_reached()
        waiting = submit_in_order(target, [Note("stuck 1"), Note("stuck 2")])
        assert [target.submit_sync(note, TIMEOUT_MS) for note in of("quick", 3)] == [1, 2, 3]
        stuck.gate.open()
        stuck.gate.wait_until_reached()
        stuck.gate.open()
        assert [first.result(), *(caller.result() for caller in waiting)] == [4, 5, 6]
    assert stuck.decider.batches[-1] == ["stuck 1", "stuck 2"]


def test_the_number_of_committers_is_limited_and_keys_take_turns() -> None:
    """Two committers hang with a key each; three keys wait. They are served in order of arrival, one batch each: a key
    with more requests than a batch holds is served again after the others."""
    gate, decider = Breakpoint(), Decider()

    class First:
        find = decider.find

        def __call__(self, connection: object, requests: list[Note]) -> list[int]:
            if requests[0].text.startswith("first"):
                gate.arrive_and_wait()
            return decider(connection, requests)  # type: ignore[arg-type]

    with batcher(First(), key=key_of, committers_max=2, batch_max=2) as target:
        firsts = [BackgroundCall(lambda n=n: target.submit_sync(Note(f"first-{n} x"), TIMEOUT_MS)) for n in (1, 2)]
        gate.wait_until_reached()
        gate.wait_until_reached()
        waiting = submit_in_order(target, [*of("a", 3), *of("b", 1), *of("c", 2)])
        assert len(threads_of("batcher-notes")) == 2
        gate.open()
        for caller in waiting:
            caller.result()
        # One committer still hangs: the other one has decided these batches.
        assert decider.batches[1:] == [["a 0", "a 1"], ["b 0"], ["c 0", "c 1"], ["a 2"]]
        gate.open()
        for first in firsts:
            first.result()
    assert len(written_notes()) == 8


def test_small_queues_are_decided_together_and_a_large_one_alone() -> None:
    gate, decider = Breakpoint(), Decider()
    decider.before[1] = lambda _: gate.arrive_and_wait()
    with batcher(decider, key=key_of, mixes=True, batch_max=6) as target:
        first = BackgroundCall(lambda: target.submit_sync(Note("first 0"), TIMEOUT_MS))
        gate.wait_until_reached()
        callers = submit_in_order(target, [*of("a", 1), *of("large", 4), *of("b", 2), *of("c", 3)])
        gate.open()
        for caller in (first, *callers):
            caller.result()
    assert decider.batches == [
        ["first 0"], ["a 0", "b 0", "b 1", "c 0", "c 1", "c 2"], ["large 0", "large 1", "large 2", "large 3"],
    ]  # fmt: skip


def test_after_a_slow_mixed_batch_its_keys_are_decided_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(group_commit, "SLOW_TIMES", 0.0)
    monkeypatch.setattr(group_commit, "ALONE_SECONDS", 1_000.0)
    gate, decider = Breakpoint(), Decider()
    decider.before = {1: lambda _: gate.arrive_and_wait(), 3: lambda _: gate.arrive_and_wait()}
    with batcher(decider, key=key_of, mixes=True) as target:
        for round_number in (1, 2):
            first = BackgroundCall(lambda n=round_number: target.submit_sync(Note(f"first-{n} 0"), TIMEOUT_MS))
            gate.wait_until_reached()
            callers = submit_in_order(target, [*of("a", 1), *of("b", 1)])
            gate.open()
            for caller in (first, *callers):
                caller.result()
    assert decider.batches == [["first-1 0"], ["a 0", "b 0"], ["first-2 0"], ["a 0"], ["b 0"]]


def test_keys_whose_last_batch_was_slow_leave_half_of_the_committers_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three such keys have requests: two batches run, and the third waits for one of them although committers are free.
    Before, as many such keys as committers kept all others waiting for as long as their batches took."""
    monkeypatch.setattr(group_commit, "SLOW_SECONDS", 1_000.0)
    gates, decider = {f"slow-{number}": Breakpoint() for number in range(3)}, Decider()

    class Held:
        find = decider.find

        def __call__(self, connection: object, requests: list[Note]) -> list[int]:
            if (gate := gates.get(key_of(requests[0]))) is not None:
                gate.arrive_and_wait()
            return decider(connection, requests)  # type: ignore[arg-type]

    with batcher(Held(), key=key_of, committers_max=4, mixes=True) as target:
        with target._changed:
            target._slow, target._alone_until = set(gates), dict.fromkeys(gates, float("inf"))
        callers = []
        for key in gates:
            callers.append(BackgroundCall(lambda key=key: target.submit_sync(Note(f"{key} 0"), TIMEOUT_MS)))  # type: ignore[misc]
            if len(callers) < 3:
                gates[key].wait_until_reached()
        wait_until(lambda: target.waiting_count == 1, "the third one waits")
        assert target.submit_sync(Note("quick 0"), TIMEOUT_MS) == 1
        assert target.waiting_count == 1
        gates["slow-0"].open()
        gates["slow-2"].wait_until_reached()
        for key in ("slow-1", "slow-2"):
            gates[key].open()
        for caller in callers:
            caller.result()
        assert target._slow == set(), "their last batches were quick"
    assert decider.batches[:2] == [["quick 0"], ["slow-0 0"]]


def test_batches_that_become_slower_little_by_little_are_slow() -> None:
    with batcher(Decider(), key=key_of, mixes=True, committers_max=4) as target:
        target._queues |= dict.fromkeys("ab")
        seconds = 0.1
        while seconds < 1:
            target._track_duration(["a"], seconds)
            seconds *= 1.05
        assert target._slow == {"a"}
        target._queues.clear()


def test_a_slow_key_is_one_until_its_next_quick_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    with batcher(key=key_of, committers_max=2, mixes=True) as target, target._changed:
        target._queues["a"] = target._queues["b"] = group_commit._Queue()
        target._track_duration(["a", "b"], 10.0)
        assert target._slow == {"a", "b"}
        target._track_duration(["b"], 0.01)
        assert target._slow == {"a"}
        assert target._alone_until.keys() == {"a", "b"}
        monkeypatch.setattr(group_commit.time, "monotonic", lambda: float("inf"))
        target._track_duration(["c"], 0.01)
        assert target._slow == set()
        target._queues.clear()


class HeldBatches:
    """A decider that holds every batch at a gate, the first ones at a gate of their own; `quick` is not batches."""

    def __init__(self) -> None:
        self.firsts, self.gate = Breakpoint(), Breakpoint()
        self.decider = Decider()

    def __call__(self, connection: object, requests: list[Note]) -> list[int]:
        key = key_of(requests[0])
        if key != "quick":
            (self.firsts if key.startswith("first") else self.gate).arrive_and_wait()
        return self.decider(connection, requests)  # type: ignore[arg-type]

    @property
    def find(self) -> object:
        return self.decider.find


def begin_mixed_batch(batches: HeldBatches, target: group_commit.Batcher[Note, int]) -> list[BackgroundCall]:
    """Leave a mixed batch of `a` and `b` at the gate, with the second of two committers idle."""
    callers = []
    for number in (1, 2):
        callers.append(BackgroundCall(lambda n=number: target.submit_sync(Note(f"first-{n} 0"), TIMEOUT_MS)))  # type: ignore[misc]
        batches.firsts.wait_until_reached()
    callers += submit_in_order(target, [*of("a", 1), *of("b", 1)])
    batches.firsts.open()
    batches.gate.wait_until_reached()
    batches.firsts.open()
    wait_until(lambda: target._idle == 1, "one committer is idle")
    return callers


def test_while_a_mixed_batch_runs_other_keys_gather_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Requests of three small keys arrive while a mixed batch of two keys runs and a committer is idle: no batch
    begins. A key that is decided alone does not wait."""
    monkeypatch.setattr(group_commit, "LATE_SECONDS", 1_000.0)
    batches = HeldBatches()
    with batcher(batches, key=key_of, committers_max=2, mixes=True, batch_max=6) as target:
        callers = begin_mixed_batch(batches, target)
        callers += submit_in_order(target, [*of("c", 1), *of("d", 2), *of("e", 1)])
        with target._changed:
            target._alone_until["quick"] = float("inf")
        assert target.submit_sync(Note("quick 0"), TIMEOUT_MS) == 3
        batches.gate.open()
        batches.gate.wait_until_reached()
        batches.gate.open()
        for caller in callers:
            caller.result()
    assert batches.decider.batches[2:] == [["quick 0"], ["a 0", "b 0"], ["c 0", "d 0", "d 1", "e 0"]]


def test_no_key_waits_for_a_late_mixed_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "LATE_SECONDS", 0.01)
    monkeypatch.setattr(group_commit, "LATE_TIMES", 0.0)
    batches = HeldBatches()
    with batcher(batches, key=key_of, committers_max=2, mixes=True) as target:
        callers = begin_mixed_batch(batches, target)
        assert target.submit_sync(Note("quick 0"), TIMEOUT_MS) == 3
        batches.gate.open()
        for caller in callers:
            caller.result()
    assert batches.decider.batches[2:] == [["quick 0"], ["a 0", "b 0"]]


def test_a_full_queue_refuses_only_its_own_key() -> None:
    stuck = Stuck()
    with batcher(stuck, key=key_of, committers_max=2, waiting_max=2) as target:
        first = BackgroundCall(lambda: target.submit_sync(Note("stuck 0"), TIMEOUT_MS))
        stuck.gate.wait_until_reached()
        waiting = submit_in_order(target, [Note("stuck 1"), Note("stuck 2")])
        with pytest.raises(problems.Busy):
            target.submit_sync(Note("stuck 3"), TIMEOUT_MS)
        assert target.submit_sync(Note("quick 0"), TIMEOUT_MS) == 1
        stuck.gate.open()
        stuck.gate.wait_until_reached()
        stuck.gate.open()
        for caller in (first, *waiting):
            caller.result()


def test_the_queue_of_a_key_without_requests_is_removed() -> None:
    with batcher(key=key_of, committers_max=2) as target:
        for note in notes(20):
            target.submit_sync(note, TIMEOUT_MS)
        wait_until(lambda: not target._queues, "the queues are removed")


def test_an_idle_committer_ends_and_the_next_request_starts_another() -> None:
    with batcher(idle_ms=1) as target:
        assert target.submit_sync(Note("before"), TIMEOUT_MS) == 1
        wait_until(lambda: not threads_of("batcher-notes"), "the committer has ended")
        assert target.submit_sync(Note("after"), TIMEOUT_MS) == 2
