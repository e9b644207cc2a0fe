"""Heartbeats: signs that the loops of this process still run.

A loop beats once in each round. It is stalled if its next beat does not come within the time that it named. Nothing is
watched before its first beat, or after `end`.
"""

import os
import time
from collections.abc import Callable

_beats: dict[str, tuple[float, float]] = {}
"""By loop: when its next beat is due, on the process's monotonic clock, and the time between beats."""
_waiting: dict[str, Callable[[], bool]] = {}
os.register_at_fork(after_in_child=_beats.clear)


def beat(loop: str, seconds_max: float) -> None:
    """Record that this loop runs, and that its next beat comes within `seconds_max`. For any thread."""
    _beats[loop] = time.monotonic() + seconds_max, seconds_max


def end(loop: str) -> None:
    """Stop watching this loop, because it has ended in order or has nothing to do."""
    _beats.pop(loop, None)


def allow_waiting(loop: str, is_waiting: Callable[[], bool]) -> None:
    """While `is_waiting` returns true, count this loop as running although it does not beat. `is_waiting` may block."""
    _waiting[loop] = is_waiting


def stalled() -> list[str]:
    """Return the names of the loops whose beat is overdue."""
    found = []
    for loop, (due_at, seconds_max) in list(_beats.items()):
        if due_at >= time.monotonic():
            continue
        if loop in _waiting and _waiting[loop]():
            beat(loop, seconds_max)  # After the wait, the loop has the whole time again.
        else:
            found.append(loop)
    return found
