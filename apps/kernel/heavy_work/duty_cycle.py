"""Limits repeated expensive work, such as counts of a very large venue, to a quarter of the time."""

import time

PAUSE_FACTOR = 3.0


def pause_seconds(begun: float) -> float:
    """Return the pause after work that began at `begun` (monotonic clock) and has just ended: three times as long."""
    return PAUSE_FACTOR * (time.monotonic() - begun)
