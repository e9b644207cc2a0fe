"""What is dear has a quarter of the time at most: in a huge house a count takes long, and is taken again and again."""

import time

REST_TIMES = 3.0


def rest_seconds(begun: float) -> float:
    """How long what was begun at that moment, on the process's monotonic clock, and has just ended is left alone."""
    return REST_TIMES * (time.monotonic() - begun)
