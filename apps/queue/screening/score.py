"""Signals that a join may come from a program, each with a name and its points. Their sum is the join's score.

The score makes the work longer, and from the room's `review_score` on the entry waits for the organizer's review, who
sees the reasons. It refuses no join: each signal alone has an innocent explanation.
"""

from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

from apps.kernel import clock, rate_limits
from apps.kernel.proof_of_work.arrivals import Arrivals, wide_network_of
from apps.queue.identity.caller import Caller

ADDRESS_POINTS_MAX = 4
NETWORK_POINTS_MAX = 3
MOVING_POINTS = 2
NETWORKS_MAX = 3
"""A device that joins from more networks than this within an hour: one identity, used from many networks."""
NETWORKS_SECONDS = 3_600
FAST_POINTS = 1
FAST_SECONDS = 0.1
"""A page that loads, solves the shortest challenge and sends its form took 0.19 s at least (Chromium, 2 cores)."""
NEW_ACCOUNT_POINTS = 1
NEW_ACCOUNT_DAYS = 1
OLD_ACCOUNT_POINTS = -1
OLD_ACCOUNT_DAYS = 30
DEVICES_MAX = 32_768


class Score(NamedTuple):
    points: int
    reasons: str
    """For the organizer: each reason with its points. Without addresses or other personal data."""

    def raised_to(self, points: int) -> "Score":
        """Return the score with at least these points, which the join's challenge had."""
        if points <= self.points:
            return self
        return Score(points, "; ".join(filter(None, [self.reasons, f"its challenge {points - self.points:+d}"])))


class DeviceNetworks:
    """The networks from which each device joined lately, in bounded memory of this process."""

    def __init__(self, time: Callable[[], float] = monotonic) -> None:
        self._time = time
        self.clear()

    def clear(self) -> None:
        self._recent: dict[str, dict[str, float]] = {}
        self._older: dict[str, dict[str, float]] = {}

    def count(self, device: str, network: str) -> int:
        """Record the join, and return from how many networks this device joined within NETWORKS_SECONDS."""
        now = self._time()
        known = self._recent.get(device) or self._older.get(device, {})
        seen = {name: at for name, at in known.items() if at > now - NETWORKS_SECONDS}
        seen[network] = now
        if len(seen) > NETWORKS_MAX + 1:
            del seen[min(seen, key=lambda name: seen[name])]
        if device not in self._recent and len(self._recent) >= DEVICES_MAX:
            self._older, self._recent = self._recent, {}
        self._recent[device] = seen
        return len(seen)


def assess(
    caller: Caller, device: str, address: str, arrivals: Arrivals, devices: DeviceNetworks, seconds: float | None = None
) -> Score:
    """Return the score of a join. `seconds`: from the challenge to its solution, if there was one. Counts the device's
    network, so call it once for each join."""
    usage = arrivals.usage(address)
    found = [
        ("many joins from one address", int(usage.address * ADDRESS_POINTS_MAX)),
        ("many joins from one network", int(usage.network * NETWORK_POINTS_MAX)),
    ]
    subject = rate_limits.subject(address)
    if subject and devices.count(device, wide_network_of(subject)) > NETWORKS_MAX:
        found.append(("one device in many networks", MOVING_POINTS))
    if seconds is not None and seconds < FAST_SECONDS:
        found.append(("answered faster than a page can", FAST_POINTS))
    if caller.account_since is not None:
        days = (clock.process_now() - caller.account_since).total_seconds() / 86_400
        found += [
            ("account younger than a day", NEW_ACCOUNT_POINTS if days < NEW_ACCOUNT_DAYS else 0),
            ("account older than 30 days", OLD_ACCOUNT_POINTS if days > OLD_ACCOUNT_DAYS else 0),
        ]
    given = [(reason, points) for reason, points in found if points]
    return Score(sum(points for _, points in given), "; ".join(f"{reason} {points:+d}" for reason, points in given))
