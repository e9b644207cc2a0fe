"""The queue's API on the fast path. `api_views` handles the same requests on the site."""

from functools import partial
from typing import Any

from django.conf import settings

from apps.events import facade as events
from apps.kernel.fastpath.concurrency_limit import ConcurrencyLimit
from apps.kernel.fastpath.dispatcher import Route
from apps.kernel.fastpath.request import Request
from apps.kernel.fastpath.response import Reply, private_reply, private_reply_of_json
from apps.kernel.http import client_address, problems
from apps.kernel.proof_of_work.challenges import WorkRequired
from apps.queue.cookies import resolve_joining_caller, set_join_cookies, update_place_cookie
from apps.queue.entries.positions import EntryView, join_async
from apps.queue.entries.presale import PresaleAccess, get_access_async, opens_entries
from apps.queue.errors import EntryNotFound
from apps.queue.identity import async_caller
from apps.queue.identity.caller import Caller, caller_from_place_cookie
from apps.queue.identity.networks import recorded_network
from apps.queue.screening.policy import Policy, policies
from apps.queue.screening.screen import add_challenge, screen
from apps.queue.serializers import encode_join_answer, join_answer, status_answer
from apps.queue.status import async_status

JOINS_MAX = 256
"""Joins of one event that a process handles at once."""
JOINS_WAITING_MAX = 1_000


async def join(request: Request, slug: str) -> Reply:
    """Join the queue, as `QueueView.post` does."""
    event = await events.get_cached_event(slug)
    known = await async_caller.authenticate_for_event(request, event)
    body = await request.json_object()
    caller, secret = resolve_joining_caller(known, body)
    if event.policy.presale is None:
        return await _join(request, event, caller, secret, body, None)
    address = partial(client_address.address_from_scope, request.scope)
    access = await get_access_async(event, caller, body.get("access_code"), address)
    # A slot is taken only now: joins of a few clients that wait for a thread would hold all slots of the event.
    await presale_limit.acquire(slug)
    try:
        return await _join(request, event, caller, secret, body, access)
    finally:
        presale_limit.leave(slug)


async def _join(
    request: Request,
    event: events.EventView,
    caller: Caller,
    secret: str,
    body: dict[str, Any],
    access: PresaleAccess | None,
) -> Reply:
    policy = await policies.get(event.id)
    if policy.is_off:
        network = recorded_network(event, partial(client_address.address_from_scope, request.scope))
        entry = await join_async(event, caller, access=access, network=network)
    else:
        entry = await _join_screened(request, event, policy, caller, secret, body, access)
    encoded = async_status.encode_waiting_status(entry)
    if encoded is None:
        reply = private_reply(join_answer(event, await async_status.status_of_entry(event, entry), entry, caller), 201)
    else:
        reply = private_reply_of_json(encode_join_answer(event, encoded, entry), 201)
    set_join_cookies(request, reply, secret, entry)
    return reply


async def _join_screened(
    request: Request,
    event: events.EventView,
    policy: Policy,
    caller: Caller,
    secret: str,
    body: dict[str, Any],
    access: PresaleAccess | None,
) -> EntryView:
    address = client_address.address_from_scope(request.scope)
    # The cookie only lets the request reach the transaction, which decides whether there is an entry.
    has_entry = caller.entry_id is not None or caller_from_place_cookie(request, event.slug) is not None
    try:
        screening = screen(
            event,
            policy,
            caller,
            address,
            proof=body.get("proof") or "",
            has_entry=has_entry,
            has_presale_access=opens_entries(access),
        )
        network = recorded_network(event, lambda: address)
        return await join_async(event, caller, screening, access=access, network=network)
    except WorkRequired as refusal:
        raise add_challenge(refusal, event, caller, secret, address) from None


async def status(request: Request, slug: str) -> Reply:
    """Return the caller's status, as `QueueStatusView.get` does."""
    event = await events.get_cached_event(slug)
    token = request.bearer()
    encoded = None if token is None else async_status.encode_status_from_token(event, token)
    if encoded is not None:
        return private_reply_of_json(encoded)
    # While the visitor waits, the place cookie is enough. All other callers are authenticated.
    caller = caller_from_place_cookie(request, event.slug)
    place = None if caller is None else await async_status.status_from_snapshot(event, caller)
    if caller is None or place is None:
        caller = await async_caller.authenticate_for_event(request, event)
        if not caller.is_known:
            raise problems.TokenMissing
        place = await async_status.get_status(event, caller)
    if place is None:
        raise EntryNotFound
    answer = status_answer(event, place, caller)
    reply = private_reply(None)
    update_place_cookie(request, reply, event, caller, place, answer)
    return reply.with_body(answer)


def _slug_without_presale(slug: str) -> str | None:
    event = events.peek_event(slug)
    return None if event is None or event.policy.presale is not None else slug


_limits: dict[str, Any] = {
    "alone_max": JOINS_MAX,
    "waiting_max": JOINS_WAITING_MAX,
    "late_seconds": settings.OVERLOAD_WAIT_MS / 1_000,
}
join_limit = ConcurrencyLimit("joins", find_key=_slug_without_presale, **_limits)
presale_limit = ConcurrencyLimit("presale joins", find_key=events.cached_slug, **_limits)
"""Joins of presales, which take a slot once their condition was checked."""

ROUTES = (
    Route("POST", "events/<slug>/queue", join, "join", "join", join_limit),
    Route("GET", "events/<slug>/queue/status", status, "poll", "poll"),
)
