"""Turns between processes: a batcher waits for its turn before it dequeues a batch, and proceeds after a timeout."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection

from apps.kernel.group_commit import batcher as group_commit
from apps.kernel.group_commit.batcher import Batcher, decide_finds_committed
from apps.kernel.group_commit.process_turns import Turns
from tests.support.batches import BackgroundCall, Breakpoint, wait_until

TIMEOUT_MS = 20_000
LONG_MS = 60_000
_RIVAL = """
import sys
from pathlib import Path
from apps.kernel.group_commit.process_turns import Turns
turns = Turns(Path(sys.argv[1]))
print(turns.begin(sys.argv[2]), flush=True)
sys.stdin.readline()
turns.end(sys.argv[2])
print("ended", flush=True)
sys.stdin.readline()
"""


@contextmanager
def rival(file: Path, key: str = "event") -> Iterator[subprocess.Popen[str]]:
    """Start another process that has the turn; a line on its standard input ends the turn."""
    process = subprocess.Popen(
        [sys.executable, "-c", _RIVAL, str(file), key], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert read_line(process) == "True"
        yield process
    finally:
        process.kill()
        process.communicate()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def send_line(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_a_process_keeps_its_turn_for_a_key_until_it_ends_it_or_dies(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "turns"
    turns = Turns(file)
    with rival(file) as other:
        assert not turns.begin("event", wait_ms=0)
        assert turns.begin("another event", wait_ms=0)
        send_line(other)
        assert read_line(other) == "ended"
        assert turns.begin("event", wait_ms=0)
        turns.end("event")
    with rival(file) as other:
        other.kill()
        assert turns.begin("event", wait_ms=LONG_MS)
        turns.end("event")


def test_without_a_file_there_are_no_turns(tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    assert not Turns(tmp_path / "a file" / "turns").begin("event")


class Patient(Turns):
    def begin(self, key: Any, *, wait_ms: float = 0) -> bool:
        return super().begin(key, wait_ms=LONG_MS)


@pytest.mark.django_db(transaction=True)
def test_requests_that_arrive_while_a_batch_waits_for_its_turn_are_in_it(tmp_path: Path) -> None:
    """Rival: has the turn.
    Batcher: the first request waits for the turn, two more arrive.
    Rival: ends its turn; all three requests are one batch.
    """
    batches: list[list[int]] = []

    def decide(connection: Connection[Any], requests: list[int]) -> list[int]:
        batches.append(requests)
        return requests

    batcher: Batcher[int, int] = Batcher(
        "in turn",
        decide,
        find_committed=decide_finds_committed,
        meets_at=lambda request: "event",
        turns=Patient(tmp_path / "turns"),
    )
    try:
        with rival(tmp_path / "turns") as other:
            callers = []
            for number in range(3):
                callers.append(BackgroundCall(lambda number=number: batcher.submit_sync(number, LONG_MS)))  # type: ignore[misc]
                wait_until(lambda number=number: batcher.waiting_count > number, "it waits")  # type: ignore[misc]
            send_line(other)
            assert [caller.result() for caller in callers] == [0, 1, 2]
        assert batches == [[0, 1, 2]]
        assert batcher.submit_sync(3, TIMEOUT_MS) == 3, "the batcher has ended its turn"
    finally:
        batcher.close()


@pytest.mark.django_db(transaction=True)
def test_a_mixed_batch_has_one_turn_and_includes_requests_that_arrive_meanwhile(tmp_path: Path) -> None:
    """Rival: has the turn of mixed batches.
    Batcher: a and b wait while another batch runs, then for the turn; c arrives.
    Rival: ends its turn; all three requests are one batch.
    """
    batches: list[list[str]] = []
    gate = Breakpoint()

    def decide(connection: Connection[Any], requests: list[str]) -> list[str]:
        batches.append(requests)
        if requests == ["first"]:
            gate.arrive_and_wait()
        return requests

    batcher: Batcher[str, str] = Batcher(
        "in turn",
        decide,
        find_committed=decide_finds_committed,
        key=lambda request: request,
        meets_at=lambda request: request,
        mixes=True,
        turns=Patient(tmp_path / "turns"),
    )
    callers = []

    def submit(request: str) -> None:
        callers.append(BackgroundCall(lambda: batcher.submit_sync(request, LONG_MS)))

    try:
        with rival(tmp_path / "turns", group_commit._MIXED_TURN) as other:
            submit("first")
            gate.wait_until_reached()
            for number, request in enumerate("ab"):
                submit(request)
                wait_until(lambda number=number: batcher.waiting_count > number, "it waits")  # type: ignore[misc]
            gate.open()
            wait_until(lambda: bool(batcher._mixed_since), "both requests wait for the turn")
            submit("c")
            wait_until(lambda: batcher.waiting_count == 3, "it waits")
            send_line(other)
            assert [caller.result() for caller in callers] == ["first", "a", "b", "c"]
        assert batches == [["first"], ["a", "b", "c"]]
    finally:
        batcher.close()


@pytest.mark.django_db(transaction=True)
def test_a_batch_proceeds_without_a_turn_after_the_timeout(tmp_path: Path) -> None:
    batcher: Batcher[int, int] = Batcher(
        "out of turn",
        lambda connection, requests: requests,
        find_committed=decide_finds_committed,
        meets_at=lambda request: "event",
        turns=Turns(tmp_path / "turns"),
    )
    try:
        with rival(tmp_path / "turns"):
            assert batcher.submit_sync(1, TIMEOUT_MS) == 1
    finally:
        batcher.close()
