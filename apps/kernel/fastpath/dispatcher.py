"""Which request is the lane's, and what becomes of it: the dispatcher between the server and the handlers.

What can be told without waiting is told at sight, in the very step in which the request came: no task is made for it,
and no coroutine. Everything else, and all of it under another server, goes the way of ASGI, from where it stands.
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
"""What is left to do of a request, with a wait in it."""
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

ROOT = "/api/"
# As Django's converters read them; what they do not match the site says.
_KINDS = {
    "slug": r"[-a-zA-Z0-9_]+",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
}


@dataclass(frozen=True, slots=True)
class Route:
    """`path` below /api/, with one part that varies: `events/<slug>/queue`. HEAD goes with GET."""

    method: str
    path: str
    handler: Handler
    name: str
    """What metrics and the log call it."""
    kind: str
    """Of `limits.KINDS`."""
    respond_sync: "Callable[[Request, str, bytes | bytearray], Reply | PendingAnswer | None] | None" = None
    """The same as `handler`, as far as it goes without waiting, with the whole body: the reply, or what has been asked
    for it, or None where the handler is to be called. Raises as the handler does."""
    concurrency_limit: ConcurrencyLimit | None = None
    """Where it waits while too many of its event are under way."""


class PendingAnswer(NamedTuple):
    """What came of a question that was asked at sight, once its answer is there."""

    answer: "asyncio.Future[Any]"
    then: "Callable[[Any], Reply | PendingAnswer | Continuation]"
    """The reply to whoever asked, by the answer, or what has been asked next, or what else is to be done. A problem for
    an answer is the reply."""


class _ActiveRequest:
    """A request of the lane's that is being answered."""

    __slots__ = ("address", "argument", "at", "has_slot", "is_checked", "request", "rest", "route")

    def __init__(self, route: Route, argument: str, request: Request) -> None:
        self.route = route
        self.argument = argument
        self.request = request
        self.address = client_address.address_from_scope(request.scope)
        self.at = monotonic()
        self.is_checked = False
        """It was counted and is from where it should be."""
        self.rest: Continuation | None = None
        self.has_slot = False
        """It has passed its route's turnstile, and has to leave by it."""

    def leave(self) -> None:
        """It is not under way any more."""
        if self.has_slot and self.route.concurrency_limit is not None:
            self.has_slot = False
            self.route.concurrency_limit.leave(self.argument)


class Dispatcher:
    """An ASGI application for http: the routes, and for everything else `forward`."""

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
        # Each alternative has one group, so the last one that matched tells which alternative it was.
        if patterns is None or found is None or found.lastindex is None:
            return None
        return patterns[1][found.lastindex - 1], found[found.lastindex]

    def respond_sync(self, scope: Scope, body: bytes | bytearray, later: OnResponse) -> RawResponse | None:
        """As `server_extensions.RESPOND_SYNC` describes it."""
        begun = self._accept(scope)
        if begun is None or begun.route.respond_sync is None:
            return None
        turnstile = begun.route.concurrency_limit
        try:
            self._check_request(begun)
            if turnstile is not None and turnstile.applies_to(begun.argument):
                if not turnstile.try_acquire(begun.argument):
                    turnstile.wait(begun.argument, partial(self._resume, begun, body, later))
                    request_metrics.request_started()
                    return DEFERRED
                begun.has_slot = True
        except Exception as error:  # noqa: BLE001 - Whatever it is, the client is told.
            return _finish_request(begun, _error_reply(begun.request, error))
        answer = self._call_sync_handler(begun, body)
        if answer is None:
            scope[_ACTIVE_REQUEST] = begun
            return None
        if isinstance(answer, PendingAnswer):
            request_metrics.request_started()
            self._respond(begun, later, answer)
            return DEFERRED
        return _finish_request(begun, answer)

    def _call_sync_handler(self, begun: _ActiveRequest, body: bytes | bytearray) -> Reply | PendingAnswer | None:
        """What its route tells at sight."""
        assert begun.route.respond_sync is not None
        try:
            return begun.route.respond_sync(begun.request, begun.argument, body)
        except ForwardToSite:
            return None
        except Exception as error:  # noqa: BLE001 - As above.
            return _error_reply(begun.request, error)

    def _resume(
        self, begun: _ActiveRequest, body: bytes | bytearray, later: OnResponse, refusal: problems.Problem | None
    ) -> None:
        """The request's turn has come, or it is refused."""
        begun.has_slot = refusal is None
        if refusal is not None:
            self._respond(begun, later, _error_reply(begun.request, refusal))
        elif begun.request.has_disconnected():
            self._abandon(begun)
        else:
            self._respond(begun, later, self._call_sync_handler(begun, body))

    def _on_answer(
        self,
        begun: _ActiveRequest,
        then: Callable[[Any], Reply | PendingAnswer | Continuation],
        later: OnResponse,
        heard: "asyncio.Future[Any]",
    ) -> None:
        if heard.cancelled():
            self._abandon(begun)  # The process ends.
            return
        answer: Reply | PendingAnswer | Continuation
        try:
            error = heard.exception()
            answer = then(heard.result()) if error is None else _error_reply(begun.request, error)
        except Exception as error:  # noqa: BLE001 - As above.
            answer = _error_reply(begun.request, error)
        self._respond(begun, later, answer)

    def _respond(
        self, begun: _ActiveRequest, later: OnResponse, answer: Reply | PendingAnswer | Continuation | None
    ) -> None:
        """Of a request that is under way: its answer has gone, or will when more is heard, or the server is to call us
        for the rest, and without one for all of it."""
        if isinstance(answer, PendingAnswer):
            answer.answer.add_done_callback(partial(self._on_answer, begun, answer.then, later))
            return
        request_metrics.request_finished()
        if isinstance(answer, Reply):
            later(_finish_request(begun, answer))
        else:
            begun.rest = answer
            begun.request.scope[_ACTIVE_REQUEST] = begun
            later(None)

    def _abandon(self, begun: _ActiveRequest) -> None:
        """Nobody is left to answer."""
        request_metrics.request_finished()
        begun.leave()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The client has its answer, or has gone."""
        begun = scope.pop(_ACTIVE_REQUEST, None) or self._accept(scope)
        if begun is None:
            await self._forward_to_site(scope, receive, send)
            return
        request: Request = begun.request
        request.receive = receive
        log_context.request_id.set(request.id)
        request_metrics.request_started()
        try:
            answer = await self._answer(begun)
            # Before it is sent: a client that reads slowly, or not at all, keeps nobody else's place.
            begun.leave()
            await _send(answer, request, send)
        except ForwardToSite:
            begun.leave()
            await self._forward_to_site(scope, request.receive, send)
            return
        except ClientDisconnected:
            return
        finally:
            begun.leave()
            request_metrics.request_finished()
        _record_response(begun, answer)

    async def _forward_to_site(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The site's answer has gone through, and is counted as `forwarded`."""
        begun, status = monotonic(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        await self._forward(scope, receive, noting)
        if status:
            request_metrics.record_response("forwarded", scope["method"], status, monotonic() - begun)

    def _accept(self, scope: Scope) -> _ActiveRequest | None:
        """The request, if it is the lane's."""
        found = self._find(scope)
        if found is None:
            return None
        request = Request(scope)
        if not request.is_plain():
            return None
        # Counted here and nowhere else, also if it is forwarded after all.
        scope[rate_limits.COUNTED] = True
        request.id = self._id_of(request)
        return _ActiveRequest(*found, request)

    def _check_request(self, begun: _ActiveRequest) -> None:
        """The very checks that stand before the site's views, once. Raises what is to be said."""
        if begun.is_checked:
            return
        request = begun.request
        wait_seconds = rate_limits.check_request(begun.route.kind, begun.address, _get_credentials(request))
        if wait_seconds is not None:
            raise problems.RateLimited(wait_seconds)
        problem = same_origin.find_problem(request)
        if problem is not None:
            raise problem
        begun.is_checked = True

    async def _answer(self, begun: _ActiveRequest) -> Reply:
        try:
            self._check_request(begun)
            turnstile = begun.route.concurrency_limit
            if turnstile is not None and not begun.has_slot and turnstile.applies_to(begun.argument):
                # Before its turn: a client that sends slowly keeps nobody else's place either.
                await begun.request.gather()
                await turnstile.acquire(begun.argument)
                begun.has_slot = True
            if begun.rest is not None:
                return await begun.rest()
            return await begun.route.handler(begun.request, begun.argument)
        except (ForwardToSite, ClientDisconnected, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - Whatever it is, the client is told.
            return _error_reply(begun.request, error)

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


def _finish_request(begun: _ActiveRequest, answer: Reply) -> RawResponse:
    """The answer as it travels, counted and logged."""
    begun.leave()
    _record_response(begun, answer)
    request = begun.request
    return answer.status, answer.lines(request.id, secure=request.is_secure()), answer.body


def _record_response(begun: _ActiveRequest, answer: Reply) -> None:
    seconds = monotonic() - begun.at
    route, request = begun.route, begun.request
    request_metrics.record_response(route.name, request.method, answer.status, seconds)
    event = begun.argument if route.path.startswith("events/") else ""
    access_log.log(
        request.method, route.name, answer.status, seconds, len(answer.body), request.id, begun.address, event
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
    whole = request.scope.get(SEND_RESPONSE)
    if whole is not None:
        await whole(answer.status, answer.lines(request.id, secure=request.is_secure()), answer.body)
        return
    headers = answer.head(request.id, secure=request.is_secure())
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else answer.body})
