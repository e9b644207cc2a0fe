"""The reservation endpoints on the fast path. `api_views` serves the same endpoints on the site."""

import asyncio
import time
import uuid
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings

from apps.events import facade as events
from apps.kernel import rate_limits
from apps.kernel.fastpath import thread_pool
from apps.kernel.fastpath.active_events import ActiveEvents
from apps.kernel.fastpath.cache import RefreshingCache
from apps.kernel.fastpath.concurrency_limit import ConcurrencyLimit
from apps.kernel.fastpath.dispatcher import Route
from apps.kernel.fastpath.etags import has_etag
from apps.kernel.fastpath.redis_connection import shared as async_redis
from apps.kernel.fastpath.request import Request
from apps.kernel.fastpath.response import JSON, Reply, private_reply, private_reply_of_json, problem_reply
from apps.kernel.http import client_address, idempotency, problems
from apps.kernel.http.compression import takes_gzip
from apps.queue import facade as queue
from apps.reservations.access_codes.attempt_limit import count_attempt
from apps.reservations.counts.counts_json import CountFrame, count_frame
from apps.reservations.gate import gate
from apps.reservations.gate.async_gate import AsyncGate
from apps.reservations.holds import event_cache
from apps.reservations.holds.outcomes import Refused
from apps.reservations.holds.requests import is_presale, resolve
from apps.reservations.holds.service import holds
from apps.reservations.ownership import get_reservation_for
from apps.reservations.page_header import held_tickets

_CACHEABLE = (b"cache-control", b"public, max-age=%d" % settings.CACHE_COUNTS_SECONDS)
_VARIES = (b"vary", b"Accept-Encoding")
_GZIP = (b"content-encoding", b"gzip")
EVENTS_MAX = 1_000
AREAS_OF_A_HOLD = 500
"""So many areas take about the work of one hold."""

# However many requests arrive, the relay's counts are fetched at most ten times a second. If no relay runs, this
# process counts free seats itself; in a very large venue it spends at most a quarter of the time on this, and meanwhile
# requests get the last counts. Including the relay's own delay, counts show a commit within half a second.
frames: RefreshingCache[str, CountFrame] = RefreshingCache(
    count_frame, fresh_seconds=0.1, stale_seconds=0.2, most=EVENTS_MAX
)


async def sections(request: Request, slug: str) -> Reply:
    """The fast path's version of `SectionsView.get`."""
    if frames.peek(slug) is None:
        await events.get_cached_event(slug)  # Names of no event are looked up many at a time.
    frame = await frames.get(slug)
    # A tuple, so that the encoded lines are cached: the headers are the same until the counts change.
    headers = ((b"etag", frame.etag.encode()), _CACHEABLE, _VARIES)
    known = request.headers.get("if-none-match")
    if known is not None and has_etag(known, frame.etag):
        return Reply(304, b"", headers)
    accepted = request.headers.plain(b"accept-encoding")
    if frame.compressed is not None and accepted is not None and takes_gzip(accepted):
        return Reply(200, frame.compressed, (JSON, _GZIP, *headers))
    return Reply(200, frame.body, (JSON, *headers))


async def hold(request: Request, slug: str) -> Reply:
    """The fast path's version of `ReservationsView.post`."""
    # The body is read before the event is looked up. Errors of the caller and of the body are raised only afterwards,
    # so that all errors are reported in the site's order: event, caller, key, body.
    caller: queue.Caller | problems.Problem
    body: dict[str, Any] | problems.Problem
    try:
        caller = await queue.authenticate_async(request, slug)
    except problems.Problem as problem:
        caller = problem
    try:
        body = await request.json_object()
    except problems.Problem as problem:
        body = problem
    event = await events.get_cached_event(slug)
    caller, body, key = _validate_request(request, caller, body)
    await _count_areas(request, event, body)
    if caller.entry_id is not None and not caller.in_line:
        # With an admission token, sold-out demand is refused before any query to PostgreSQL.
        loaded = await _async_gate.ask(gate.Question(event, caller.entry_id, body, key))
        entry = await queue.claim_or_get_loaded(event, caller, loaded)
    else:
        entry = await queue.claim_or_get_entry_async(event, caller)
        if entry is not None and entry.is_ready:
            await _async_gate.ask(gate.Question(event, entry.id, body, key))
    if entry is None:
        raise queue.NotAdmitted
    is_invited = is_presale(event, entry) and await thread_pool.run_for_client(queue.has_vip_link, entry.id)
    hold_request = resolve(event, entry, body, key, await event_cache.load_lookup(event, body), is_invited=is_invited)
    started_at = time.monotonic()
    try:
        outcome = await holds.submit(hold_request)
    finally:
        address = client_address.address_from_scope(request.scope)
        queue.observe_hold(time.monotonic() - started_at, event.id, address)
    if isinstance(outcome, Refused):
        if outcome.is_final:
            _forget(event.id, entry.id, key)
        return problem_reply(outcome.problem)
    if outcome.reservation_id == hold_request.reservation_id:  # Held now, not by an earlier request with this key.
        hold_limit.note_activity(slug)
    reply = private_reply_of_json(outcome.answer.body.encode(), outcome.answer.status)
    held_tickets.name_reservation_of_browser(request, reply, outcome.reservation_id)
    return reply


def _validate_request(
    request: Request, caller: queue.Caller | problems.Problem, body: dict[str, Any] | problems.Problem
) -> tuple[queue.Caller, dict[str, Any], str]:
    """Return caller, body and idempotency key. Raises the first error."""
    if isinstance(caller, problems.Problem):
        raise caller
    if not caller.is_known:
        raise problems.TokenMissing
    key = idempotency.key_of(request)
    if isinstance(body, problems.Problem):
        raise body
    count_attempt(caller, body, partial(client_address.address_from_scope, request.scope))
    return caller, body, key


async def _count_areas(request: Request, event: events.EventView, body: dict[str, Any]) -> None:
    """Count the work of a request for the best seats anywhere, which grows with the areas of its event, against the
    limit of its address. Raises RateLimited."""
    asked = body.get("best_available")
    if not isinstance(asked, dict) or asked.get("section") is not None:
        return
    seating = await event_cache.seating.get(event.id)
    units = len(seating.areas) // AREAS_OF_A_HOLD
    wait = rate_limits.check_work("hold", client_address.address_from_scope(request.scope), units)
    if wait is not None:
        raise problems.RateLimited(wait)


_async_gate = AsyncGate(async_redis)
_forget_tasks: set[asyncio.Task[None]] = set()


def _forget(event_id: int, entry_id: uuid.UUID, key: str) -> None:
    """Remove the gate's mark of a refused request, without delaying the response. If the mark is removed late, a retry
    merely passes the gate, and the database decides it."""
    task = asyncio.create_task(thread_pool.run_for_client(gate.forget_request, event_id, entry_id, key))
    _forget_tasks.add(task)
    task.add_done_callback(_on_forget_done)


def _on_forget_done(task: "asyncio.Task[None]") -> None:
    _forget_tasks.discard(task)
    if not task.cancelled():
        # Retrieve the exception (too many calls waited for a thread): asyncio then does not log it. The mark expires.
        task.exception()


async def reservation(request: Request, reservation_id: str) -> Reply:
    """The fast path's version of `ReservationView.get`."""
    caller = await queue.authenticate_async(request)
    view = await thread_pool.run_for_client(get_reservation_for, caller, uuid.UUID(reservation_id))
    return private_reply(view.contract())


hold_limit = ConcurrencyLimit(
    "holds",
    alone_max=settings.LANE_HOLDS_MAX,
    beside_max=settings.LANE_HOLDS_BESIDE_MAX,
    waiting_max=settings.LANE_HOLDS_WAITING_MAX,
    late_seconds=settings.OVERLOAD_WAIT_MS / 1_000,
    find_key=events.cached_slug,
    activity=ActiveEvents(Path(settings.METRICS_FOLDER) / "active-events"),
)

ROUTES = (
    Route("GET", "events/<slug>/sections", sections, "sections", "read"),
    Route("POST", "events/<slug>/reservations", hold, "hold", "hold", hold_limit),
    Route("GET", "reservations/<uuid>", reservation, "reservation", "page"),
)
