"""Which request is the lane's, and what becomes of it: the dispatcher between the server and the handlers."""

import asyncio
import itertools
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from ticketing.kernel import origin, problems, telemetry
from ticketing.kernel.lane import reply
from ticketing.kernel.lane.reply import Reply
from ticketing.kernel.lane.request import ClientGone, Forward, Receive, Request, Scope, Send

logger = logging.getLogger(__name__)

Handler = Callable[[Request, str], Awaitable[Reply]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

ROOT = "/api/"
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{8,64}")
# As Django's converters read them; what they do not match the site says.
_KINDS = {
    "slug": re.compile(r"[-a-zA-Z0-9_]+"),
    "uuid": re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
}


@dataclass(frozen=True, slots=True)
class Route:
    """`path` below /api/, with one part that varies: `events/<slug>/queue`. HEAD goes with GET."""

    method: str
    path: str
    handler: Handler
    name: str
    """What metrics and the log call it."""


_Match = tuple[tuple[str, ...], re.Pattern[str], Route]


class Lane:
    """An ASGI application for http: the routes, and for everything else `forward`."""

    def __init__(self, routes: Sequence[Route], forward: Application) -> None:
        self._forward = forward
        self._matches: dict[tuple[str, int], list[_Match]] = {}
        self._prefix = secrets.token_hex(6)
        self._numbers = itertools.count(1)
        for route in routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        parts = route.path.split("/")
        # The one part that varies comes second in each of ours.
        kind = _KINDS[parts[1].strip("<>")]
        literal = (parts[0], *parts[2:])
        for method in (route.method, *(["HEAD"] if route.method == "GET" else [])):
            self._matches.setdefault((method, len(parts)), []).append((literal, kind, route))

    def _find(self, scope: Scope) -> tuple[Route, str] | None:
        path: str = scope["path"]
        if not path.startswith(ROOT):
            return None
        parts = path[len(ROOT) :].split("/")
        for literal, kind, route in self._matches.get((scope["method"], len(parts)), ()):
            if literal[0] == parts[0] and literal[1:] == tuple(parts[2:]):
                return (route, parts[1]) if kind.fullmatch(parts[1]) else None
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The client has its answer, or has gone."""
        found = self._find(scope)
        if found is None:
            await self._forward(scope, receive, send)
            return
        route, argument = found
        request = Request(scope, receive)
        if not request.is_plain():
            await self._forward(scope, receive, send)
            return
        request.id = self._id_of(request)
        telemetry.request_id.set(request.id)
        try:
            answer = await self._answer(route, request, argument)
        except Forward:
            await self._forward(scope, receive, send)
            return
        except ClientGone:
            return
        await _send(answer, request, send)

    async def _answer(self, route: Route, request: Request, argument: str) -> Reply:
        try:
            # The very check that stands before the site's views.
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
        if given is not None and _REQUEST_ID.fullmatch(given):
            return given.decode()
        return f"{self._prefix}{next(self._numbers):x}"


async def _send(answer: Reply, request: Request, send: Send) -> None:
    headers = answer.head(request.id, secure=request.is_secure())
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else answer.body})
