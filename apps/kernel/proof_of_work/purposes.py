"""Work that a call requires without being part of a transaction, such as a log-in.

A solution is bound to the purpose and to the client's address. That it is used once is noted in Redis: while Redis is
away, a solution can be used again until it expires, within the call's rate limits.
"""

from typing import Any

from django.conf import settings
from redis import Redis

from apps.kernel import rate_limits, redis
from apps.kernel.proof_of_work import challenges, delays
from apps.kernel.proof_of_work.arrivals import Arrivals
from apps.kernel.proof_of_work.challenges import WorkRequired

ADDRESS_POINTS_MAX = 4
NETWORK_POINTS_MAX = 3
PRESSING_USAGE = 0.5


class Purpose:
    def __init__(self, name: str, setting: str) -> None:
        """`setting` names the setting that is off, pressure or on."""
        self._name, self._setting = name, setting
        self._arrivals = Arrivals(name)

    def is_required(self, address: str) -> bool:
        """Return whether a request from this address needs work now."""
        when = getattr(settings, self._setting)
        if when != "pressure":
            return bool(when == "on")
        return self._arrivals.is_under_pressure(self._name) or max(self._arrivals.usage(address)) >= PRESSING_USAGE

    def create_challenge(self, address: str) -> dict[str, Any]:
        usage = self._arrivals.usage(address)
        points = int(usage.address * ADDRESS_POINTS_MAX) + int(usage.network * NETWORK_POINTS_MAX)
        return challenges.create(self._binding(address), challenges.steps_for(points))

    def create_delay(self, address: str) -> str:
        return delays.create(self._binding(address), address)

    def seconds_left(self, address: str, delay: str) -> float | None:
        """Return the seconds until the delay has passed; None if it is not valid here."""
        waited = delays.verify(delay, self._binding(address))
        return None if waited is None else waited.seconds_left

    def check(self, address: str, *, proof: str = "", delay: str = "") -> None:
        """Use up the proof or the delay. Raises WorkRequired, with a challenge, if work is required and neither of them
        is valid."""
        if getattr(settings, self._setting) == "off":
            return
        work = self._find_work(address, proof, delay)
        if work is not None and self._use_once(work):
            return
        self._arrivals.count(address, self._name)
        if self.is_required(address):
            raise WorkRequired(challenge=self.create_challenge(address))

    def _find_work(self, address: str, proof: str, delay: str) -> bytes | None:
        if proof:
            solution = challenges.verify(proof, self._binding(address))
            if solution is not None:
                return solution.id
        waited = delays.verify(delay, self._binding(address)) if delay else None
        return waited.id if waited is not None and not waited.seconds_left else None

    def _use_once(self, work: bytes) -> bool:
        key, seconds = f"work:{work.hex()}", int(delays.LIFETIME.total_seconds())

        def note(client: Redis) -> bool:
            return bool(client.set(key, b"1", nx=True, ex=seconds))

        return redis.attempt(note) is not False

    def _binding(self, address: str) -> str:
        return f"{self._name} {rate_limits.subject(address)}"


LOG_IN = Purpose("log-in", "PROOF_OF_WORK_LOG_IN")
