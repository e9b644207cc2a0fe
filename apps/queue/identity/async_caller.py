"""Authenticates sessions and account tokens on the fast path. Each request is checked against PostgreSQL, in a batch
with others, so that closing an account, changing a password and ending a session take effect at once.

Only valid credentials are accepted here. Requests with invalid ones (an ended or anonymous session, an expired token, a
closed account) are forwarded to the site, which responds and deletes the cookie.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.utils.crypto import constant_time_compare
from rest_framework_simplejwt.exceptions import TokenError

from apps.accounts import facade as accounts
from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.fastpath.batch_loader import BatchLoader
from apps.kernel.fastpath.request import ForwardToSite, Request
from apps.kernel.http.sessions import SessionStore, stored_key
from apps.queue.identity.caller import Caller, account_token_of, authenticate_from_token, visitor_id_of
from apps.queue.identity.entry_lookup import load_guest_entry_ids

_SESSION_KEY = re.compile(r"[a-z0-9]{8,40}")
"""The form of Django's session keys. Other values are not looked up: an invalid one would fail its whole batch."""
_BACKEND = accounts.PASSWORD_BACKEND


@dataclass(frozen=True, slots=True)
class Credentials:
    """A request's session key or account token. `visitor_id` and `event_id` identify the guest entry that would be
    merged into the account."""

    session_key: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    event_id: int = 0
    visitor_id: str = ""


@dataclass(frozen=True, slots=True)
class AuthenticatedAccount:
    version: accounts.AccountVersion
    account_since: datetime
    has_guest_entry: bool
    """Whether the browser has a guest entry in this event's queue, which must be merged first."""


async def authenticate(request: Request, event_slug: str | None = None) -> Caller:
    """Return the caller, as `caller.authenticate` does. Raises ForwardToSite if the site has to decide."""
    caller = authenticate_from_token(request, event_slug)
    return caller if caller is not None else (await _authenticate_account(request, None))[0]


async def authenticate_for_event(request: Request, event: events.EventView) -> Caller:
    """Return the caller of a join or a poll. If a guest entry has to be merged, the request is forwarded."""
    caller = authenticate_from_token(request, event.slug)
    if caller is not None:
        return caller
    caller, has_guest_entry = await _authenticate_account(request, event)
    if has_guest_entry:
        raise ForwardToSite
    return caller


async def _authenticate_account(request: Request, event: events.EventView | None) -> tuple[Caller, bool]:
    token = account_token_of(request)
    if token is not None:
        credentials = Credentials(token=token)
    else:
        session_key = request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")
        if not _SESSION_KEY.fullmatch(session_key):
            raise ForwardToSite
        credentials = Credentials(session_key, event_id=event.id if event else 0, visitor_id=visitor_id_of(request))
    account = await _account_loader.ask(credentials)
    if account is None:
        raise ForwardToSite
    version = account.version
    caller = Caller(
        account_id=version.account_id,
        visitor_id=credentials.visitor_id,
        account_version=version,
        account_since=account.account_since,
    )
    return caller, account.has_guest_entry


def authenticate_accounts(batch: Sequence[Credentials]) -> list[AuthenticatedAccount | None]:
    """Return the account of each of these credentials, in order; None if the site has to decide. Blocks."""
    sessions = _load_sessions([one.session_key for one in batch if one.session_key])
    claims = [
        _parse_token(one.token) if one.token else _parse_session(sessions.get(one.session_key, {})) for one in batch
    ]
    rows = _load_active_accounts({account_id for account_id, _ in claims if account_id is not None})
    guest_entries = load_guest_entry_ids(
        [(one.event_id, one.visitor_id) for one in batch if one.event_id and one.visitor_id]
    )
    found: list[AuthenticatedAccount | None] = []
    for one, (account_id, proof) in zip(batch, claims, strict=True):
        account = None if account_id is None else rows.get(account_id)
        if account is None or not _is_current(account, proof):
            found.append(None)
        else:
            version = accounts.AccountVersion(account.pk, account.token_version)
            has_guest_entry = (one.event_id, one.visitor_id) in guest_entries
            found.append(AuthenticatedAccount(version, account.date_joined, has_guest_entry))
    return found


def _is_current(account: accounts.User, proof: accounts.AccessToken | str) -> bool:
    """Return whether the token, or the digest in the session, is of the account's present version."""
    if isinstance(proof, str):
        return constant_time_compare(proof, account.get_session_auth_hash())
    return proof.is_current(account)


_account_loader: BatchLoader[Credentials, AuthenticatedAccount | None] = BatchLoader(authenticate_accounts)


def _load_sessions(keys: Sequence[str]) -> Mapping[str, dict[str, Any]]:
    """Return the data of these sessions, without those that have ended."""
    if not keys:
        return {}
    store = SessionStore()
    stored = {stored_key(key): key for key in keys}
    rows = Session.objects.filter(session_key__in=list(stored), expire_date__gt=clock.process_now())
    return {stored[key]: store.decode(data) for key, data in rows.values_list("session_key", "session_data")}


def _parse_session(session: Mapping[str, Any]) -> tuple[int | None, accounts.AccessToken | str]:
    """Return the session's account, and the digest of the account's password and version at the log-in."""
    session_hash = session.get(HASH_SESSION_KEY)
    if session.get(BACKEND_SESSION_KEY) != _BACKEND or not isinstance(session_hash, str) or not session_hash:
        return None, ""
    return _account_id(session.get(SESSION_KEY)), session_hash


def _parse_token(token: str) -> tuple[int | None, accounts.AccessToken | str]:
    try:
        # The class accepts the text itself, contrary to its annotation.
        parsed = accounts.AccessToken(token)  # type: ignore[arg-type]
        return parsed.account_id, parsed
    except TokenError:
        return None, ""


def _account_id(value: Any) -> int | None:
    try:
        account_id = accounts.User._meta.pk.to_python(value)
    except (ValidationError, OverflowError):
        return None
    return account_id if isinstance(account_id, int) and 0 < account_id <= accounts.ACCOUNT_ID_MAX else None


def _load_active_accounts(ids: set[int]) -> Mapping[int, accounts.User]:
    """Return these accounts, without those that are not active."""
    if not ids or _BACKEND not in settings.AUTHENTICATION_BACKENDS:
        return {}
    rows = accounts.User.objects.filter(pk__in=ids, is_active=True)
    rows = rows.only("pk", "password", "is_active", "token_version", "date_joined")
    return {account.pk: account for account in rows}
