"""The queue as observed by all visitors, checked against the rules of the waiting room.

A client learns of an admission only from its next response. So the rules are checked only against facts that
responses prove: a visitor seen inside has been admitted before, and a visitor counts as active only while that is
certain, from the response with the admission to the request that may have ended it.
"""

import base64
import heapq
import json
from array import array
from dataclasses import dataclass, field

from ticketing.simulator.stats import Breaches, HighestSeen

STALE_SECONDS_MAX = 5.0
"""On an overloaded machine, a status may come from a snapshot of the room up to this old."""
ON_TIME_SECONDS_MAX = 5.0
"""A request at most this long after `next_poll` is on time."""
EXPIRY_MARGIN_SECONDS = 2.0
"""An admission counts as over this long before its stated end, because two clocks may differ."""


@dataclass(slots=True)
class ObservedQueue:
    breaches: Breaches
    rate_max: float | None = None
    active_max: int | None = None
    joins: "array[float]" = field(default_factory=lambda: array("d"))
    """When each join was first sent, in seconds of the event loop."""
    admissions: "array[float]" = field(default_factory=lambda: array("d"))
    """When a response first reported each admission."""
    active_most: int = 0
    overtaken: int = 0
    responses: int = 0
    """Responses to waiting visitors whose positions were checked."""
    _owners: dict[int, str] = field(default_factory=dict)
    _highest: HighestSeen = field(default_factory=HighestSeen)
    _admitted: set[int] = field(default_factory=set)
    _active: dict[str, float] = field(default_factory=dict)
    _ends: list[tuple[float, str]] = field(default_factory=list)

    def joined(self, visitor: str, number: int | None) -> None:
        """Record the visitor's number, which no other visitor may have."""
        if number is None:
            return
        owner = self._owners.setdefault(number, visitor)
        if owner != visitor:
            self.breaches.note("duplicate numbers", f"{owner} and {visitor} both have number {number}")

    def waits(self, visitor: str, number: int | None, position: int, sent_at: float) -> None:
        """Record that a request sent at `sent_at` found the visitor waiting at this position."""
        self.responses += 1
        if number is None or position < 1:
            return
        highest = self._highest.before(sent_at - STALE_SECONDS_MAX)
        if highest > number:
            self.overtaken += 1
            self.breaches.note("overtaken", f"number {number} waits, but number {highest} was admitted before")

    def admitted(self, visitor: str, number: int | None, at: float, seconds_left: float) -> None:
        """Record an admission for at least this long. It may be repeated for a visitor who returns."""
        if number is None or number not in self._admitted:
            self.admissions.append(at)
        if number is not None:
            self._admitted.add(number)
            self._highest.note(at, number)
        self._forget_lapsed(at)
        until = at + seconds_left - EXPIRY_MARGIN_SECONDS
        self._active[visitor] = until
        heapq.heappush(self._ends, (until, visitor))
        self.active_most = max(self.active_most, len(self._active))
        if self.active_max is not None and len(self._active) > self.active_max:
            self.breaches.note("cap exceeded", f"{len(self._active)} inside at once, {self.active_max} allowed")

    def holds(self, visitor: str, at: float, seconds_left: float) -> None:
        """Record that a reservation keeps the visitor active for this long."""
        if visitor in self._active:
            self._active[visitor] = until = at + seconds_left - EXPIRY_MARGIN_SECONDS
            heapq.heappush(self._ends, (until, visitor))

    def may_have_ended(self, visitor: str) -> None:
        """Record that from now on the visitor may no longer be active."""
        self._active.pop(visitor, None)

    @property
    def active(self) -> int:
        return len(self._active)

    def _forget_lapsed(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            until, visitor = heapq.heappop(self._ends)
            if self._active.get(visitor) == until:
                del self._active[visitor]


def claims_of(token: str) -> dict[str, object]:
    """Return the claims of a token without verifying it; empty if they cannot be decoded."""
    try:
        part = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError):
        return {}
    return claims if isinstance(claims, dict) else {}


def number_of(token: str) -> int | None:
    """Return the queue number in the token, if it has one."""
    number = claims_of(token).get("num")
    return number if isinstance(number, int) and not isinstance(number, bool) else None
