"""The account's version: a token of an earlier version is refused.

The site compares a token's version with the account's row. The fast path compares it with a snapshot in the process's
memory, which has the accounts whose version has risen within the lifetime of these tokens. A thread refreshes it from
PostgreSQL twice a second (`snapshots`). A request costs one dictionary look-up and no I/O. While PostgreSQL is
unavailable, the last snapshot stays in use; Redis plays no part.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import F

from apps.accounts.models import User
from apps.kernel import clock
from apps.kernel.fastpath import cache, snapshots

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


snapshots.register("the versions of accounts could not be read; the last ones stay in use", refresh)
