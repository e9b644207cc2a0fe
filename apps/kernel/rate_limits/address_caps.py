"""Caps on what one client address may have at once: connections, event streams, unfinished request bodies.

An address is an IPv4 address or an IPv6 /64, as for the rate limits. One customer often has a whole IPv6 /48, so the
addresses of a /48 together have a second cap, `limits.SITE_FACTOR` times as high. Networks in RATE_LIMITS_EXEMPT have
no caps. Networks in ADDRESS_CAPS_RAISED, such as an office whose visitors share one address, have caps that are higher
by a factor.

Each process counts by itself, so a decision costs two dictionary operations. The kernel distributes connections
unevenly over the processes. So a process allows an address twice its even share, but never more than the whole cap.
"""

import ipaddress
import math
from functools import lru_cache

from django.conf import settings
from prometheus_client import Counter

from apps.kernel.rate_limits import limits

RETRY_SECONDS = 5
"""Retry-After of a refusal."""

_refused = Counter(
    "fairgate_address_caps_refused", "Refusals because an address had too much open.", ["what"], registry=None
)
METRICS = (_refused,)


class AddressCap:
    """Counts what each address has at once in this process, on the thread of the event loop. Each `enter` that returns
    True is followed by one `leave` with the same address."""

    def __init__(self, what: str, cap: int) -> None:
        """`cap`: the most of all processes of `web` together, before the factor of the address's network."""
        self.cap = share_of_process(cap, settings.WEB_WORKERS)
        self.site_cap = share_of_process(cap * limits.SITE_FACTOR, settings.WEB_WORKERS)
        self.total = 0
        """The count of all addresses, exempt ones included."""
        self._counts: dict[str, int] = {}
        self._refused = _refused.labels(what)

    def enter(self, address: str) -> bool:
        """Count one more for the address; return False, without counting it, if the address or its /48 is at its
        cap."""
        subject = limits.subject(address)
        if subject:
            site = limits.site_of(subject)
            if self._is_full(subject, self.cap, address) or (site and self._is_full(site, self.site_cap, address)):
                self._refused.inc()
                return False
            self._counts[subject] = self._counts.get(subject, 0) + 1
            if site:
                self._counts[site] = self._counts.get(site, 0) + 1
        self.total += 1
        return True

    def _is_full(self, subject: str, cap: int, address: str) -> bool:
        count = self._counts.get(subject, 0)
        return count >= cap and count >= cap * factor_of(address)

    def leave(self, address: str) -> None:
        """Count one less for the address."""
        self.total -= 1
        subject = limits.subject(address)
        for counted in (subject, limits.site_of(subject)):
            if not counted:
                continue
            count = self._counts[counted]
            if count > 1:
                self._counts[counted] = count - 1
            else:
                del self._counts[counted]


def share_of_process(cap: int, processes: int) -> int:
    """Return how many of `cap` one of these processes allows an address."""
    return min(cap, 2 * math.ceil(cap / max(processes, 1)))


def forget_settings() -> None:
    """Clear the cache that depends on settings (tests)."""
    factor_of.cache_clear()


@lru_cache(maxsize=4_096)
def factor_of(address: str) -> int:
    """Return the factor by which the caps of this address are higher."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return 1
    found = getattr(found, "ipv4_mapped", None) or found
    return max((factor for network, factor in settings.ADDRESS_CAPS_RAISED if found in network), default=1)
