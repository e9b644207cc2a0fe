"""Pauses of recipient domains for which the mail server takes long, so that they do not occupy all threads.

A mail server may look up a recipient's domain before it accepts the mail, and a domain whose name servers do not answer
then takes as long as EMAIL_TIMEOUT. Anyone can cause such mails, also to many names below one domain. So

- while a domain pauses, its mails wait in the outbox; then one of them is tried;
- a domain pauses only if the server has accepted a mail for another one at once within the last minute: otherwise the
  server itself is slow;
- mails to domains for which the server has accepted none within the last hour use few threads.

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
UNKNOWN_MAX = 2
"""Mails to domains that are not known to be accepted, at once."""
UNKNOWN_WAIT_SECONDS = 2.0
DOMAINS_MAX = 10_000


class DomainPauses:
    """The domains that pause, for threads. `clock`: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}
        """The end of a pause, of a domain or of all below a domain of two labels."""
        self._accepted: dict[str, float] = {}
        """When the server last accepted a mail for a domain."""
        self._quick: dict[str, float] = {}
        """When it last did so at once, also for domains below this one."""
        self._unknown_count = 0

    @contextmanager
    def sending(self, domains: Collection[str]) -> Iterator[None]:
        """Send a mail to these domains in the block. Raises outbox.RetryLater instead if one of them pauses, or if too
        many mails to unknown domains are under way."""
        begun = self._clock()
        names = {name for domain in domains for name in (domain, _base_of(domain))}
        with self._lock:
            wait = max((self._until[name] for name in names if name in self._until), default=begun) - begun
            if wait > 0:
                raise outbox.RetryLater(wait, "delayed: the mail server takes long for the recipient's domain")
            is_unknown = not all(_is_within(self._accepted, domain, KNOWN_SECONDS, begun) for domain in domains)
            if is_unknown and self._unknown_count >= UNKNOWN_MAX:
                raise outbox.RetryLater(UNKNOWN_WAIT_SECONDS, "delayed: other mails to new domains are being sent")
            self._unknown_count += is_unknown
            for name in names & self._until.keys():
                self._until[name] = begun + PAUSE_SECONDS  # The others wait for the result of this one.
        is_accepted = False
        try:
            yield
            is_accepted = True
        finally:
            with self._lock:
                self._unknown_count -= is_unknown
                self._note(domains, names, begun, is_accepted=is_accepted)

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


def _base_of(domain: str) -> str:
    return ".".join(domain.split(".")[-2:])


def domains_of(mail: EmailMessage) -> set[str]:
    """Return the domains of the mail's recipients."""
    return {address.rpartition("@")[2].rstrip(">").lower() for address in mail.recipients()}


pauses = DomainPauses()
