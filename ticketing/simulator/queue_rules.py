"""What the crowd knows of the line as a whole, put together from everybody's answers, and held against the rules.

Nobody outside can see when the house let somebody in; a visitor learns of it with the next answer. So every rule is
held in the form in which it must hold for what was seen: who is seen to be inside has been let in before, and whoever
is counted as active is so for certain, from the answer that said so to the request that may have ended it.
"""

import base64
import heapq
import json
from array import array
from dataclasses import dataclass, field

from ticketing.simulator.stats import Breaches, HighestSeen

STALE_SECONDS_MAX = 5.0
"""A status may be answered from a copy of the room; by so much at most, on a machine that is out of breath."""
ON_TIME_SECONDS_MAX = 5.0
"""Who asked no later than this after `next_poll` has asked in time."""
EXPIRY_MARGIN_SECONDS = 2.0
"""An admission is taken for over so long before the answer said that it is: two clocks may differ."""


@dataclass(slots=True)
class ObservedQueue:
    breaches: Breaches
    rate_max: float | None = None
    active_max: int | None = None
    joins: "array[float]" = field(default_factory=lambda: array("d"))
    """When somebody first sent a join, and when an answer first said that somebody is in: the loop's seconds."""
    admissions: "array[float]" = field(default_factory=lambda: array("d"))
    active_most: int = 0
    overtaken: int = 0
    answers: int = 0
    """Answers of people waiting whose place was compared with everybody else's."""
    _places: dict[int, str] = field(default_factory=dict)
    _highest: HighestSeen = field(default_factory=HighestSeen)
    _let_in: set[int] = field(default_factory=set)
    _active: dict[str, float] = field(default_factory=dict)
    _ends: list[tuple[float, str]] = field(default_factory=list)

    def joined(self, visitor: str, number: int | None) -> None:
        """The visitor has this number; nobody else may have it."""
        if number is None:
            return
        owner = self._places.setdefault(number, visitor)
        if owner != visitor:
            self.breaches.note("one number twice", f"number {number} is {owner}'s and {visitor}'s")

    def waits(self, visitor: str, number: int | None, position: int, sent_at: float) -> None:
        """An answer to a request of `sent_at` said that the visitor waits behind so many numbers."""
        self.answers += 1
        if number is None or position < 1:
            return
        highest = self._highest.before(sent_at - STALE_SECONDS_MAX)
        if highest > number:
            self.overtaken += 1
            self.breaches.note("overtaken", f"number {number} waits, number {highest} was let in before")

    def admitted(self, visitor: str, number: int | None, at: float, seconds_left: float) -> None:
        """An answer said that the visitor is in, for so long at least; of one who comes back it may say so again."""
        if number is None or number not in self._let_in:
            self.admissions.append(at)
        if number is not None:
            self._let_in.add(number)
            self._highest.note(at, number)
        self._forget_lapsed(at)
        until = at + seconds_left - EXPIRY_MARGIN_SECONDS
        self._active[visitor] = until
        heapq.heappush(self._ends, (until, visitor))
        self.active_most = max(self.active_most, len(self._active))
        if self.active_max is not None and len(self._active) > self.active_max:
            self.breaches.note("too many inside", f"{len(self._active)} at once, {self.active_max} allowed")

    def holds(self, visitor: str, at: float, seconds_left: float) -> None:
        """A reservation keeps the visitor's slot for so long."""
        if visitor in self._active:
            self._active[visitor] = until = at + seconds_left - EXPIRY_MARGIN_SECONDS
            heapq.heappush(self._ends, (until, visitor))

    def may_have_ended(self, visitor: str) -> None:
        """From now on the visitor's slot may be somebody else's."""
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
    """What a token says of itself; empty where it does not say it in a way that anybody can read."""
    try:
        part = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError):
        return {}
    return claims if isinstance(claims, dict) else {}


def number_of(token: str) -> int | None:
    """The number in the line, where the token says it."""
    number = claims_of(token).get("num")
    return number if isinstance(number, int) and not isinstance(number, bool) else None
