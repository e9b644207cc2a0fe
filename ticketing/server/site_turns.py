"""The threads of the site that one client may occupy at once.

A process of the site answers its requests in order of arrival. So one client's slow requests must not reach all of its
threads: those of other clients would stand behind them. Further requests of the client wait here, in `web`, without a
thread. A turn ends when the site begins its answer. That of an export also ends after EXPORT_SECONDS_MAX, so that it
does not keep colleagues at the same address from their pages; an account gets one export at a time. Log-ins
(`password_queue`) take no turns. A page that is rendered once for all visitors takes one of a client that asked for it.

Turns of different processes of `web` may meet in one process of the site, and the requests of others that arrive there
would wait behind them, even while another process is idle. So `leave_a_thread`, in the site, refuses a request that
would take the last thread from others, before anything of it is read, and `web` repeats it over another connection,
which another process may accept. A page for all visitors is meanwhile rendered for another client that asks for it
(`apps.kernel.page_cache.cache`). Requests without REPEATS_HEADER are never refused.
"""

import asyncio
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager
from typing import Any
from weakref import WeakValueDictionary

from apps.kernel.http import client_address
from apps.kernel.http.problems import Busy
from apps.kernel.rate_limits import limits
from apps.kernel.rate_limits.address_caps import factor_of
from ticketing.startup import Application

WAIT_SECONDS_MAX = 5
EXPORT_SECONDS_MAX = 5
SITE_FACTOR = 2
"""The turns of an IPv6 /48, in those of one of its addresses."""
REPEATS_HEADER = "X-Fairgate-Repeats"
"""Set by `web` on a request that it repeats if it is refused. Its value is the address of the client that asked for a
page that is rendered for all visitors, whose request has nothing else of this client; otherwise it is empty."""
SATURATED_HEADER = "X-Fairgate-Saturated"
"""Set on the refusal."""
_REPEATS = "HTTP_" + REPEATS_HEADER.upper().replace("-", "_")
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


def leave_a_thread(application: Application, threads: int) -> Application:
    """Wrap the WSGI application of a process with so many threads so that one client, with all others of its IPv6 /48,
    leaves one of them to others. With one thread nothing is refused. Clients that are exempt from limits are not
    counted; nor are exports, of which a process writes few at once."""
    running: Counter[str] = Counter()
    counting = threading.Lock()

    def respond(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        address = client_address.address_from_environ(environ)
        if not address and client_address.is_forwarded_by_fastpath(environ):
            address = environ.get(_REPEATS, "")
        subject = limits.subject(address)
        client = limits.site_of(subject) or subject
        if not client or threads == 1:
            return application(environ, start_response)
        is_counted = _EXPORT.fullmatch(environ["PATH_INFO"]) is None
        with counting:
            if _REPEATS in environ and running[client] >= (threads - 1) * factor_of(address):
                start_response("503 Service Unavailable", [(SATURATED_HEADER, "yes"), ("Content-Length", "0")])
                return []
            running[client] += is_counted
        try:
            return application(environ, start_response)
        finally:
            with counting:
                running[client] -= is_counted
                if not running[client]:
                    del running[client]

    return respond
