"""How often one may try access codes: they are not to be guessed."""

from collections.abc import Callable
from typing import Any

from apps.kernel import rate_limits
from apps.kernel.http import problems
from apps.queue import facade as queue


def count_attempt(caller: queue.Caller, payload: dict[str, Any], address: Callable[[], str]) -> None:
    """A hold was asked for with an access code, if the payload has one, by this caller from this address. Raises
    RateLimited, as for promo codes."""
    if not payload.get("access_code"):
        return
    wait = rate_limits.check_request("code", address(), str(caller.entry_id or caller.account_id or caller.visitor_id))
    if wait is not None:
        raise problems.RateLimited(wait)
