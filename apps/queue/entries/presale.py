"""Presale: until it ends, only visitors who meet its condition get a new queue entry.

The condition is checked before the join, and the join decides by its own time, under the room's lock, whether the
presale has ended. Joining does not use a code up: each hold of the presale is admitted by the code, under the code's
lock. A hold of a presale by account or sign-up needs an entry of an account, which only such a join creates.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from django.http import HttpRequest, HttpResponse

from apps.accounts import facade as accounts
from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.fastpath import thread_pool
from apps.queue.entries import sign_ups
from apps.queue.errors import PresaleOnly
from apps.queue.identity.caller import Caller


class PresaleCodes(Protocol):
    """The access codes of presales, which are above this app."""

    def check(self, event: events.EventView, caller: Caller, code: str, address: str) -> None:
        """Raise the problem that refuses this code of a caller at a client address. Counts the attempt."""

    def keep(self, request: HttpRequest, response: HttpResponse, event_slug: str, code: str) -> None:
        """Keep the code in the browser, for the page on which the visitor chooses tickets."""


_provided: list[PresaleCodes] = []


def provide_presale_codes(codes: PresaleCodes) -> None:
    """Register the access codes."""
    _provided[:] = [codes]


def keep_code(request: HttpRequest, response: HttpResponse, event_slug: str, code: str) -> None:
    """See `PresaleCodes.keep`."""
    _provided[0].keep(request, response, event_slug, code)


def has_access(event: events.EventView, caller: Caller, code: object, address: Callable[[], str]) -> bool:
    """Return whether the caller may join during the presale; always False without one, when it is not asked. Blocks.

    A code that is not valid raises its problem, and too many attempts RateLimited. In a presale by sign-up this signs
    the caller up. Raises AlreadySignedUp.
    """
    presale = event.presale_at(clock.process_now())
    if presale is None:
        return False
    if presale.condition == "code":
        if code:
            _provided[0].check(event, caller, str(code), address())
        return bool(code)
    if caller.account_id is None:
        return False
    if presale.condition == "sign_up":
        return sign_ups.sign_up(event, caller.account_id)
    return bool(accounts.confirmed_address(caller.account_id))


async def has_access_async(event: events.EventView, caller: Caller, code: object, address: Callable[[], str]) -> bool:
    """`has_access` for the event loop, which it does not block."""
    presale = event.presale_at(clock.process_now())
    if presale is None or not (code if presale.condition == "code" else caller.account_id):
        return False
    return await thread_pool.run_in_thread(has_access, event, caller, code, address)


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
