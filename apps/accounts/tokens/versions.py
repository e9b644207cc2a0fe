"""The account's version: a token of an earlier version is refused.

The site compares a token's version with the account's row. The fast path compares it with a snapshot in the process's
memory, which has the accounts whose version has risen within the lifetime of these tokens. A thread refreshes it from
PostgreSQL twice a second. A request costs one dictionary look-up and no I/O. While PostgreSQL is unavailable, the last
snapshot stays in use; Redis plays no part.
"""

import logging
import threading
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import close_old_connections, connections
from django.db.models import F

from apps.accounts.models import User
from apps.kernel import clock
from apps.kernel.fastpath import cache
from apps.kernel.observability.repeated_errors import RepeatedErrors

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 0.5
BEGIN_SECONDS_MAX = 5
KEPT = timedelta(hours=25)
"""Longer than the lifetime of a token that only the snapshot can refuse: an admission token."""
_OVERLAP = timedelta(minutes=2)
"""Changes are read again for this time: a longer transaction than this does not write versions."""


class AccountVersion(NamedTuple):
    """An account, and its version when a session or token of it began."""

    account_id: int
    version: int


def raise_version(user: User) -> None:
    """End all sessions, tokens and refresh tokens of the account. Afterwards `user` has the new version."""
    user.token_version = F("token_version") + 1
    user.save(update_fields=["token_version"])


def is_current(of: AccountVersion) -> bool:
    """Return whether the account is active and has this version. Reads the account's row."""
    return User.objects.filter(pk=of.account_id, token_version=of.version, is_active=True).exists()


class _Snapshot:
    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.versions: dict[int, int] = {}
        self.revision = 0
        """Rises with each refresh that changed a version."""
        self.read_from: datetime | None = None


_snapshot = cache.register(_Snapshot())


def is_revoked(of: AccountVersion) -> bool:
    """Return whether the account has a later version, as far as this process knows. For the event loop: no I/O."""
    latest = _snapshot.versions.get(of.account_id)
    return latest is not None and of.version < latest


def revision() -> int:
    """Return a number that changes whenever this process learns of a later version."""
    return _snapshot.revision


def refresh() -> None:
    """Add the versions that have risen since the last call to the snapshot. Blocks."""
    read_from = _snapshot.read_from or clock.now() - KEPT
    changed = User.objects.filter(token_version_changed_at__gt=read_from)
    rows = list(changed.values_list("pk", "token_version", "token_version_changed_at"))
    risen = {pk: version for pk, version, _ in rows if _snapshot.versions.get(pk) != version}
    if risen:
        _snapshot.versions.update(risen)
        _snapshot.revision += 1  # After the versions, so that a reader of the new revision sees them.
    latest = max((changed_at for *_, changed_at in rows if changed_at is not None), default=read_from)
    _snapshot.read_from = max(read_from, latest - _OVERLAP)


class _Refresher:
    """The thread that refreshes the snapshot, from `begin` to `end`."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._was_refreshed = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread. Returns once the snapshot was read, or after BEGIN_SECONDS_MAX without PostgreSQL."""
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="account-versions", daemon=True)
        self._thread.start()
        self._was_refreshed.wait(BEGIN_SECONDS_MAX)

    def end(self) -> None:
        """Stop the thread, if it runs."""
        if self._thread is not None:
            self._stopping.set()
            self._thread.join(timeout=5)

    def _run(self) -> None:
        errors = RepeatedErrors(logger)
        failing = "the versions of accounts could not be read; the last ones stay in use"
        while not self._stopping.is_set():
            close_old_connections()
            try:
                refresh()
                self._was_refreshed.set()
                errors.over(failing)
            except Exception as error:  # noqa: BLE001 - The thread must survive any error of the database.
                errors.record_failure(failing, error)
            self._stopping.wait(INTERVAL_SECONDS)
        connections.close_all()


_refresher = _Refresher()
begin = _refresher.begin
end = _refresher.end
