"""Pauses of recipient domains for which the mail server takes long, so that they do not occupy all threads.

A mail server may look up a recipient's domain before it accepts the mail, and a domain whose name servers do not answer
then takes as long as EMAIL_TIMEOUT. Anyone can cause such mails. While a domain pauses, its mails wait in the outbox;
then one of them is tried. A domain pauses only if the server has accepted a mail for another one at once within the
last minute: otherwise the server itself is slow. Each process has its own pauses.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from django.core.mail import EmailMessage

from apps.kernel.outbox import facade as outbox

SLOW_SECONDS = 5.0
PAUSE_SECONDS = 60.0
DOMAINS_MAX = 1_000


class DomainPauses:
    """The domains that pause, for threads. `clock`: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}
        self._quick: dict[str, float] = {}
        """When the server last accepted a mail for a domain at once; the latest domains, in order."""

    @contextmanager
    def sending(self, domains: Collection[str]) -> Iterator[None]:
        """Send a mail to these domains in the block. Raises outbox.RetryLater instead if one of them pauses."""
        begun = self._clock()
        with self._lock:
            wait = max((self._until[domain] for domain in domains if domain in self._until), default=begun) - begun
            if wait > 0:
                raise outbox.RetryLater(wait, "delayed: the mail server takes long for the recipient's domain")
            for domain in domains:
                if domain in self._until:
                    self._until[domain] = begun + PAUSE_SECONDS  # The others wait for the result of this one.
        is_accepted = False
        try:
            yield
            is_accepted = True
        finally:
            self._end(domains, begun, is_accepted=is_accepted)

    def _end(self, domains: Collection[str], begun: float, *, is_accepted: bool) -> None:
        now = self._clock()
        with self._lock:
            for domain in domains:
                if now - begun < SLOW_SECONDS:
                    self._until.pop(domain, None)
                    if is_accepted:
                        self._quick.pop(domain, None)
                        self._quick[domain] = now
                elif any(at > now - PAUSE_SECONDS for other, at in self._quick.items() if other not in domains):
                    self._until[domain] = now + PAUSE_SECONDS
            for kept in (self._quick, self._until):
                while len(kept) > DOMAINS_MAX:
                    del kept[next(iter(kept))]


def domains_of(mail: EmailMessage) -> set[str]:
    """Return the domains of the mail's recipients."""
    return {address.rpartition("@")[2].rstrip(">").lower() for address in mail.recipients()}


pauses = DomainPauses()
