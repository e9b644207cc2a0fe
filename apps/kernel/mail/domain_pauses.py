"""Pauses of recipient domains for which the mail server takes long, so that they do not occupy all threads.

A mail server may look up a recipient's domain before it accepts the mail, and a domain whose name servers do not answer
then takes as long as EMAIL_TIMEOUT. Anyone can cause such mails, also to many names below one domain. So

- while a domain pauses, its mails wait in the outbox; then one of them is tried;
- a domain pauses only if the server has accepted a mail for another one at once within the last minute: otherwise the
  server itself is slow;
- mails to new domains, for which the server has accepted none within the last month, use few threads, in turns
  (`new_domains`). Those that strangers can cause use others than the rest, and one of each topic, so that the topic's
  other threads send to known domains. A domain that takes long is new again, and for an hour so are all names below the
  part of it that has one owner: the owner can have any number of them, each quick at first.

A domain that was quick can take long at any time, and the mails to it that are under way then occupy their threads
until they end. So all mails except those of preferred topics together use half of the threads (`outbox/claim_limits`).

Each process has its own pauses; accepted domains are stored for all (`accepted_domains`).
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Protocol

from django.core.mail import EmailMessage

from apps.kernel.mail import accepted_domains
from apps.kernel.mail.new_domains import Sender, Turns
from apps.kernel.outbox import facade as outbox

SLOW_SECONDS = 5.0
PAUSE_SECONDS = 60.0
QUICK_SECONDS = 3_600.0
"""How long a domain counts as quick after a mail that was accepted at once, and as new after one below it took long."""
DAY_SECONDS = 86_400.0
"""Accepted domains are stored again and read again after a day."""
DOMAINS_MAX = 10_000
_SECOND_LEVEL = frozenset(("ac", "co", "com", "edu", "gov", "gv", "ne", "net", "nhs", "or", "org"))
"""Below two-letter domains, these are no names of owners."""


class StoredDomains(Protocol):
    """Keeps accepted domains; see `accepted_domains`."""

    def load(self, domains: Collection[str]) -> Collection[str]: ...
    def store(self, domains: Collection[str]) -> None: ...
    def forget(self, domains: Collection[str]) -> None: ...


class DomainPauses:
    """The domains that pause, for threads. `clock`: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, stored: StoredDomains = accepted_domains) -> None:
        self._clock = clock
        self._stored = stored
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}
        """The end of a pause, of a domain or of all below one that has one owner."""
        self._accepted: dict[str, float] = {}
        """When this process stored that the server accepts mails for a domain, or read that."""
        self._quick: dict[str, float] = {}
        """When the server last accepted a mail at once, also for domains below this one."""
        self._slow_bases: dict[str, float] = {}
        """When a mail last took long for the domain of one owner, or for a name below it."""
        self._turns = Turns()

    def require_room(self, domains: Collection[str], sender: Sender) -> None:
        """Raise what `sending` would raise now, for a caller that has yet to make the mail."""
        are_known = self._load(domains)
        begun = self._clock()
        with self._lock:
            self._require_no_pause(_names_of(domains), begun)
            if not are_known or self._has_slow_beside(domains, begun):
                self._turns.require(sender, begun)

    @contextmanager
    def sending(self, domains: Collection[str], sender: Sender) -> Iterator[bool]:
        """Send a mail to these domains in the block, which gets whether one of them is new. Raises outbox.RetryLater
        instead if one of them pauses, or if other mails to new domains have their turn. Not in a transaction."""
        are_known = self._load(domains)
        begun, names = self._clock(), _names_of(domains)
        with self._lock:
            self._require_no_pause(names, begun)
            are_new = not are_known or self._has_slow_beside(domains, begun)
            if are_new:
                self._turns.require(sender, begun)
                self._turns.begin(sender, begun)
            for name in names & self._until.keys():
                self._until[name] = begun + PAUSE_SECONDS  # The others wait for the result of this one.
        is_accepted = False
        try:
            yield are_new
            is_accepted = True
        finally:
            with self._lock:
                if are_new:
                    self._turns.end(sender)
                is_slow = self._note(domains, names, begun, is_accepted=is_accepted)
            if is_slow:
                self._forget(domains)
            elif is_accepted:
                self._store(domains)

    def _require_no_pause(self, names: set[str], now: float) -> None:
        wait = max((self._until[name] for name in names if name in self._until), default=now) - now
        if wait > 0:
            raise outbox.RetryLater(wait, "delayed: the mail server takes long for the recipient's domain")

    def _load(self, domains: Collection[str]) -> bool:
        """Return whether the server is known to accept mails for all of these domains."""
        now = self._clock()
        with self._lock:
            unknown = [domain for domain in domains if not _is_within(self._accepted, domain, DAY_SECONDS, now)]
        if not unknown:
            return True
        found = self._stored.load(unknown)
        with self._lock:
            _keep_latest(self._accepted, found, now)
        return len(found) == len(unknown)

    def _store(self, domains: Collection[str]) -> None:
        now = self._clock()
        with self._lock:
            due = [domain for domain in domains if not _is_within(self._accepted, domain, DAY_SECONDS, now)]
            _keep_latest(self._accepted, due, now)
        if due:
            self._stored.store(due)

    def _forget(self, domains: Collection[str]) -> None:
        with self._lock:
            known = [domain for domain in domains if self._accepted.pop(domain, None) is not None]
        if known:
            self._stored.forget(known)

    def _note(self, domains: Collection[str], names: set[str], begun: float, *, is_accepted: bool) -> bool:
        """Note how long the mail took. Return whether its domain is slow."""
        now = self._clock()
        is_quick = now - begun < SLOW_SECONDS
        if is_quick:
            for name in names:
                self._until.pop(name, None)
            if is_accepted:
                _keep_latest(self._quick, names, now)
        if is_quick or len(domains) > 1 or not self._has_quick_beside(names, now):
            return False  # Of several domains, any could be the slow one.
        # All below a domain pause only if none of them was quick.
        slow = {name for name in names if name in domains or not _is_within(self._quick, name, QUICK_SECONDS, now)}
        _keep_latest(self._until, slow, now + PAUSE_SECONDS)
        _keep_latest(self._slow_bases, {_base_of(domain) for domain in domains}, now)
        return True

    def _has_slow_beside(self, domains: Collection[str], now: float) -> bool:
        """Return whether one of the domains is below one that has had a slow name lately. A domain of one owner itself
        is judged by its own mails: it may have thousands of mailboxes."""
        return any(
            domain != base and _is_within(self._slow_bases, base, QUICK_SECONDS, now)
            for domain, base in ((domain, _base_of(domain)) for domain in domains)
        )

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
