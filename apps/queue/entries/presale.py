"""Presale: until it ends, only visitors with an access code of the event get a new queue entry.

The code is checked before the join, and the join decides by its own time, under the room's lock, whether the presale
has ended. Joining does not use a code up: each hold of the presale is admitted by the code, under the code's lock.
"""

from collections.abc import Callable
from typing import Protocol

from django.http import HttpRequest, HttpResponse

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.fastpath import thread_pool
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
    """Return whether the caller may join during the presale. Blocks. Without a code the caller may not; a code that is
    not valid raises its problem, and too many attempts RateLimited. False without a presale, when it is not asked."""
    if event.presale_at(clock.process_now()) is None or not code:
        return False
    _provided[0].check(event, caller, str(code), address())
    return True


async def has_access_async(event: events.EventView, caller: Caller, code: object, address: Callable[[], str]) -> bool:
    """`has_access` for the event loop, which it does not block."""
    if not code or event.presale_at(clock.process_now()) is None:
        return False
    return await thread_pool.run_in_thread(has_access, event, caller, code, address)


def presale_refusal(presale: events.Presale) -> PresaleOnly:
    return PresaleOnly(condition=presale.condition, until=clock.iso(presale.until))
