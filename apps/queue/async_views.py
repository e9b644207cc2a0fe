"""The queue's calls as the lane answers them; the site's twins are in api_views.py."""

from apps.events.facade import EventView
from apps.kernel.fastpath.dispatcher import Route
from apps.kernel.fastpath.request import Request
from apps.kernel.fastpath.response import Reply, private_reply, private_reply_of_json
from apps.kernel.http import problems
from apps.queue.cookies import carry_joined, carry_place, joining_as
from apps.queue.entries.positions import join_async
from apps.queue.errors import NoPlace
from apps.queue.identity import async_caller
from apps.queue.identity.caller import place_of_cookie
from apps.queue.serializers import joined_answer, joined_text, place_answer
from apps.queue.status import async_status


async def join(request: Request, slug: str) -> Reply:
    """As `QueueView.post`."""
    event = await async_status.event_of(slug)
    known = await async_caller.caller_coming(request, event)
    caller = joining_as(known, await request.json_object())
    entry = await join_async(event, caller)
    said = async_status.told_in_line(entry)
    if said is None:
        reply = private_reply(joined_answer(event, await async_status.stand(event, entry), entry), 201)
    else:
        reply = private_reply_of_json(joined_text(event, said, entry), 201)
    carry_joined(request, reply, known, caller, entry)
    return reply


def status_at_sight(request: Request, slug: str, body: bytes | bytearray) -> Reply | None:
    """`status` of who plainly waits."""
    event = async_status.event_at_hand(slug)
    return None if event is None else _told(request, event)


def _told(request: Request, event: EventView) -> Reply | None:
    token = request.bearer()
    said = None if token is None else async_status.told_at_sight(event, token)
    return None if said is None else private_reply_of_json(said)


async def status(request: Request, slug: str) -> Reply:
    """As `QueueStatusView.get`."""
    event = await async_status.event_of(slug)
    said = _told(request, event)
    if said is not None:
        return said
    # What a browser's cookie says is enough to show the wait; at the turn it is asked who it really is.
    caller = place_of_cookie(request, event.slug)
    place = None if caller is None else await async_status.glance(event, caller)
    if caller is None or place is None:
        caller = await async_caller.caller_coming(request, event)
        if not caller.is_known:
            raise problems.TokenMissing
        place = await async_status.look(event, caller)
    if place is None:
        raise NoPlace
    answer = place_answer(event, place)
    reply = private_reply(None)
    carry_place(request, reply, event, caller, place, answer)
    return reply.with_body(answer)


ROUTES = (
    Route("POST", "events/<slug>/queue", join, "join", "join"),
    Route("GET", "events/<slug>/queue/status", status, "poll", "poll", status_at_sight),
)
