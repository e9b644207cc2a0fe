"""The threads of the site that one client may occupy at once.

A process of the site answers its requests in order of arrival. So one client's slow requests must not reach all of its
threads: those of other clients would stand behind them. Further requests of the client wait here, in `web`, without a
thread. A turn ends when the site begins its answer. That of an export also ends after EXPORT_SECONDS_MAX, so that it
does not keep colleagues at the same address from their pages; an account gets one export at a time. Log-ins
(`password_queue`) take no turns. A page that is rendered once for all visitors takes one of a client that asked for it.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from weakref import WeakValueDictionary

from apps.kernel.http.problems import Busy
from apps.kernel.rate_limits import limits
from apps.kernel.rate_limits.address_caps import factor_of

WAIT_SECONDS_MAX = 5
EXPORT_SECONDS_MAX = 5
SITE_FACTOR = 2
"""The turns of an IPv6 /48, in those of one of its addresses."""
_EXPORT = re.compile(r"/admin/events/event/[0-9]+/[a-z-]+\.csv")


def share_of_threads(threads: int, processes: int) -> int:
    """Return how many of the site's threads one of the processes of `web` lets an address occupy, so that all of them
    together leave one to others. At least one; with fewer threads than processes an address can occupy all of them."""
    return max(1, (threads - 1) // processes)


class Turn:
    """A turn that has begun."""

    def __init__(self, held: ExitStack, seconds_max: float | None) -> None:
        self._held = held
        self._timer: asyncio.TimerHandle | None = None
        if seconds_max is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds_max, held.close)

    def end(self) -> None:
        """Let the client's next request begin, unless the turn has ended before."""
        if self._timer is not None:
            self._timer.cancel()
        self._held.close()


class SiteTurns:
    """The turns that one process of `web` gives."""

    def __init__(self, per_address: int) -> None:
        self._per_address = per_address
        # Of each address and each /48 with requests. The requests hold the only references.
        self._semaphores: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, address: str, path: str) -> AsyncIterator[Turn | None]:
        """Run the block, a request for this path, in a turn of the address, which may end before the block does. An
        address that is exempt from limits needs none. Raises Busy after WAIT_SECONDS_MAX."""
        subject = limits.subject(address)
        if not subject:
            yield None
            return
        most = self._per_address * factor_of(address)
        semaphores = [self._semaphore_of(subject, most)]
        if site := limits.site_of(subject):
            semaphores.append(self._semaphore_of(site, SITE_FACTOR * most))
        with ExitStack() as held:
            try:
                async with asyncio.timeout(WAIT_SECONDS_MAX):
                    for semaphore in semaphores:
                        await semaphore.acquire()
                        held.callback(semaphore.release)
            except TimeoutError:
                raise Busy("Too many requests of your address are waiting.") from None
            turn = Turn(held, EXPORT_SECONDS_MAX if _EXPORT.fullmatch(path) else None)
            try:
                yield turn
            finally:
                turn.end()

    def _semaphore_of(self, client: str, size: int) -> asyncio.Semaphore:
        found = self._semaphores.get(client)
        if found is None:
            found = self._semaphores[client] = asyncio.Semaphore(size)
        return found
