"""Authenticates sessions and account tokens on the fast path. Each request is checked against PostgreSQL, in a batch
with others, so that closing an account, changing a password and ending a session take effect at once.

Only valid credentials are accepted here. Requests with invalid ones (an ended or anonymous session, an expired token, a
closed account) are forwarded to the site, which responds and deletes the cookie.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.utils.crypto import constant_time_compare
from rest_framework_simplejwt.exceptions import TokenError
from rest_framework_simplejwt.settings import api_settings
from rest_framework_simplejwt.tokens import AccessToken

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.fastpath.batch_loader import BatchLoader
from apps.kernel.fastpath.request import ForwardToSite, Request
from apps.kernel.http.sessions import SessionStore, stored_key
from apps.queue.identity.caller import Caller, account_token_of, authenticate_from_token, visitor_id_of
from apps.queue.identity.entry_lookup import load_guest_entry_ids

_SESSION_KEY = re.compile(r"[a-z0-9]{8,40}")
"""The form of Django's session keys. Other values are not looked up: an invalid one would fail its whole batch."""
_BACKEND = "django.contrib.auth.backends.ModelBackend"
_ID_MAX = 2**31 - 1


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
    account_id: int
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
    return Caller(account_id=account.account_id, visitor_id=credentials.visitor_id), account.has_guest_entry


def authenticate_accounts(batch: Sequence[Credentials]) -> list[AuthenticatedAccount | None]:
    """Return the account of each of these credentials, in order; None if the site has to decide. Blocks."""
    sessions = _load_sessions([one.session_key for one in batch if one.session_key])
    claims = [
        (_id_of_token(one.token), "") if one.token else _parse_session(sessions.get(one.session_key, {}))
        for one in batch
    ]
    accounts = _load_active_accounts({account_id for account_id, _ in claims if account_id is not None})
    guest_entries = load_guest_entry_ids(
        [(one.event_id, one.visitor_id) for one in batch if one.event_id and one.visitor_id]
    )
    found: list[AuthenticatedAccount | None] = []
    for one, (account_id, session_hash) in zip(batch, claims, strict=True):
        account = None if account_id is None else accounts.get(account_id)
        if account is None or not (one.token or constant_time_compare(session_hash, account.get_session_auth_hash())):
            found.append(None)
        else:
            found.append(AuthenticatedAccount(account.pk, (one.event_id, one.visitor_id) in guest_entries))
    return found


_account_loader: BatchLoader[Credentials, AuthenticatedAccount | None] = BatchLoader(authenticate_accounts)


def _load_sessions(keys: Sequence[str]) -> Mapping[str, dict[str, Any]]:
    """Return the data of these sessions, without those that have ended."""
    if not keys:
        return {}
    store = SessionStore()
    stored = {stored_key(key): key for key in keys}
    rows = Session.objects.filter(session_key__in=list(stored), expire_date__gt=clock.process_now())
    return {stored[key]: store.decode(data) for key, data in rows.values_list("session_key", "session_data")}


def _parse_session(session: Mapping[str, Any]) -> tuple[int | None, str]:
    """Return the session's account, and the digest of the account's password at the log-in."""
    session_hash = session.get(HASH_SESSION_KEY)
    if session.get(BACKEND_SESSION_KEY) != _BACKEND or not isinstance(session_hash, str) or not session_hash:
        return None, ""
    return _account_id(session.get(SESSION_KEY)), session_hash


def _id_of_token(token: str) -> int | None:
    try:
        # The class accepts the text itself, contrary to its annotation.
        claims = AccessToken(token)  # type: ignore[arg-type]
    except TokenError:
        return None
    return _account_id(claims.payload.get(api_settings.USER_ID_CLAIM))


def _account_id(value: Any) -> int | None:
    try:
        account_id = get_user_model()._meta.pk.to_python(value)
    except (ValidationError, OverflowError):
        return None
    return account_id if isinstance(account_id, int) and 0 < account_id <= _ID_MAX else None


def _load_active_accounts(ids: set[int]) -> Mapping[int, Any]:
    """Return these accounts, without those that are not active."""
    if not ids or _BACKEND not in settings.AUTHENTICATION_BACKENDS:
        return {}
    rows = get_user_model()._default_manager.filter(pk__in=ids, is_active=True).only("pk", "password", "is_active")
    return {account.pk: account for account in rows}
