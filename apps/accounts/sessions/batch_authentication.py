"""Authenticates many sessions and account tokens with two queries, for the fast path.

Each call checks against PostgreSQL, so that closing an account, changing a password and ending a session take effect at
once. Only valid credentials are accepted: the site responds to others, and deletes the cookie.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.core.exceptions import ValidationError
from django.db import connection
from django.utils.crypto import constant_time_compare
from rest_framework_simplejwt.exceptions import TokenError

from apps.accounts.models import User
from apps.accounts.passwords.backend import PATH as PASSWORD_BACKEND
from apps.accounts.tokens.account_tokens import ACCOUNT_ID_MAX, AccessToken
from apps.kernel import clock
from apps.kernel.db import sql
from apps.kernel.http.sessions import SessionStore, stored_key

_sessions = sql.load("apps.accounts", "sessions_by_key")
_active_accounts = sql.load("apps.accounts", "active_accounts")
_ACCOUNT_COLUMNS = ("id", "password", "is_active", "date_joined", "token_version")
"""In the order of the model's fields, which `from_db` expects."""
_SESSION_KEY = re.compile(r"[a-z0-9]{8,40}")
"""The form of Django's session keys. Other values are not looked up: an invalid one would fail its whole batch."""


class AccountCredentials(NamedTuple):
    """The session key or account token of a request; without either, no account has it."""

    session_key: str = ""
    token: str = ""


def session_key_of(cookies: Mapping[str, str]) -> str | None:
    """Return the session key in these cookies; None if there is none of the right form."""
    key = cookies.get(settings.SESSION_COOKIE_NAME, "")
    return key if _SESSION_KEY.fullmatch(key) else None


@dataclass(frozen=True, slots=True)
class Claims:
    """The accounts that credentials name, in the order of the credentials, not verified yet: `verify` does that with
    the rows of `accounts_call`, which the caller can read together with others."""

    claimed: list[tuple[int | None, AccessToken | str]]

    @property
    def account_ids(self) -> set[int]:
        return {account_id for account_id, _ in self.claimed if account_id is not None}

    def accounts_call(self) -> sql.Call:
        return _active_accounts.call(ids=list(self.account_ids))

    def verify(self, rows: Sequence[tuple[Any, ...]]) -> list[User | None]:
        """Return the active account of each of the credentials, in order; None if the site has to decide. Only the
        account's id, version and date are loaded."""
        accounts = {row[0]: User.from_db("default", _ACCOUNT_COLUMNS, row) for row in rows}
        found = [(accounts.get(account_id or 0), proof) for account_id, proof in self.claimed]
        return [account if account is not None and _is_current(account, proof) else None for account, proof in found]


def read_claims(batch: Sequence[AccountCredentials]) -> Claims:
    """Return the accounts that these credentials name, in order. Reads their sessions. Blocks."""
    sessions = _load_sessions([one.session_key for one in batch if one.session_key])
    claimed = [
        _parse_token(one.token) if one.token else _parse_session(sessions.get(one.session_key, {})) for one in batch
    ]
    return Claims(claimed if PASSWORD_BACKEND in settings.AUTHENTICATION_BACKENDS else [(None, "")] * len(batch))


def authenticate_batch(batch: Sequence[AccountCredentials]) -> list[User | None]:
    """Return the active account of each of these credentials, as `Claims.verify` does. Blocks."""
    claims = read_claims(batch)
    if not claims.account_ids:
        return claims.verify([])
    with connection.cursor() as cursor:
        return claims.verify(sql.execute_batch(cursor, [claims.accounts_call()])[0].rows)


def _is_current(account: User, proof: AccessToken | str) -> bool:
    """Return whether the token, or the digest in the session, is of the account's present version."""
    if isinstance(proof, str):
        return constant_time_compare(proof, account.get_session_auth_hash())
    return proof.is_current(account)


def _load_sessions(keys: Sequence[str]) -> Mapping[str, dict[str, Any]]:
    """Return the data of these sessions, without those that have ended."""
    if not keys:
        return {}
    store = SessionStore()
    stored = {stored_key(key): key for key in keys}
    with connection.cursor() as cursor:
        rows = _sessions.rows(cursor, keys=list(stored), now=clock.process_now())
    return {stored[key]: store.decode(data) for key, data in rows}


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
