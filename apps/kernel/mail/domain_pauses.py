"""Pauses of recipient domains for which the mail server takes long, so that they do not occupy all threads.

A mail server may look up a recipient's domain before it accepts the mail, and a domain whose name servers do not answer
then takes as long as EMAIL_TIMEOUT. Anyone can cause such mails, also to many names below one domain. So

- while a domain pauses, its mails wait in the outbox; then one of them is tried;
- a domain pauses only if the server has accepted a mail for another one at once within the last minute: otherwise the
  server itself is slow;
- mails to domains for which the server has accepted none within the last hour use few threads. Those that strangers can
  cause use others than the rest, and one of each topic, so that the topic's other threads send to known domains.

Each process has its own pauses.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from django.core.mail import EmailMessage

from apps.kernel.outbox import facade as outbox

SLOW_SECONDS = 5.0
PAUSE_SECONDS = 60.0
KNOWN_SECONDS = 3_600.0
UNKNOWN_MAX, STRANGERS_UNKNOWN_MAX = 4, 3
"""Mails to domains that are not known to be accepted, at once: those of most topics, and those that strangers cause,
each of another topic."""
UNKNOWN_WAIT_SECONDS, STRANGERS_UNKNOWN_WAIT_SECONDS = 2.0, 5.0
DOMAINS_MAX = 10_000
_SECOND_LEVEL = frozenset(("ac", "co", "com", "edu", "gov", "gv", "ne", "net", "nhs", "or", "org"))
"""Below two-letter domains, these are no names of owners."""
_stranger_topics: set[str] = set()


def register_stranger_topic(topic: str) -> None:
    """Count the mails of this outbox topic among those that strangers can cause, for any address."""
    _stranger_topics.add(topic)


class DomainPauses:
    """The domains that pause, for threads. `clock`: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}
        """The end of a pause, of a domain or of all below one that has one owner."""
        self._accepted: dict[str, float] = {}
        """When the server last accepted a mail for a domain."""
        self._quick: dict[str, float] = {}
        """When it last did so at once, also for domains below this one."""
        self._unknown = 0
        """Mails to unknown domains that are being sent, except those that strangers can cause."""
        self._unknown_of_strangers: set[str] = set()
        """The topics of those that strangers can cause."""

    def require_room(self, domains: Collection[str], topic: str) -> None:
        """Raise what `sending` would raise now, for a caller that has yet to make the mail."""
        begun = self._clock()
        with self._lock:
            self._require_no_pause(_names_of(domains), begun)
            if self._is_unknown(domains, begun):
                self._require_unknown_room(topic)

    @contextmanager
    def sending(self, domains: Collection[str], topic: str = "") -> Iterator[None]:
        """Send a mail of this outbox topic to these domains in the block. Raises outbox.RetryLater instead if one of
        them pauses, or if too many mails to unknown domains are under way."""
        begun, names = self._clock(), _names_of(domains)
        with self._lock:
            self._require_no_pause(names, begun)
            is_unknown = self._is_unknown(domains, begun)
            if is_unknown:
                self._require_unknown_room(topic)
                self._count_unknown(topic, 1)
            for name in names & self._until.keys():
                self._until[name] = begun + PAUSE_SECONDS  # The others wait for the result of this one.
        is_accepted = False
        try:
            yield
            is_accepted = True
        finally:
            with self._lock:
                if is_unknown:
                    self._count_unknown(topic, -1)
                self._note(domains, names, begun, is_accepted=is_accepted)

    def _require_no_pause(self, names: set[str], now: float) -> None:
        wait = max((self._until[name] for name in names if name in self._until), default=now) - now
        if wait > 0:
            raise outbox.RetryLater(wait, "delayed: the mail server takes long for the recipient's domain")

    def _is_unknown(self, domains: Collection[str], now: float) -> bool:
        return not all(_is_within(self._accepted, domain, KNOWN_SECONDS, now) for domain in domains)

    def _require_unknown_room(self, topic: str) -> None:
        seconds = UNKNOWN_WAIT_SECONDS
        has_room = self._unknown < UNKNOWN_MAX
        if topic in _stranger_topics:
            seconds, of_strangers = STRANGERS_UNKNOWN_WAIT_SECONDS, self._unknown_of_strangers
            has_room = topic not in of_strangers and len(of_strangers) < STRANGERS_UNKNOWN_MAX
        if not has_room:
            raise outbox.RetryLater(seconds, "delayed: other mails to new domains are being sent")

    def _count_unknown(self, topic: str, by: int) -> None:
        if topic not in _stranger_topics:
            self._unknown += by
        elif by > 0:
            self._unknown_of_strangers.add(topic)
        else:
            self._unknown_of_strangers.discard(topic)

    def _note(self, domains: Collection[str], names: set[str], begun: float, *, is_accepted: bool) -> None:
        now = self._clock()
        is_quick = now - begun < SLOW_SECONDS
        if is_accepted:
            _keep_latest(self._accepted, domains, now)
        if is_quick:
            for name in names:
                self._until.pop(name, None)
            if is_accepted:
                _keep_latest(self._quick, names, now)
        elif len(domains) == 1 and self._has_quick_beside(names, now):
            # Of several domains, any could be the slow one. All below a domain pause only if none of them was quick.
            slow = {name for name in names if name in domains or not _is_within(self._quick, name, KNOWN_SECONDS, now)}
            _keep_latest(self._until, slow, now + PAUSE_SECONDS)

    def _has_quick_beside(self, names: set[str], now: float) -> bool:
        return any(_is_within(self._quick, name, PAUSE_SECONDS, now) for name in self._quick.keys() - names)


def _is_within(times: dict[str, float], name: str, seconds: float, now: float) -> bool:
    return name in times and now - times[name] < seconds


def _keep_latest(times: dict[str, float], names: Collection[str], at: float) -> None:
    for name in names:
        times.pop(name, None)
        times[name] = at
    while len(times) > DOMAINS_MAX:
        del times[next(iter(times))]


def _names_of(domains: Collection[str]) -> set[str]:
    return {name for domain in domains for name in (domain, _base_of(domain))}


def _base_of(domain: str) -> str:
    """Return the part of the domain that has one owner, as far as its labels tell."""
    labels = domain.split(".")
    is_suffix = len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _SECOND_LEVEL
    return ".".join(labels[-3 if is_suffix else -2 :])


def domains_of(mail: EmailMessage) -> set[str]:
    """Return the domains of the mail's recipients."""
    return {domain_of(address) for address in mail.recipients()}


def domain_of(address: str) -> str:
    return address.rpartition("@")[2].rstrip(">").lower()


pauses = DomainPauses()
