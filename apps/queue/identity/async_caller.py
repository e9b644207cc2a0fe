"""Authenticates sessions and account tokens on the fast path. Each request is checked against PostgreSQL, in a batch
with others, so that closing an account, changing a password and ending a session take effect at once.

Only valid credentials are accepted here. Requests with invalid ones (an ended or anonymous session, an expired token, a
closed account) are forwarded to the site, which responds and deletes the cookie.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from apps.accounts import facade as accounts
from apps.events import facade as events
from apps.kernel.db import reads
from apps.kernel.fastpath.batch_loader import BatchLoader
from apps.kernel.fastpath.request import ForwardToSite, Request
from apps.queue.identity.caller import Caller, account_token_of, authenticate_from_token, visitor_id_of
from apps.queue.identity.entry_lookup import guest_entries_calls, guest_entry_ids


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
        session_key = accounts.session_key_of(request.COOKIES)
        if session_key is None:
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


def authenticate_accounts(batch: Sequence[Credentials]) -> reads.Read[list[AuthenticatedAccount | None]]:
    """Read the account of each of these credentials, in order; None if the site has to decide."""
    credentials = [accounts.AccountCredentials(one.session_key, one.token) for one in batch]
    guests = guest_entries_calls([(one.event_id, one.visitor_id) for one in batch if one.event_id and one.visitor_id])
    rows, found_entries = yield from accounts.read_accounts(credentials, guests)
    guest_entries = guest_entry_ids(found_entries)
    found: list[AuthenticatedAccount | None] = []
    for one, account in zip(batch, rows, strict=True):
        if account is None:
            found.append(None)
        else:
            version = accounts.AccountVersion(account.pk, account.token_version)
            has_guest_entry = (one.event_id, one.visitor_id) in guest_entries
            found.append(AuthenticatedAccount(version, account.date_joined, has_guest_entry))
    return found


_account_loader: BatchLoader[Credentials, AuthenticatedAccount | None] = BatchLoader(authenticate_accounts)
