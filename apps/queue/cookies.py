"""What a call makes its sender carry from then on: identity, place and number, in cookies or in the answer. The same
from lane and site; requests and responses are Django's or the lane's."""

from typing import Any

from apps.events import facade as events
from apps.kernel.http import problems
from apps.kernel.http.request_types import AnyRequest, AnyResponse
from apps.queue.entries.positions import EntryView
from apps.queue.identity.caller import (
    Caller,
    check_visitor_id,
    delete_place_cookie,
    ensure_visitor_cookie,
    issue_queue_token,
    new_visitor_id,
    set_place_cookie,
)
from apps.queue.status.status import QueueStatus


def resolve_joining_caller(known: Caller, body: dict[str, Any]) -> Caller:
    """Who joins: whoever is known already stays who they are; else the visitor the body names; else somebody new.
    Raises Invalid."""
    wrong = {name[:80]: "unknown field" for name in body if name != "visitor_id"}
    if wrong:
        raise problems.Invalid(wrong)
    given = check_visitor_id(body["visitor_id"]) if body.get("visitor_id") is not None else ""
    return known if known.is_known else Caller(visitor_id=given or new_visitor_id())


def set_join_cookies(
    request: AnyRequest, response: AnyResponse, known: Caller, joined: Caller, entry: EntryView
) -> None:
    """Who has joined carries this place, and a browser that was nobody before its identity."""
    if not known.is_known:
        ensure_visitor_cookie(request, response, joined.visitor_id)
    set_place_cookie(request, response, entry.event_slug, entry.id, entry.number)


def update_place_cookie(
    request: AnyRequest,
    response: AnyResponse,
    event: events.EventView,
    caller: Caller,
    place: QueueStatus,
    answer: dict[str, Any],
) -> None:
    """Who has asked carries the place as it is now, if it waits, and no other; a lobby token that was exchanged comes
    with the answer."""
    entry = place.entry
    if entry is not None and not entry.waits:
        delete_place_cookie(request, response, event.slug)
    elif entry is not None:
        set_place_cookie(request, response, event.slug, entry.id, entry.number)
    elif place.drawn_number is not None and caller.entry_id is not None:
        # The lobby place is exchanged: what the visitor carries has the number from now on.
        if "Authorization" in request.headers:
            answer["queue_token"] = issue_queue_token(caller.entry_id, event.slug, place.drawn_number)
        set_place_cookie(request, response, event.slug, caller.entry_id, place.drawn_number)
