"""Requests that check or set a password wait here, in `web`, for their turn: a waiting request takes no thread.

The site hashes few passwords at a time, and refuses further ones at once, so that log-ins never occupy all of its
threads (`apps/accounts/passwords/hasher.py`). Each process of `web` forwards `slots` such requests at a time, in order
of arrival. Of one client address at most `slots + 1` are in line, and of an IPv6 /48 twice as many; further requests
wait behind them, so that one client cannot fill the line, also not from the many addresses that it has. Several
processes of `web` may meet at one process of the site: a request that it refuses is repeated.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from weakref import WeakValueDictionary

from apps.accounts.passwords.hasher import RETRY_HEADER
from apps.kernel.http.problems import Busy
from apps.kernel.rate_limits import kinds, limits

WAITING_MAX = 100
WAIT_SECONDS_MAX = 8.0
REPEAT_SECONDS = 0.1
SITE_FACTOR = 2
BUSY_HEADER = RETRY_HEADER.lower().encode()


def is_password_check(method: str, path: str) -> bool:
    return kinds.kind_of(method, path) == "log-in"


class PasswordQueue:
    """The queue of one process."""

    def __init__(self, slots: int) -> None:
        self._slots = asyncio.Semaphore(slots)
        self._per_client = slots + 1
        self._waiting = 0
        # Of each client and each /48 with requests in line. The requests hold the only references.
        self._clients: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[Callable[[], None]]:
        """Run the block once a slot is free, with a function that ends the turn before the block ends: a client that
        does not read the answer must not keep it. `client` is the subject of the client's address; without it, the
        client is exempt from limits. Raises Busy if too many requests wait, or after WAIT_SECONDS_MAX."""
        if self._slots.locked() and self._waiting >= WAITING_MAX:
            raise Busy("Many people are logging in right now. Try again in a moment.")
        with ExitStack() as held:
            try:
                async with asyncio.timeout(WAIT_SECONDS_MAX):
                    if client:
                        await _acquire(held, self._line_of(client, self._per_client))
                        if site := limits.site_of(client):
                            await _acquire(held, self._line_of(site, SITE_FACTOR * self._per_client))
                    self._waiting += 1
                    try:
                        await _acquire(held, self._slots)
                    finally:
                        self._waiting -= 1
            except TimeoutError as error:
                raise Busy("Many people are logging in right now. Try again in a moment.") from error
            yield held.close

    def _line_of(self, client: str, size: int) -> asyncio.Semaphore:
        found = self._clients.get(client)
        if found is None:
            found = self._clients[client] = asyncio.Semaphore(size)
        return found


async def _acquire(held: ExitStack, semaphore: asyncio.Semaphore) -> None:
    await semaphore.acquire()
    held.callback(semaphore.release)
