"""Presale: until it ends, only visitors who meet its condition get a new queue entry.

The condition is checked before the join, and the join decides by its own time, under the room's lock, whether the
presale has ended. Joining does not use a code up: each hold of the presale is admitted by the code, under the code's
lock. But a code opens no more entries than it has uses left: the join counts its live entries under the room's lock,
since each of them may yet hold. A hold of a presale by account or sign-up needs an entry of an account, which only such
a join creates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from apps.accounts import facade as accounts
from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql
from apps.kernel.fastpath import thread_pool
from apps.kernel.http import problems
from apps.kernel.rate_limits import mail_caps
from apps.queue.entries import sign_ups
from apps.queue.errors import PresaleOnly
from apps.queue.identity.caller import Caller


@dataclass(frozen=True, slots=True)
class PresaleAccess:
    """How a caller meets the condition of a presale."""

    key: bytes = b""
    """The key of the caller's code, which is stored with the entry that it opens; empty without a code."""
    refusal: problems.Problem | None = None
    """Why the code opens no new entry although it is valid. The caller may have a live one, which a join returns."""


def opens_entries(access: PresaleAccess | None) -> bool:
    """Return whether a caller with this access may get a new entry during the presale."""
    return access is not None and access.refusal is None


class PresaleCodes(Protocol):
    """The access codes of presales, which are above this app."""

    def check(self, event: events.EventView, caller: Caller, code: str, address: str) -> PresaleAccess:
        """Return the access that this code gives a caller at a client address, with a key of at most 16 bytes that no
        other code has. Raises the problem of a code that is not valid. Counts the attempt."""

    def left_call(self, keys: Sequence[bytes], ended_ids: Sequence[UUID]) -> sql.Call:
        """Return the statement that reads how many more entries these codes may open: a row of key and number for each
        that has a limit. It counts the code's reservations, and its live entries without one, except `ended_ids`, which
        the join is about to end. A join runs it under the room's lock."""

    def keep(self, request: HttpRequest, response: HttpResponse, event_slug: str, code: str) -> None:
        """Keep the code in the browser, for the page on which the visitor chooses tickets."""


_provided: list[PresaleCodes] = []


def provide_presale_codes(codes: PresaleCodes) -> None:
    """Register the access codes."""
    _provided[:] = [codes]


def keep_code(request: HttpRequest, response: HttpResponse, event_slug: str, code: str) -> None:
    """See `PresaleCodes.keep`."""
    _provided[0].keep(request, response, event_slug, code)


def codes_left_call(keys: Sequence[bytes], ended_ids: Sequence[UUID]) -> sql.Call:
    """See `PresaleCodes.left_call`."""
    return _provided[0].left_call(keys, ended_ids)


def get_access(
    event: events.EventView, caller: Caller, code: object, address: Callable[[], str]
) -> PresaleAccess | None:
    """Return how the caller may join during the presale, None if not; always None without a presale. Blocks.

    A code that is not valid raises its problem, and too many attempts RateLimited. In a presale by sign-up this signs
    the caller up. Raises AlreadySignedUp.
    """
    presale = event.presale_at(clock.process_now())
    if presale is None:
        return None
    if presale.condition == "code":
        return _provided[0].check(event, caller, str(code), address()) if code else None
    if caller.account_id is None:
        return None
    if presale.condition == "sign_up":
        is_admitted = sign_ups.sign_up(event, caller.account_id, mail_caps.origin_of(address()))
    else:
        is_admitted = bool(accounts.confirmed_address(caller.account_id))
    return PresaleAccess() if is_admitted else None


async def get_access_async(
    event: events.EventView, caller: Caller, code: object, address: Callable[[], str]
) -> PresaleAccess | None:
    """`get_access` for the event loop, which it does not block."""
    presale = event.presale_at(clock.process_now())
    if presale is None or not (code if presale.condition == "code" else caller.account_id):
        return None
    return await thread_pool.run_for_client(get_access, event, caller, code, address)


_REFUSALS = {
    "code": "This is a presale. Join with an access code from the organizer.",
    "account": "This is a presale. Log in with an account whose email address is confirmed.",
    "sign_up": "Sign-up has closed. Only those who signed up for the draw can join now.",
}


_SIGN_UP_OPEN = "Signing up for the draw needs an account whose email address is confirmed."


def presale_refusal(presale: events.Presale, at: datetime) -> PresaleOnly:
    """Return the problem that refuses a visitor at this moment."""
    closes_at = presale.sign_up_closes_at
    detail = _SIGN_UP_OPEN if closes_at is not None and at < closes_at else _REFUSALS[presale.condition]
    return PresaleOnly(detail, condition=presale.condition, until=clock.iso(presale.until))
