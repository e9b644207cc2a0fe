"""Recent requests by address and by network, which set how much work the next one takes.

Like rate limits, the counts are in bounded memory in the process, and heavy use is shared through Redis. They may be
lost at any time; then the base difficulty applies. Exempt and unknown addresses are not counted.
"""

from time import monotonic
from typing import NamedTuple

from django.conf import settings

from apps.kernel import rate_limits
from apps.kernel.rate_limits.buckets import Buckets

_NETWORK_DIGITS = {8: 6, 16: 12}
"""An IPv4 address as hexadecimal digits has a /24 network, an IPv6 /64 a /48."""


class Usage(NamedTuple):
    """The used share of each bucket, 0 to 1."""

    address: float
    network: float


class Arrivals:
    """The recent requests of one purpose."""

    def __init__(self, purpose: str) -> None:
        self._by_address = rate_limits.share(f"work:{purpose}:address", Buckets(*settings.PROOF_OF_WORK_ADDRESS))
        self._by_network = rate_limits.share(f"work:{purpose}:network", Buckets(*settings.PROOF_OF_WORK_NETWORK))
        self._in_all = rate_limits.share(f"work:{purpose}:pressure", Buckets(*settings.PROOF_OF_WORK_PRESSURE))

    def count(self, address: str, target: str) -> None:
        """Count a request from this address to this target, for example an event."""
        now = monotonic()
        self._in_all.take(target, now)
        subject = rate_limits.subject(address)
        if subject:
            self._by_address.take(subject, now)
            self._by_network.take(wide_network_of(subject), now)

    def usage(self, address: str) -> Usage:
        """Return how much of their buckets the address and its network have used."""
        subject = rate_limits.subject(address)
        if not subject:
            return Usage(0.0, 0.0)
        now = monotonic()
        return Usage(
            self._by_address.owed_seconds(subject, now) / self._by_address.window,
            self._by_network.owed_seconds(wide_network_of(subject), now) / self._by_network.window,
        )

    def is_under_pressure(self, target: str) -> bool:
        """Return whether the target has used half of its bucket: requests came faster than it refills."""
        return self._in_all.owed_seconds(target, monotonic()) > self._in_all.window / 2


def wide_network_of(subject: str) -> str:
    """Return the network of an address's subject (`rate_limits.subject`)."""
    return subject[: _NETWORK_DIGITS.get(len(subject), len(subject))]
