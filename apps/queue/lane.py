"""The queue's calls as the lane answers them; the site's twins are in api_views.py."""

from apps.events.facade import EventView
from apps.queue import recognizing, watching
from apps.queue.carrying import carry_joined, carry_place, joining_as
from apps.queue.errors import NoPlace
from apps.queue.identity import place_of_cookie
from apps.queue.line import join_async
from apps.queue.serializers import joined_answer, joined_text, place_answer
from ticketing.kernel import problems
from ticketing.kernel.lane.reply import Reply, personal, written
from ticketing.kernel.lane.request import Request
from ticketing.kernel.lane.routes import Route


async def join(request: Request, slug: str) -> Reply:
    """As `QueueView.post`."""
    event = await watching.event_of(slug)
    known = await recognizing.caller_coming(request, event)
    caller = joining_as(known, await request.json_object())
    entry = await join_async(event, caller)
    said = watching.told_in_line(entry)
    if said is None:
        reply = personal(joined_answer(event, await watching.stand(event, entry), entry), 201)
    else:
        reply = written(joined_text(event, said, entry), 201)
    carry_joined(request, reply, known, caller, entry)
    return reply


def status_at_sight(request: Request, slug: str, body: bytes | bytearray) -> Reply | None:
    """`status` of who plainly waits."""
    event = watching.event_at_hand(slug)
    return None if event is None else _told(request, event)


def _told(request: Request, event: EventView) -> Reply | None:
    token = request.bearer()
    said = None if token is None else watching.told_at_sight(event, token)
    return None if said is None else written(said)


async def status(request: Request, slug: str) -> Reply:
    """As `QueueStatusView.get`."""
    event = await watching.event_of(slug)
    said = _told(request, event)
    if said is not None:
        return said
    # What a browser's cookie says is enough to show the wait; at the turn it is asked who it really is.
    caller = place_of_cookie(request, event.slug)
    place = None if caller is None else await watching.glance(event, caller)
    if caller is None or place is None:
        caller = await recognizing.caller_coming(request, event)
        if not caller.is_known:
            raise problems.TokenMissing
        place = await watching.look(event, caller)
    if place is None:
        raise NoPlace
    answer = place_answer(event, place)
    reply = personal(None)
    carry_place(request, reply, event, caller, place, answer)
    return reply.saying(answer)


ROUTES = (
    Route("POST", "events/<slug>/queue", join, "join", "join"),
    Route("GET", "events/<slug>/queue/status", status, "poll", "poll", status_at_sight),
)
