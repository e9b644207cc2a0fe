"""Authenticates many sessions and account tokens in one round trip, for the fast path.

Each call checks against PostgreSQL, so that closing an account, changing a password and ending a session take effect at
once. Only valid credentials are accepted: the site responds to others, and deletes the cookie.

A process remembers which account a session was of, so that the account's row is read together with the session's. That
is only a guess of what to read: the session's own data decides, and another account is read in a second round trip, as
is that of a session that this process has not seen before.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.core.exceptions import ValidationError
from django.utils.crypto import constant_time_compare
from rest_framework_simplejwt.exceptions import TokenError

from apps.accounts.models import User
from apps.accounts.passwords.backend import PATH as PASSWORD_BACKEND
from apps.accounts.tokens.account_tokens import ACCOUNT_ID_MAX, AccessToken
from apps.kernel import clock
from apps.kernel.db import reads, sql
from apps.kernel.fastpath import cache
from apps.kernel.http.sessions import SessionStore, stored_key

_sessions = sql.load("apps.accounts", "sessions_by_key", prepared=True)
_active_accounts = sql.load("apps.accounts", "active_accounts", prepared=True)
_ACCOUNT_COLUMNS = ("id", "password", "is_active", "date_joined", "token_version")
"""In the order of the model's fields, which `from_db` expects."""
_SESSION_KEY = re.compile(r"[a-z0-9]{8,40}")
"""The form of Django's session keys. Other values are not looked up: an invalid one would fail its whole batch."""
REMEMBERED_MAX = 10_000
"""Sessions whose account a process remembers."""


class AccountCredentials(NamedTuple):
    """The session key or account token of a request; without either, no account has it."""

    session_key: str = ""
    token: str = ""


def session_key_of(cookies: Mapping[str, str]) -> str | None:
    """Return the session key in these cookies; None if there is none of the right form."""
    key = cookies.get(settings.SESSION_COOKIE_NAME, "")
    return key if _SESSION_KEY.fullmatch(key) else None


class _SessionAccounts:
    """The accounts that sessions were of when this process last read them, by the session's stored key."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def clear(self) -> None:
        self._ids.clear()

    def get(self, session_key: str) -> int | None:
        return self._ids.get(stored_key(session_key))

    def remember(self, session_key: str, account_id: int) -> None:
        if len(self._ids) >= REMEMBERED_MAX:
            self.clear()
        self._ids[stored_key(session_key)] = account_id


_session_accounts = cache.register(_SessionAccounts())


def guess_account_id(session_key: str) -> int | None:
    """Return the id of the account that the session was of when this process last read it; proves nothing."""
    return _session_accounts.get(session_key)


def read_accounts(
    batch: Sequence[AccountCredentials],
    calls: Sequence[sql.Call],
    calls_for: Callable[[Collection[int]], Sequence[sql.Call]] = lambda _: (),
) -> reads.Read[tuple[list[User | None], list[tuple[Any, ...]]]]:
    """Read the active account of each of these credentials, in order; None if the site has to decide. Only the
    account's id, version and date are loaded. Also return the rows of `calls` and of `calls_for(account ids)`, which
    are read together with the accounts: also rows of accounts that the credentials do not prove, so use those of the
    returned accounts only."""
    if PASSWORD_BACKEND not in settings.AUTHENTICATION_BACKENDS:
        batch = [AccountCredentials()] * len(batch)
    store = SessionStore()
    tokens = {one.token: _parse_token(one.token) for one in batch if one.token}
    keys = {stored_key(one.session_key): one.session_key for one in batch if one.session_key and not one.token}
    guesses = map(_session_accounts.get, keys.values())
    expected = {account_id for account_id in (*guesses, *(one for one, _ in tokens.values())) if account_id is not None}
    of_sessions = [_sessions.call(keys=list(keys), now=clock.process_now())] if keys else []
    results = [result.rows for result in (yield [*of_sessions, *_calls(expected, calls_for), *calls])]
    sessions = {keys[key]: _parse_session(store.decode(data)) for key, data in (results.pop(0) if keys else ())}
    accounts = list(results.pop(0)) if expected else []
    further = [row for rows in results for row in rows]
    missing = {account_id for account_id, _ in sessions.values() if account_id is not None} - expected
    if missing:
        read, *others = yield _calls(missing, calls_for)
        accounts += read.rows
        further += [row for other in others for row in other.rows]
    claims = [tokens[one.token] if one.token else sessions.get(one.session_key, (None, "")) for one in batch]
    for one, (account_id, _) in zip(batch, claims, strict=True):
        if account_id is not None and not one.token:
            _session_accounts.remember(one.session_key, account_id)
    return _verify(claims, accounts), further


def _calls(ids: Collection[int], calls_for: Callable[[Collection[int]], Sequence[sql.Call]]) -> list[sql.Call]:
    """Return the statements that read these accounts, if there are any, and what belongs to them."""
    return [*([_active_accounts.call(ids=list(ids))] if ids else []), *calls_for(ids)]


def _verify(
    claims: Sequence[tuple[int | None, AccessToken | str]], rows: Sequence[tuple[Any, ...]]
) -> list[User | None]:
    """Return the account of each claim, if it is active and the claim is of its present version."""
    accounts = {row[0]: User.from_db("default", _ACCOUNT_COLUMNS, row) for row in rows}
    found = [(accounts.get(account_id or 0), proof) for account_id, proof in claims]
    return [account if account is not None and _is_current(account, proof) else None for account, proof in found]


def _is_current(account: User, proof: AccessToken | str) -> bool:
    """Return whether the token, or the digest in the session, is of the account's present version."""
    if isinstance(proof, str):
        return constant_time_compare(proof, account.get_session_auth_hash())
    return proof.is_current(account)


def _parse_session(session: Mapping[str, Any]) -> tuple[int | None, AccessToken | str]:
    """Return the session's account, and the digest of the account's password and version at the log-in."""
    session_hash = session.get(HASH_SESSION_KEY)
    if session.get(BACKEND_SESSION_KEY) != PASSWORD_BACKEND or not isinstance(session_hash, str) or not session_hash:
        return None, ""
    return _account_id(session.get(SESSION_KEY)), session_hash


def _parse_token(token: str) -> tuple[int | None, AccessToken | str]:
    try:
        # The class accepts the text itself, contrary to its annotation.
        parsed = AccessToken(token)  # type: ignore[arg-type]
        return parsed.account_id, parsed
    except TokenError:
        return None, ""


def _account_id(value: Any) -> int | None:
    try:
        account_id = User._meta.pk.to_python(value)
    except (ValidationError, OverflowError):
        return None
    return account_id if isinstance(account_id, int) and 0 < account_id <= ACCOUNT_ID_MAX else None
