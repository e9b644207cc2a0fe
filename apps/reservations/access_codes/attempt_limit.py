"""Rate limit of access-code attempts, so that codes cannot be guessed."""

from collections.abc import Callable
from typing import Any

from apps.kernel import rate_limits
from apps.kernel.http import problems
from apps.queue import facade as queue


def count_attempt(caller: queue.Caller, payload: dict[str, Any], address: Callable[[], str]) -> None:
    """Count an attempt by this caller and address if the payload has an access code. Raises RateLimited. The limit is
    shared with promo codes."""
    if not payload.get("access_code"):
        return
    wait = rate_limits.check_request("code", address(), str(caller.entry_id or caller.account_id or caller.visitor_id))
    if wait is not None:
        raise problems.RateLimited(wait)
