"""Which request is the lane's, and what becomes of it: the dispatcher between the server and the handlers."""

import asyncio
import itertools
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from ticketing.kernel import access_log, client_address, limits, origin, problems, telemetry, traffic
from ticketing.kernel.lane import reply
from ticketing.kernel.lane.reply import Reply
from ticketing.kernel.lane.request import ClientGone, Forward, Message, Receive, Request, Scope, Send
from ticketing.kernel.lane.whole import WHOLE
from ticketing.kernel.limits import kinds

logger = logging.getLogger(__name__)

Handler = Callable[[Request, str], Awaitable[Reply]]
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


class Lane:
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The client has its answer, or has gone."""
        found = self._find(scope)
        if found is None:
            await self._hand_on(scope, receive, send)
            return
        route, argument = found
        request = Request(scope, receive)
        if not request.is_plain():
            await self._hand_on(scope, receive, send)
            return
        # Counted here and nowhere else, also if it is forwarded after all.
        scope[limits.COUNTED] = True
        request.id = self._id_of(request)
        telemetry.request_id.set(request.id)
        begun = monotonic()
        traffic.begun()
        try:
            answer = await self._answer(route, request, argument)
            await _send(answer, request, send)
        except Forward:
            await self._hand_on(scope, receive, send)
            return
        except ClientGone:
            return
        finally:
            traffic.ended()
        seconds = monotonic() - begun
        traffic.served(route.name, request.method, answer.status, seconds)
        address = client_address.of_scope(scope)
        event = argument if route.path.startswith("events/") else ""
        access_log.log(request.method, route.name, answer.status, seconds, len(answer.body), request.id, address, event)

    async def _hand_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The site's answer has gone through, and is counted as `forwarded`."""
        begun, status = monotonic(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        await self._forward(scope, receive, noting)
        if status:
            traffic.served("forwarded", scope["method"], status, monotonic() - begun)

    async def _answer(self, route: Route, request: Request, argument: str) -> Reply:
        try:
            # The very check that stands before the site's views.
            wait_seconds = limits.ask(route.kind, client_address.of_scope(request.scope), _named_by(request))
            if wait_seconds is not None:
                raise problems.RateLimited(wait_seconds)
            problem = origin.refusal(request)
            if problem is not None:
                raise problem
            return await route.handler(request, argument)
        except (Forward, ClientGone, asyncio.CancelledError):
            raise
        except problems.Problem as problem:
            return reply.refusal(problem)
        except Exception as error:
            known = problems.from_exception(error)
            if known is None:
                logger.exception("%s %s failed", request.method, request.path)
            return reply.refusal(known or problems.Fault())

    def _id_of(self, request: Request) -> str:
        given = request.headers.plain(b"x-request-id")
        if given is not None and telemetry.REQUEST_ID.fullmatch(name := given.decode("latin-1")):
            return name
        return f"{self._prefix}{next(self._numbers):x}"


def _named_by(request: Request) -> str:
    headers = request.headers
    authorization, cookie = headers.plain(b"authorization"), headers.plain(b"cookie")
    if authorization is not None:
        return authorization.decode("latin-1")
    return kinds.token_of("", cookie.decode("latin-1")) if cookie is not None else ""


def _pattern(path: str) -> str:
    before, kind, after = re.split("<(slug|uuid)>", path)
    return f"{re.escape(ROOT + before)}({_KINDS[kind]}){re.escape(after)}"


async def _send(answer: Reply, request: Request, send: Send) -> None:
    whole = request.scope.get(WHOLE)
    if whole is not None:
        await whole(answer.status, answer.lines(request.id, secure=request.is_secure()), answer.body)
        return
    headers = answer.head(request.id, secure=request.is_secure())
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else answer.body})
