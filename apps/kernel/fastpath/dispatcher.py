"""The fast path's dispatcher: an ASGI application that finds a request's route, checks the request, calls the route's
handler and sends its reply. Requests of no route are forwarded to the site.

Our own server calls `respond_sync` first: a request that needs no wait is answered in the step in which it arrived,
without a task or a coroutine. Every other request, and every request under another server, is handled through ASGI,
from the point that it has reached.
"""

import asyncio
import itertools
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

from apps.kernel import rate_limits
from apps.kernel.fastpath import response
from apps.kernel.fastpath.concurrency_limit import ConcurrencyLimit
from apps.kernel.fastpath.request import ClientDisconnected, ForwardToSite, Message, Receive, Request, Scope, Send
from apps.kernel.fastpath.response import Reply
from apps.kernel.fastpath.server_extensions import DEFERRED, SEND_RESPONSE, OnResponse, RawResponse
from apps.kernel.http import client_address, problems, same_origin
from apps.kernel.observability import access_log, log_context, request_metrics
from apps.kernel.rate_limits import kinds

logger = logging.getLogger(__name__)

Handler = Callable[[Request, str], Awaitable[Reply]]
Continuation = Callable[[], Awaitable[Reply]]
"""The rest of a request's handling, which has to wait."""
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

ROOT = "/api/"
# As Django's converters match them. The site answers what they do not match.
_KINDS = {
    "slug": r"[-a-zA-Z0-9_]+",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
}


@dataclass(frozen=True, slots=True)
class Route:
    """`path` below /api/, with one variable part: `events/<slug>/queue`. A GET route answers HEAD too."""

    method: str
    path: str
    handler: Handler
    name: str
    """In metrics and in the access log."""
    kind: str
    """Of rate limit, one of `rate_limits.KINDS`."""
    respond_sync: "Callable[[Request, str, bytes | bytearray], Reply | PendingAnswer | None] | None" = None
    """`handler` as far as it needs no wait, with the whole body. Returns the reply, or a PendingAnswer, or None if the
    handler is to be called. Raises as the handler does."""
    concurrency_limit: ConcurrencyLimit | None = None
    """Where a request waits while too many of its event are being handled."""


class PendingAnswer(NamedTuple):
    """The future result of a synchronous handler that needs one, and how to continue with it."""

    answer: "asyncio.Future[Any]"
    then: "Callable[[Any], Reply | PendingAnswer | Continuation]"
    """Called with the future's result. Returns the reply, the next PendingAnswer, or a Continuation. A problem that the
    future raises is the reply."""


class _ActiveRequest:
    """A request that a route is handling."""

    __slots__ = ("address", "argument", "has_slot", "is_checked", "request", "rest", "route", "started_at")

    def __init__(self, route: Route, argument: str, request: Request) -> None:
        self.route = route
        self.argument = argument
        self.request = request
        self.address = client_address.address_from_scope(request.scope)
        self.started_at = monotonic()
        self.is_checked = False
        """Its rate limit and its origin have been checked."""
        self.rest: Continuation | None = None
        self.has_slot = False
        """It counts against its route's concurrency limit."""

    def release_slot(self) -> None:
        """It no longer counts against its route's concurrency limit. Idempotent."""
        if self.has_slot and self.route.concurrency_limit is not None:
            self.has_slot = False
            self.route.concurrency_limit.leave(self.argument)


class Dispatcher:
    """An ASGI application for HTTP: the routes, and `forward` for everything else."""

    def __init__(self, routes: Sequence[Route], forward: Application) -> None:
        self._forward = forward
        self._prefix = secrets.token_hex(6)
        self._numbers = itertools.count(1)
        self._patterns: dict[str, tuple[re.Pattern[str], list[Route]]] = {}
        for method in {route.method for route in routes}:
            of_method = [route for route in routes if route.method == method]
            found = re.compile("|".join(_pattern(route.path) for route in of_method)), of_method
            self._patterns[method] = found
            if method == "GET":
                self._patterns["HEAD"] = found

    def _find(self, scope: Scope) -> tuple[Route, str] | None:
        patterns = self._patterns.get(scope["method"])
        found = None if patterns is None else patterns[0].fullmatch(scope["path"])
        # Each alternative has one group, so the last group that matched identifies the alternative.
        if patterns is None or found is None or found.lastindex is None:
            return None
        return patterns[1][found.lastindex - 1], found[found.lastindex]

    def respond_sync(self, scope: Scope, body: bytes | bytearray, later: OnResponse) -> RawResponse | None:
        """Answer without a task if possible, as `server_extensions.RESPOND_SYNC` defines."""
        active = self._accept(scope)
        if active is None or active.route.respond_sync is None:
            return None
        limit = active.route.concurrency_limit
        try:
            self._check_request(active)
            if limit is not None and limit.applies_to(active.argument):
                if not limit.try_acquire(active.argument):
                    limit.wait(active.argument, partial(self._resume, active, body, later))
                    request_metrics.request_started()
                    return DEFERRED
                active.has_slot = True
        except Exception as error:  # noqa: BLE001 - every error becomes a response
            return _finish_request(active, _error_reply(active.request, error))
        answer = self._call_sync_handler(active, body)
        if answer is None:
            scope[_ACTIVE_REQUEST] = active
            return None
        if isinstance(answer, PendingAnswer):
            request_metrics.request_started()
            self._respond(active, later, answer)
            return DEFERRED
        return _finish_request(active, answer)

    def _call_sync_handler(self, active: _ActiveRequest, body: bytes | bytearray) -> Reply | PendingAnswer | None:
        """Return the result of the route's `respond_sync`: None also for ForwardToSite, a reply for any other error."""
        assert active.route.respond_sync is not None
        try:
            return active.route.respond_sync(active.request, active.argument, body)
        except ForwardToSite:
            return None
        except Exception as error:  # noqa: BLE001 - as above
            return _error_reply(active.request, error)

    def _resume(
        self, active: _ActiveRequest, body: bytes | bytearray, later: OnResponse, refusal: problems.Problem | None
    ) -> None:
        """Handle the request: the concurrency limit has admitted or refused it."""
        active.has_slot = refusal is None
        if refusal is not None:
            self._respond(active, later, _error_reply(active.request, refusal))
        elif active.request.has_disconnected():
            self._abandon(active)
        else:
            self._respond(active, later, self._call_sync_handler(active, body))

    def _on_answer(
        self,
        active: _ActiveRequest,
        then: Callable[[Any], Reply | PendingAnswer | Continuation],
        later: OnResponse,
        future: "asyncio.Future[Any]",
    ) -> None:
        if future.cancelled():
            self._abandon(active)  # The process is shutting down.
            return
        answer: Reply | PendingAnswer | Continuation
        try:
            error = future.exception()
            answer = then(future.result()) if error is None else _error_reply(active.request, error)
        except Exception as error:  # noqa: BLE001 - as above
            answer = _error_reply(active.request, error)
        self._respond(active, later, answer)

    def _respond(
        self, active: _ActiveRequest, later: OnResponse, answer: Reply | PendingAnswer | Continuation | None
    ) -> None:
        """Send the reply, or wait for the pending answer, or have the server call `__call__`: for the continuation, or
        without one (None) for the whole handler."""
        if isinstance(answer, PendingAnswer):
            answer.answer.add_done_callback(partial(self._on_answer, active, answer.then, later))
            return
        request_metrics.request_finished()
        if isinstance(answer, Reply):
            later(_finish_request(active, answer))
        else:
            active.rest = answer
            active.request.scope[_ACTIVE_REQUEST] = active
            later(None)

    def _abandon(self, active: _ActiveRequest) -> None:
        """End the request without a reply: its client has disconnected, or the process is shutting down."""
        request_metrics.request_finished()
        active.release_slot()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, unless its client disconnects first."""
        active = scope.pop(_ACTIVE_REQUEST, None) or self._accept(scope)
        if active is None:
            await self._forward_to_site(scope, receive, send)
            return
        request: Request = active.request
        request.receive = receive
        log_context.request_id.set(request.id)
        request_metrics.request_started()
        try:
            answer = await self._answer(active)
            # Before the reply is sent, so that a client that reads slowly, or not at all, keeps no slot.
            active.release_slot()
            await _send(answer, request, send)
        except ForwardToSite:
            active.release_slot()
            await self._forward_to_site(scope, request.receive, send)
            return
        except ClientDisconnected:
            return
        finally:
            active.release_slot()
            request_metrics.request_finished()
        _record_response(active, answer)

    async def _forward_to_site(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request and count the site's response as `forwarded`."""
        started_at, status = monotonic(), 0

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        await self._forward(scope, receive, note_status)
        if status:
            request_metrics.record_response("forwarded", scope["method"], status, monotonic() - started_at)

    def _accept(self, scope: Scope) -> _ActiveRequest | None:
        """Return the request if one of the routes handles it."""
        found = self._find(scope)
        if found is None:
            return None
        request = Request(scope)
        if not request.is_plain():
            return None
        # The rate limit is checked here and nowhere else, also if the handler forwards the request after all.
        scope[rate_limits.COUNTED] = True
        request.id = self._id_of(request)
        return _ActiveRequest(*found, request)

    def _check_request(self, active: _ActiveRequest) -> None:
        """Check the rate limit and the origin as the site does before its views, but only once. Raises the refusal."""
        if active.is_checked:
            return
        request = active.request
        wait_seconds = rate_limits.check_request(active.route.kind, active.address, _get_credentials(request))
        if wait_seconds is not None:
            raise problems.RateLimited(wait_seconds)
        problem = same_origin.find_problem(request)
        if problem is not None:
            raise problem
        active.is_checked = True

    async def _answer(self, active: _ActiveRequest) -> Reply:
        try:
            self._check_request(active)
            limit = active.route.concurrency_limit
            if limit is not None and not active.has_slot and limit.applies_to(active.argument):
                # Before it takes a slot: a client that sends slowly must not keep one.
                await active.request.gather()
                await limit.acquire(active.argument)
                active.has_slot = True
            if active.rest is not None:
                return await active.rest()
            return await active.route.handler(active.request, active.argument)
        except (ForwardToSite, ClientDisconnected, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - every error becomes a response
            return _error_reply(active.request, error)

    def _id_of(self, request: Request) -> str:
        given = request.headers.plain(b"x-request-id")
        if given is not None and log_context.REQUEST_ID.fullmatch(name := given.decode("latin-1")):
            return name
        return f"{self._prefix}{next(self._numbers):x}"


_ACTIVE_REQUEST = "fairgate.begun"


def _error_reply(request: Request, error: BaseException) -> Reply:
    known = problems.from_exception(error)
    if known is None:
        log_context.request_id.set(request.id)
        logger.error("%s %s failed", request.method, request.path, exc_info=error)
    return response.problem_reply(known or problems.Fault())


def _finish_request(active: _ActiveRequest, answer: Reply) -> RawResponse:
    """Count and log the reply, and return it as the server sends it."""
    active.release_slot()
    _record_response(active, answer)
    request = active.request
    return answer.status, answer.lines(request.id, secure=request.is_secure()), answer.body


def _record_response(active: _ActiveRequest, answer: Reply) -> None:
    seconds = monotonic() - active.started_at
    route, request = active.route, active.request
    request_metrics.record_response(route.name, request.method, answer.status, seconds)
    event = active.argument if route.path.startswith("events/") else ""
    access_log.log(
        request.method, route.name, answer.status, seconds, len(answer.body), request.id, active.address, event
    )


def _get_credentials(request: Request) -> str:
    headers = request.headers
    authorization, cookie = headers.plain(b"authorization"), headers.plain(b"cookie")
    if authorization is not None:
        return authorization.decode("latin-1")
    return kinds.token_of("", cookie.decode("latin-1")) if cookie is not None else ""


def _pattern(path: str) -> str:
    before, kind, after = re.split("<(slug|uuid)>", path)
    return f"{re.escape(ROOT + before)}({_KINDS[kind]}){re.escape(after)}"


async def _send(answer: Reply, request: Request, send: Send) -> None:
    send_response = request.scope.get(SEND_RESPONSE)
    if send_response is not None:
        await send_response(answer.status, answer.lines(request.id, secure=request.is_secure()), answer.body)
        return
    headers = answer.head(request.id, secure=request.is_secure())
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else answer.body})
