"""Waiting instead of computing, for browsers without JavaScript.

A delay is a signed token that is accepted from a moment on. Waiting costs no processor time, so it must cost something
else: delays of one address come one after another, and those of its network too. Delays of more than an hour are
refused, so that a program cannot collect thousands that end together.
"""

from datetime import timedelta
from time import monotonic
from typing import NamedTuple

from django.conf import settings

from apps.kernel import clock, random_bytes, rate_limits
from apps.kernel.http import problems
from apps.kernel.proof_of_work import challenges
from apps.kernel.proof_of_work.arrivals import wide_network_of
from apps.kernel.rate_limits.buckets import Buckets
from apps.kernel.tokens import jwt

LIFETIME = timedelta(hours=2)
ADDRESS_SECONDS = 5
NETWORK_SECONDS = 1
"""Between two delays of one address, and of one network."""
_SECONDS_MAX = 3_600
RETRY_SECONDS = 60
_of_address = rate_limits.share("delay:address", Buckets(1 / ADDRESS_SECONDS, _SECONDS_MAX // ADDRESS_SECONDS))
_of_network = rate_limits.share("delay:network", Buckets(1 / NETWORK_SECONDS, _SECONDS_MAX // NETWORK_SECONDS))
_TYPES = frozenset({"delay"})


class Delay(NamedTuple):
    """A verified token."""

    id: bytes
    """16 random bytes: the value that may be used once."""
    seconds_left: float
    """0 once the delay has passed."""


def create(binding: str, address: str) -> str:
    """Return a token that `verify` accepts, with the same binding, once its delay has passed. Raises RateLimited if the
    delays of the address or of its network have reached an hour."""
    subject, now, seconds = rate_limits.subject(address), monotonic(), float(settings.PROOF_OF_WORK_DELAY_SECONDS)
    if subject:
        network = wide_network_of(subject)
        seconds += max(_of_address.owed_seconds(subject, now), _of_network.owed_seconds(network, now))
        if not (_of_address.take(subject, now) and _of_network.take(network, now)):
            raise problems.RateLimited(RETRY_SECONDS)
    due_ms = int((clock.process_seconds() + seconds) * 1_000)
    return jwt.issue("delay", challenges.digest_of(binding), LIFETIME, due=due_ms, id=random_bytes.next_bytes().hex())


def verify(token: str, binding: str) -> Delay | None:
    """Return the delay, or None if the token is invalid, has expired or is bound to something else."""
    try:
        claims = jwt.verify(token, _TYPES)
    except problems.Problem:
        return None
    if claims.subject != challenges.digest_of(binding):
        return None
    left_ms = claims.values["due"] - clock.process_seconds() * 1_000
    return Delay(bytes.fromhex(claims.values["id"]), max(0.0, left_ms / 1_000))
