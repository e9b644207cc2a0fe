"""The fast path's dispatcher: finds a request's route, checks the request, calls the route's handler and returns or
sends its reply. Requests that match no route are forwarded to the site.

Our own server calls `respond_sync` with a completely received request. If the handler never waits, its reply is sent in
the step of the event loop in which the request arrived. Every other request, and every request under another server,
comes through ASGI. The same coroutine answers both.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic

from apps.kernel import rate_limits
from apps.kernel.fastpath import eager, response, thread_pool
from apps.kernel.fastpath.concurrency_limit import ConcurrencyLimit
from apps.kernel.fastpath.request import ClientDisconnected, ForwardToSite, Message, Receive, Request, Scope, Send
from apps.kernel.fastpath.request_ids import request_id_of
from apps.kernel.fastpath.response import Reply
from apps.kernel.fastpath.server_extensions import DEFERRED, SEND_RESPONSE, OnResponse, RawResponse
from apps.kernel.http import client_address, problems, same_origin
from apps.kernel.observability import access_log, log_context, request_metrics
from apps.kernel.rate_limits import kinds

logger = logging.getLogger(__name__)

Handler = Callable[[Request, str], Awaitable[Reply]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

ROOT = "/api/"
# The patterns of Django's path converters. A request that matches none of them is answered by the site.
_KINDS = {
    "slug": r"[-a-zA-Z0-9_]+",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
}


@dataclass(frozen=True, slots=True)
class Route:
    """One call. `path` below /api/ has one variable part, like `events/<slug>/queue`, or none, then the handler gets
    the whole path. A GET route answers HEAD too."""

    method: str
    path: str
    handler: Handler
    name: str
    """The route's name in metrics and in the access log."""
    kind: str | None
    """The kind of the rate limit that applies, one of `rate_limits.KINDS`; None: unlimited."""
    concurrency_limit: ConcurrencyLimit | None = None
    """Limits how many requests of one event, or of all, are handled at once; further ones wait."""


class _ActiveRequest:
    """A request that a route is handling."""

    __slots__ = ("address", "argument", "request", "route", "started_at")

    def __init__(self, route: Route, argument: str, request: Request) -> None:
        self.route = route
        self.argument = argument
        self.request = request
        self.address = client_address.address_from_scope(request.scope)
        self.started_at = monotonic()


class Dispatcher:
    """An ASGI application for HTTP: the routes, and `forward` for everything else."""

    def __init__(self, routes: Sequence[Route], forward: Application) -> None:
        self._forward = forward
        self._patterns: dict[str, tuple[re.Pattern[str], list[Route]]] = {}
        for method in {route.method for route in routes}:
            method_routes = [route for route in routes if route.method == method]
            pattern = re.compile("|".join(_pattern(route.path) for route in method_routes))
            self._patterns[method] = pattern, method_routes
            if method == "GET":
                self._patterns["HEAD"] = pattern, method_routes

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
        if active is None:
            return None
        active.request.whole_body = body
        client = thread_pool.set_client(active.address)
        try:
            reply = eager.start(self._answer(active))
            if isinstance(reply, Reply):
                return _finish_request(active, reply)
            request_metrics.request_started()
            # The coroutine continues in a copy of this context, so the log records of its request have the request's
            # id. Later requests of the connection do not.
            context = log_context.request_id.set(active.request.id)
            reply.resume_later(partial(self._on_reply, active, later))
            log_context.request_id.reset(context)
            return DEFERRED
        except ForwardToSite:
            scope[_FORWARD] = True
            return None
        finally:
            thread_pool.reset_client(client)

    def _on_reply(
        self, active: _ActiveRequest, later: OnResponse, reply: Reply | None, error: BaseException | None
    ) -> None:
        request_metrics.request_finished()
        if reply is not None:
            later(_finish_request(active, reply))
        elif isinstance(error, ForwardToSite):
            active.request.scope[_FORWARD] = True
            later(None)
        # Otherwise the client has disconnected or the process is shutting down: no reply is sent.

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, unless its client disconnects first."""
        active = None if scope.pop(_FORWARD, False) else self._accept(scope)
        if active is None:
            await self._forward_to_site(scope, receive, send)
            return
        request = active.request
        request.receive = receive
        log_context.request_id.set(request.id)
        thread_pool.set_client(active.address)
        request_metrics.request_started()
        try:
            reply = await self._answer(active)
            await _send(reply, request, send)
        except ForwardToSite:
            await self._forward_to_site(scope, request.receive_for_site(), send)
            return
        except ClientDisconnected:
            return
        finally:
            request_metrics.request_finished()
        _record_response(active, reply)

    async def _answer(self, active: _ActiveRequest) -> Reply:
        """Check the request and call its handler, within the route's concurrency limit. Raises ForwardToSite and
        ClientDisconnected; all other errors become a reply."""
        route, request, argument = active.route, active.request, active.argument
        limit = route.concurrency_limit
        key: str | None = None
        """Of the slot that this request occupies."""
        try:
            _check_request(active)
            if limit is not None and (wanted := limit.key_of(argument)) is not None:
                # Read the body before taking a slot: a client that sends slowly must not occupy one.
                await request.gather()
                await limit.acquire(wanted)
                key = wanted
                if request.has_disconnected():
                    raise ClientDisconnected
            return await route.handler(request, argument)
        except (ForwardToSite, ClientDisconnected, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - every error becomes a response
            return _error_reply(request, error)
        finally:
            # Free the slot before the reply is sent, so that a client that reads slowly, or not at all, does not occupy
            # it.
            if limit is not None and key is not None:
                limit.leave(key)

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
        """Return the request if one of the routes handles it, else None."""
        found = self._find(scope)
        if found is None:
            return None
        request = Request(scope)
        if not request.is_plain():
            return None
        # This dispatcher checks the rate limit. With the mark, the site does not count the request again if the handler
        # forwards it after all.
        scope[rate_limits.COUNTED] = True
        request.id = request_id_of(request)
        return _ActiveRequest(*found, request)


_FORWARD = "fairgate.forward"
"""Key in the scope of a request whose handler has raised ForwardToSite."""


def _check_request(active: _ActiveRequest) -> None:
    """Check the rate limit and the origin as the site does before its views. Raises the problem for which the request
    is refused."""
    request = active.request
    kind = active.route.kind
    if kind is not None:
        wait_seconds = rate_limits.check_request(kind, active.address, _get_credentials(request))
        if wait_seconds is not None:
            raise problems.RateLimited(wait_seconds)
    problem = same_origin.find_problem(request)
    if problem is not None:
        raise problem


def _error_reply(request: Request, error: BaseException) -> Reply:
    known = problems.from_exception(error)
    if known is None:
        context = log_context.request_id.set(request.id)
        logger.error("%s %s failed", request.method, request.path, exc_info=error)
        log_context.request_id.reset(context)
    return response.problem_reply(known or problems.Fault())


def _finish_request(active: _ActiveRequest, reply: Reply) -> RawResponse:
    """Count and log the reply, and return it in the form that the server sends."""
    _record_response(active, reply)
    request = active.request
    return reply.status, reply.lines(request.id, secure=request.is_secure()), reply.body


def _record_response(active: _ActiveRequest, reply: Reply) -> None:
    seconds = monotonic() - active.started_at
    route, request = active.route, active.request
    request_metrics.record_response(route.name, request.method, reply.status, seconds)
    event = active.argument if route.path.startswith("events/") else ""
    access_log.log(
        request.method, route.name, reply.status, seconds, len(reply.body), request.id, active.address, event
    )


def _get_credentials(request: Request) -> str:
    headers = request.headers
    authorization, cookie = headers.plain(b"authorization") or b"", headers.plain(b"cookie") or b""
    return kinds.token_of(authorization.decode("latin-1"), cookie.decode("latin-1"))


def _pattern(path: str) -> str:
    before, *variable = re.split("<(slug|uuid)>", path)
    if not variable:
        return f"({re.escape(ROOT + before)})"
    kind, after = variable
    return f"{re.escape(ROOT + before)}({_KINDS[kind]}){re.escape(after)}"


async def _send(reply: Reply, request: Request, send: Send) -> None:
    send_response = request.scope.get(SEND_RESPONSE)
    if send_response is not None:
        await send_response(reply.status, reply.lines(request.id, secure=request.is_secure()), reply.body)
        return
    headers = reply.head(request.id, secure=request.is_secure())
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else reply.body})
