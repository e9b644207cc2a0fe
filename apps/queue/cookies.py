"""Cookies and tokens set by a response: identity, queue entry and number.

The fast path and the site both call these functions, each with its own types of requests and responses.
"""

from typing import Any

from apps.events import facade as events
from apps.kernel.http import problems
from apps.kernel.http.request_types import AnyRequest, AnyResponse
from apps.kernel.proof_of_work.challenges import PAYLOAD_LENGTH_MAX
from apps.queue.entries.positions import EntryView
from apps.queue.identity.caller import (
    Caller,
    check_visitor_secret,
    delete_place_cookie,
    ensure_visitor_cookie,
    issue_queue_token,
    new_visitor_secret,
    set_place_cookie,
    visitor_id_of_secret,
)
from apps.queue.status.status import QueueStatus

_JOIN_FIELDS = frozenset({"visitor_id", "access_code", "proof"})


def resolve_joining_caller(known: Caller, body: dict[str, Any]) -> tuple[Caller, str]:
    """Return the caller that joins: `known` if identified, else the visitor named in the body, else a new visitor; and
    the visitor's secret unless the caller was identified. Raises Invalid."""
    wrong = {name[:80]: "unknown field" for name in body if name not in _JOIN_FIELDS}
    if not isinstance(body.get("access_code", ""), str | None):
        wrong["access_code"] = "must be a string"
    proof = body.get("proof")
    if proof is not None and (not isinstance(proof, str) or len(proof) > PAYLOAD_LENGTH_MAX):
        wrong["proof"] = f"must be a string of at most {PAYLOAD_LENGTH_MAX} characters"
    if wrong:
        raise problems.Invalid(wrong)
    given = check_visitor_secret(body["visitor_id"]) if body.get("visitor_id") is not None else ""
    if known.is_known:
        return known, ""
    secret = given or new_visitor_secret()
    return Caller(visitor_id=visitor_id_of_secret(secret)), secret


def set_join_cookies(request: AnyRequest, response: AnyResponse, secret: str, entry: EntryView) -> None:
    """Set the place cookie and, for a browser that joined with this visitor secret, the visitor cookie."""
    if secret:
        ensure_visitor_cookie(request, response, secret)
    set_place_cookie(request, response, entry.event_slug, entry.id, entry.number)


def update_place_cookie(
    request: AnyRequest,
    response: AnyResponse,
    event: events.EventView,
    caller: Caller,
    status: QueueStatus,
    answer: dict[str, Any],
) -> None:
    """Set the place cookie of a waiting entry; delete it if the entry is admitted or has ended. After the draw, set a
    cookie with the number and, for a client that sent a token, add a new queue token to `answer`."""
    entry = status.entry
    if entry is not None and not entry.waits:
        delete_place_cookie(request, response, event.slug)
    elif entry is not None:
        set_place_cookie(request, response, event.slug, entry.id, entry.number)
    elif status.drawn_number is not None and caller.entry_id is not None:
        if "Authorization" in request.headers:
            answer["queue_token"] = issue_queue_token(caller.entry_id, event.slug, status.drawn_number)
        set_place_cookie(request, response, event.slug, caller.entry_id, status.drawn_number)
