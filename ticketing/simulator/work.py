"""Proof of work by simulated visitors and bots.

Solutions are real. The time that they take is simulated: each derivation counts as `step_seconds` of one core, so that
the client's computing does not slow down a site on the same machine.
"""

import asyncio
import heapq
from dataclasses import dataclass, field
from typing import Any

import altcha

SOLVE_SECONDS_MAX = 20.0
"""A challenge that takes longer is not solved: the site's PROOF_OF_WORK_STEPS are too many for a simulation."""


class WorkTooLong(Exception):
    """The challenge takes longer than SOLVE_SECONDS_MAX."""


@dataclass(slots=True)
class Workers:
    """The cores that solve challenges: one for each visitor, or a fixed number that all bots share."""

    step_seconds: float = 0.0003
    cores: int = 0
    """0: every challenge has a core of its own."""
    solved: int = 0
    core_seconds: float = 0.0
    _free_at: list[float] = field(default_factory=list)

    async def solve(self, challenge: dict[str, Any]) -> tuple[str, float]:
        """Return the proof, and the seconds until a core has computed it. Raises WorkTooLong."""
        given = altcha.Challenge.from_dict(challenge)
        solution = await asyncio.to_thread(altcha.solve_challenge, given, timeout=SOLVE_SECONDS_MAX)
        if solution is None:
            raise WorkTooLong
        seconds = solution.counter * self.step_seconds
        self.solved += 1
        self.core_seconds += seconds
        return altcha.Payload(given, solution).to_base64(), self._reserve(seconds)

    def _reserve(self, seconds: float) -> float:
        if not self.cores:
            return seconds
        now = asyncio.get_running_loop().time()
        began = now if len(self._free_at) < self.cores else max(now, heapq.heappop(self._free_at))
        heapq.heappush(self._free_at, began + seconds)
        return began + seconds - now
