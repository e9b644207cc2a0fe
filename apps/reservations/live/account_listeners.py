"""Ends the streams of accounts whose sessions and tokens have ended: a stream is authenticated only when it opens, and
would go on sending reservations, orders and seats.

One task per process compares its listeners' accounts with the versions in this process's memory, which a thread reads
from PostgreSQL twice a second. A client that still has valid credentials reconnects and is authenticated again.
"""

import asyncio

from apps.accounts import facade as accounts
from apps.kernel.push.hub import Hub, Listener

CHECK_SECONDS = 0.25


class AccountListeners:
    """The listeners of one process that were authenticated by an account. Runs on the event loop."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._listeners: dict[Listener, accounts.AccountVersion] = {}
        self._seen_revision = -1
        self._check_task: asyncio.Task[None] | None = None

    def add(self, listener: Listener, version: accounts.AccountVersion) -> None:
        """Disconnect the listener once the account has a later version than this one; at once if it already has."""
        self._listeners[listener] = version
        # The version may have risen since the credentials were checked, and before this process noticed new versions
        # for the last time.
        self._check([listener])
        if self._check_task is None or self._check_task.done():
            self._check_task = asyncio.get_running_loop().create_task(self._check_loop())

    def close(self) -> None:
        if self._check_task is not None:
            self._check_task.cancel()

    async def _check_loop(self) -> None:
        while self._listeners:
            await asyncio.sleep(CHECK_SECONDS)
            revision = accounts.versions_revision()
            for gone in [one for one in self._listeners if one.is_gone]:
                del self._listeners[gone]
            if revision != self._seen_revision:
                self._seen_revision = revision
                self._check(list(self._listeners))

    def _check(self, listeners: list[Listener]) -> None:
        for listener in listeners:
            if not listener.is_gone and accounts.is_revoked(self._listeners[listener]):
                self._hub.disconnect(listener, "account")
            if listener.is_gone:
                self._listeners.pop(listener, None)
