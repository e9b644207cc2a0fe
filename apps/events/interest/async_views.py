"""The beacon of an event's page on the fast path. `api_views` answers the same call on the site."""

from apps.events import event_views
from apps.events.interest import identities, intake
from apps.kernel.fastpath.cache import register
from apps.kernel.fastpath.dispatcher import Route
from apps.kernel.fastpath.request import Request
from apps.kernel.fastpath.response import NO_STORE, Reply
from apps.kernel.http import client_address

EVENTS_MAX = 10_000
_ACCEPTED = (NO_STORE,)

event_ids: dict[str, int] = register({})
"""Ids of public events by slug, which never change: only the first view of an event in a process needs the event."""


async def accept_view(request: Request, slug: str) -> Reply:
    """Accept a view, as `EventViews.post` does: one append in memory, and the answer."""
    report = intake.parse_report(await request.json_object())
    event_id = event_ids.get(slug)
    if event_id is None:
        event_id = (await event_views.get_cached_event(slug)).id
        if len(event_ids) >= EVENTS_MAX:
            event_ids.clear()
        event_ids[slug] = event_id
    day = identities.current_day()
    terms = intake.terms.peek(day) or await intake.terms.get(day)
    address = client_address.address_from_scope(request.scope)
    intake.intake.accept(intake.arrive(terms, request, address, event_id, report))
    return Reply(202, b"", _ACCEPTED)


ROUTES = (Route("POST", "events/<slug>/views", accept_view, "view", "view"),)
