"""How often requests of a key arrive: whether others will join one that waits for a few milliseconds."""

from collections.abc import Hashable

WINDOW_SECONDS = 0.05
FREQUENT_MIN = 10
"""Requests of a key in a window: 200 a second, of which one or two arrive within the wait."""
KEYS_MAX = 256


class Arrivals:
    """Counts the requests of each key in the present and the last window, in bounded memory. Used under the lock of
    the batcher."""

    def __init__(self) -> None:
        # By key: the window of its latest request, the requests in it, and those in the window before.
        self._counts: dict[Hashable, tuple[int, int, int]] = {}

    def note(self, key: Hashable, now: float) -> None:
        """Count a request that arrives at this time of the monotonic clock."""
        window = int(now / WINDOW_SECONDS)
        latest, count, before = self._counts.get(key, (0, 0, 0))
        if latest == window:
            self._counts[key] = (window, count + 1, before)
            return
        if len(self._counts) >= KEYS_MAX and key not in self._counts:
            self._counts.clear()
        self._counts[key] = (window, 1, count if latest == window - 1 else 0)

    def are_frequent(self, key: Hashable, now: float) -> bool:
        """Return whether many requests of the key arrive, by the present or the last window."""
        window = int(now / WINDOW_SECONDS)
        latest, count, before = self._counts.get(key, (0, 0, 0))
        if latest == window:
            return max(count, before) >= FREQUENT_MIN
        return latest == window - 1 and count >= FREQUENT_MIN
