"""The rate limits of this process, by address and by token, as set in RATE_LIMITS."""

import ipaddress
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from time import monotonic

from django.conf import settings
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from apps.kernel.rate_limits.buckets import Buckets, SharedBuckets
from apps.kernel.rate_limits.sharing import Sharing

KINDS = (
    "join", "poll", "read", "hold", "offer", "log-in", "password", "account", "mail", "page", "document", "write",
    "code", "feed", "webhook", "view", "search", "data-file",
)  # fmt: skip
NETWORK_PARTS = {"account-network": "account"}
"""Kinds that are a part of another one's token limit. They limit a token with its network, so that one network cannot
use up the whole."""
NETWORK_PART = 1 / 5
ATTEMPT_KINDS = frozenset(("password", "account", "webhook", *NETWORK_PARTS))
"""Limits of failed attempts. They protect accounts, so they apply to exempt networks too, and every count is shared."""
SITE_KINDS = frozenset(("log-in", "password", "mail", "webhook"))
"""Limits that an IPv6 /48 has too, SITE_FACTOR times as high as an address's: one customer often has a whole /48, with
65,536 times what an address may do. Other kinds have no such limit: the phones of a carrier share a /48, too."""
SITE_FACTOR = 8
WORK_KINDS = frozenset(("hold",))
"""Kinds of which some requests take many times the work of others."""
TOKEN_LENGTH_MAX = 64
ADDRESSES_MAX = 16_384
IPV6_PREFIX_BYTES = 8
"""A client with one IPv6 address usually has its whole /64 network, so the network is one subject."""
_SUBJECT_LENGTH, _SITE_LENGTH = 16, 12
"""The hexadecimal digits of a /64 and of its /48."""
_MAPPED = bytes(10) + b"\xff\xff"

Rate = tuple[float, int]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Limits:
    """Enforces `rates`, which has for each kind the rate of an address and that of a token; None: no limit."""

    def __init__(
        self,
        rates: Mapping[str, tuple[Rate | None, Rate | None]],
        exempt: Iterable[Network] = (),
        *,
        time: Callable[[], float] = monotonic,
    ) -> None:
        self.time = time
        self._exempt = tuple(exempt)
        self._subjects: dict[str, str] = {}
        self._by_kind = {
            kind: (of_address and _buckets(kind)(*of_address), of_token and _buckets(kind)(*of_token))
            for kind, (of_address, of_token) in {**rates, **_network_parts(rates)}.items()
        }
        self._of_site = {
            kind: _buckets(kind)(of_address[0] * SITE_FACTOR, of_address[1] * SITE_FACTOR)
            for kind, (of_address, _) in rates.items()
            if kind in SITE_KINDS and of_address is not None
        }
        self._of_work = {
            kind: _buckets(kind)(*of_address)
            for kind, (of_address, _) in rates.items()
            if kind in WORK_KINDS and of_address is not None
        }
        self.refused: dict[tuple[str, str], int] = {}

    def ask(self, kind: str, address: str, token: str = "") -> float | None:
        """Count the request; return None if it is allowed, otherwise the seconds after which to retry."""
        subject = self._subjects.get(address)
        if subject is None:
            subject = self._subject_of(address)
        if subject == "":
            return None
        of_address, of_token = self._by_kind[kind]
        now = self.time()
        # The token's limit comes first: a client that exceeds it uses up nothing of its address's limit.
        if token and of_token is not None:
            if len(token) > TOKEN_LENGTH_MAX:
                token = token[-TOKEN_LENGTH_MAX:]
            if not of_token.take(token, now):
                return self._refuse(kind, "token", of_token, token, now)
        if of_address is not None and not of_address.take(subject, now):
            return self._refuse(kind, "address", of_address, subject, now)
        if kind in self._of_site and (site := site_of(subject)) and not self._of_site[kind].take(site, now):
            return self._refuse(kind, "site", self._of_site[kind], site, now)
        return None

    def ask_work(self, kind: str, address: str, units: int) -> float | None:
        """Count a request that takes so many times the work of another one, or half a burst at most; return None if
        there is room for all of it, otherwise the seconds after which to retry. An address has as many units as it has
        requests of this kind, counted apart, so that its other requests do not suffer."""
        subject = self.subject(address)
        if units == 0 or subject == "" or kind not in self._of_work:
            return None
        wait = self._of_work[kind].take_many(subject, self.time(), units)
        if wait is None:
            return None
        self.refused[kind, "address"] = self.refused.get((kind, "address"), 0) + 1
        return 1 + wait

    def attempt_wait(self, kind: str, address: str, token: str) -> float | None:
        """Return the seconds after which to try again if no attempt is left, else None. Counts nothing."""
        now = self.time()
        for by, buckets, subject in self._attempt_buckets(kind, address, token):
            if not buckets.has_room(subject, now):
                return self._refuse(kind, by, buckets, subject, now)
        return None

    def record_attempt(self, kind: str, address: str, token: str) -> bool:
        """Count a failed attempt of this address and this token; return whether there was room for it."""
        now = self.time()
        counted = [one.take(subject, now) for _, one, subject in self._attempt_buckets(kind, address, token)]
        return all(counted)

    def _attempt_buckets(self, kind: str, address: str, token: str) -> Iterator[tuple[str, Buckets, str]]:
        of_address, of_token = self._by_kind[kind]
        if token and of_token is not None:
            yield "token", of_token, token[-TOKEN_LENGTH_MAX:]
        if address and of_address is not None:
            subject = network_of(address)
            yield "address", of_address, subject
            if kind in self._of_site and (site := site_of(subject)):
                yield "site", self._of_site[kind], site

    def subject(self, address: str) -> str:
        """Return the subject under which the address is counted; empty if it is exempt."""
        subject = self._subjects.get(address)
        return self._subject_of(address) if subject is None else subject

    def buckets(self) -> Iterator[tuple[str, Buckets]]:
        """Yield all buckets with their names."""
        for kind, (of_address, of_token) in self._by_kind.items():
            if of_address is not None:
                yield f"{kind}:address", of_address
            if of_token is not None:
                yield f"{kind}:token", of_token
        for kind, of_site in self._of_site.items():
            yield f"{kind}:site", of_site
        for kind, of_work in self._of_work.items():
            yield f"{kind}:work", of_work

    def forget(self) -> None:
        """Reset all counts."""
        self._subjects.clear()
        self.refused.clear()
        for _, buckets in self.buckets():
            buckets.forget()

    def _refuse(self, kind: str, by: str, buckets: Buckets, subject: str, now: float) -> float:
        self.refused[kind, by] = self.refused.get((kind, by), 0) + 1
        return buckets.wait_seconds(subject, now)

    def _subject_of(self, address: str) -> str:
        """Return the address, or for IPv6 its /64 network; empty if it is exempt or unknown."""
        subject, packed = network_of(address), _packed(address)
        if packed and self._exempt and any(ipaddress.ip_address(packed) in network for network in self._exempt):
            subject = ""
        if len(self._subjects) >= ADDRESSES_MAX:
            self._subjects = {}
        self._subjects[address[:TOKEN_LENGTH_MAX]] = subject
        return subject


def _network_parts(rates: Mapping[str, tuple[Rate | None, Rate | None]]) -> dict[str, tuple[None, Rate | None]]:
    parts: dict[str, tuple[None, Rate | None]] = {}
    for kind, whole in NETWORK_PARTS.items():
        _, of_token = rates.get(whole, (None, None))
        parts[kind] = None, of_token and (of_token[0] * NETWORK_PART, max(1, int(of_token[1] * NETWORK_PART)))
    return parts


def _buckets(kind: str) -> type[Buckets]:
    return SharedBuckets if kind in ATTEMPT_KINDS else Buckets


def network_of(address: str) -> str:
    """Return the address, or for IPv6 its /64 network."""
    packed = _packed(address)
    return address[:TOKEN_LENGTH_MAX] if packed is None else packed[:IPV6_PREFIX_BYTES].hex()


def site_of(subject: str) -> str:
    """Return the /48 of a subject that is an IPv6 /64, else an empty string."""
    return subject[:_SITE_LENGTH] if len(subject) == _SUBJECT_LENGTH else ""


def _packed(address: str) -> bytes | None:
    """Return the address as 4 or 16 bytes, an IPv4-mapped IPv6 address as 4; None if it is invalid."""
    try:
        if ":" not in address:
            return socket.inet_pton(socket.AF_INET, address)
        packed = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    except (OSError, ValueError):
        return None
    return packed[12:] if packed.startswith(_MAPPED) else packed


class Refusals(Collector):
    """Exports this process's refusals by limit, and the number of remembered subjects."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def collect(self) -> Iterable[Metric]:
        refused = CounterMetricFamily(
            "fairgate_limits_refused", "Requests refused with 429, by kind and limit.", labels=["kind", "by"]
        )
        for (kind, by), count in list(self._limits.refused.items()):
            refused.add_metric([kind, by], count)
        known = GaugeMetricFamily("fairgate_limits_subjects_count", "Addresses and tokens with a remembered count.")
        known.add_metric([], sum(len(buckets) for _, buckets in self._limits.buckets()))
        return [refused, known]


_of_this_process = Limits(settings.RATE_LIMITS, settings.RATE_LIMITS_EXEMPT)
_other_buckets: dict[str, Buckets] = {}


def share(name: str, buckets: Buckets) -> Buckets:
    """Share these buckets with the other processes too, and return them. They refuse no request by themselves."""
    _other_buckets[name] = buckets
    return buckets


def forget_everything() -> None:
    """Reset all counts (tests)."""
    _of_this_process.forget()
    for buckets in _other_buckets.values():
        buckets.forget()


_sharing = Sharing(lambda: [*_of_this_process.buckets(), *_other_buckets.items()], _of_this_process.time)
METRICS = (Refusals(_of_this_process),)
"""The collectors of this process; the composition root registers them with the metrics."""

check_request = _of_this_process.ask
check_work = _of_this_process.ask_work
attempt_wait = _of_this_process.attempt_wait
record_attempt = _of_this_process.record_attempt
subject = _of_this_process.subject
begin = _sharing.begin
end = _sharing.end
