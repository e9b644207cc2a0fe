"""Turns of accounts for heavy work of the site: few at once in a process, and one of an account at a time in all.

Work that finds no free slot is refused, since a request that waits occupies a thread. A slot that becomes free is kept
for some seconds for an account that was refused. An account that lets its turn pass gets none for a minute, so that one
that only asks keeps no other from working.
"""

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from redis import Redis
from redis.exceptions import LockNotOwnedError
from redis.lock import Lock

from apps.kernel import redis

TURN_SECONDS = 5.0
"""How long a free slot is kept for an account that was refused before."""
PASSED_SECONDS = 60.0
"""How long an account that has let its turn pass gets no other one."""
_KEY_SECONDS = 60
"""How long the mark of an account is kept in Redis after its process has ended."""


class AccountTurns:
    """The turns of one kind of work, of accounts or of organizers. `name` begins its keys in Redis. `busy` makes the
    error from a sentence: `if_own` because of the account's own work, `if_others` because of that of others."""

    def __init__(
        self, name: str, at_once_max: int, busy: Callable[[str], Exception], *, if_own: str, if_others: str
    ) -> None:
        self.at_once_max = at_once_max
        self._name, self._busy = name, busy
        self._if_own, self._if_others = if_own, if_others
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Forget all work and turns, as in a new process."""
        self._accounts: set[Hashable] = set()
        """The accounts for which this process works."""
        self._refused: dict[Hashable, float] = {}
        """The accounts that were refused for lack of a slot, in order, and when they last asked."""
        self._passed: dict[Hashable, float] = {}
        """The accounts that have let a turn pass, and when that was seen."""
        self._freed_at = 0.0

    @contextmanager
    def take(self, account: Hashable) -> Iterator[None]:
        """Work for this account in the block. Raises `busy` if all slots of this process are taken, or another one
        of the account is (in this process, if Redis is away)."""
        with self._lock:
            if account in self._accounts:
                raise self._busy(self._if_own)
            self._take_slot(account, time.monotonic())
        mark: Lock | None = None
        try:
            taken = redis.attempt(lambda client: self._take_mark(client, account))
            if taken is False:
                raise self._busy(self._if_own)
            mark = taken or None
            yield
        finally:
            with self._lock:
                self._accounts.discard(account)
                self._freed_at = time.monotonic()
            if mark is not None:
                redis.attempt(lambda _: _leave_mark(mark))

    def _take_mark(self, client: Redis, account: Hashable) -> Lock | Literal[False]:
        """Return the account's mark in Redis, or False while another process has it."""
        mark = client.lock(f"{self._name}:{account}", timeout=_KEY_SECONDS, thread_local=False)
        return mark if mark.acquire(blocking=False) else False

    def _take_slot(self, account: Hashable, now: float) -> None:
        """Take a slot for the account, under the lock; those that are ahead of it keep theirs. Raises `busy`."""
        if len(self._accounts) < self.at_once_max:
            for other, asked_at in list(self._refused.items()):
                if now > max(asked_at, self._freed_at) + TURN_SECONDS:
                    del self._refused[other]
                    self._passed[other] = now
        self._passed = {other: at for other, at in self._passed.items() if now - at <= PASSED_SECONDS}
        ahead = list(self._refused).index(account) if account in self._refused else len(self._refused)
        if len(self._accounts) + ahead >= self.at_once_max:
            if account not in self._passed:
                self._refused[account] = now
            raise self._busy(self._if_others)
        self._refused.pop(account, None)
        self._accounts.add(account)


def _leave_mark(mark: Lock) -> None:
    """Delete the mark, unless it has expired: another process may have taken it since."""
    with suppress(LockNotOwnedError):
        mark.release()
