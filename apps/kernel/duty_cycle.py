"""What is dear has a quarter of the time at most: in a huge house a count takes long, and is taken again and again."""

import time

PAUSE_FACTOR = 3.0


def pause_seconds(begun: float) -> float:
    """How long what was begun at that moment, on the process's monotonic clock, and has just ended is left alone."""
    return PAUSE_FACTOR * (time.monotonic() - begun)
