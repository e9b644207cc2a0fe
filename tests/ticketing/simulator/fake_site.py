"""A house that speaks the queue's part of the contract and can be told to break it, so that the crowd can be seen to
notice. It keeps everything in memory and knows nothing of the product."""

import asyncio
import base64
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from ticketing.devserver.ports import LOOPBACK

NEXT_POLL_MS = 20
PROBLEM = "application/problem+json"


def token(number: int | None, place: str) -> str:
    def part(document: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'sub': place, 'num': number})}.x"


def problem(status: int, kind: str, **more: Any) -> web.Response:
    headers = {"Retry-After": "0"} if status == 503 else {}
    return web.json_response(
        {"type": kind, "status": status, **more}, status=status, content_type=PROBLEM, headers=headers
    )


@dataclass(eq=False)
class Spot:
    number: int
    visitor: str
    polls: int = 0

    @property
    def token(self) -> str:
        return token(self.number, self.visitor)


def counts(free: int) -> dict[str, Any]:
    return {"sections": [{"section_id": "floor", "type": "general_admission", "available_seats": free}]}


@dataclass
class Voice:
    """One stream, from the house's side."""

    answer: Any
    is_socket: bool

    async def say(self, kind: str, document: Any, frame_id: str = "") -> None:
        if self.is_socket:
            await self.answer.send_json({"event": kind, "id": frame_id, "data": document})
            return
        named = f"id: {frame_id}\n" if frame_id else ""
        await self.raw(f"event: {kind}\n{named}data: {json.dumps(document)}\n\n".encode())

    async def raw(self, data: bytes) -> None:
        await self.answer.write(data)

    async def stay(self) -> None:
        """Until the listener goes, or the house does."""
        if self.is_socket:
            await self.answer.receive()
            return
        await self.raw(b": \n\n")
        await asyncio.Event().wait()


async def tells_the_truth(voice: Voice, number: int, house: "House") -> None:
    await voice.say("queue", {"now_serving": 1})
    await voice.say("sections", counts(house.free), "e-1")
    await voice.stay()


@dataclass
class Streams:
    speaks: Callable[[Voice, int, "House"], Awaitable[None]] = tells_the_truth
    refuses: Callable[[int], web.Response | None] = lambda number: None
    came: list[str] = field(default_factory=list)
    """What each said that it had read."""


@dataclass
class House:
    """Lets in whoever has asked `polls_to_wait` times. `breaks` changes what it answers: see the tests."""

    polls_to_wait: int = 2
    base: str = ""
    breaks: Callable[[str, Spot, dict[str, Any]], web.Response | None] = lambda call, spot, answer: None
    spots: dict[str, Spot] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    free: int = 20
    """Places left in its only section, as it says to who asks."""
    streams: "Streams" = field(default_factory=Streams)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))

    def place(self, call: str, spot: Spot) -> web.Response:
        behind = self.polls_to_wait - spot.polls
        answer: dict[str, Any] = {
            "status": "waiting" if behind > 0 else "ready",
            "position_in_queue": max(0, behind),
            "estimated_wait_range": [0, 60],
            "next_poll": NEXT_POLL_MS,
        }
        if behind <= 0:
            answer |= {"admission_token": spot.token, "expires_at": in_minutes(5)}
        if call == "join":
            answer["queue_token"] = spot.token
        broken = self.breaks(call, spot, answer)
        return broken or web.json_response(answer, status=201 if call == "join" else 200)

    async def event(self, request: web.Request) -> web.Response:
        if request.match_info["event"] != "concert":
            return problem(404, "not-found")
        return web.json_response({"seats_per_reservation": 4, "per_buyer_cap": None})

    async def sections(self, request: web.Request) -> web.Response:
        self.asked.append(("sections", request.headers.get("If-None-Match", "")))
        if request.headers.get("If-None-Match") == '"1"':
            return web.Response(status=304, headers={"ETag": '"1"'})
        return web.json_response(counts(self.free), headers={"ETag": '"1"'})

    async def updates(self, request: web.Request) -> web.StreamResponse:
        """Each stream is told what `streams.speaks` does."""
        is_socket = request.headers.get("Upgrade", "").lower() == "websocket"
        answer: Any = web.WebSocketResponse() if is_socket else web.StreamResponse()
        if not is_socket:
            answer.content_type = "text/event-stream"
            answer.enable_chunked_encoding()
        self.streams.came.append(request.headers.get("Last-Event-ID") or request.query.get("since", ""))
        refusal = self.streams.refuses(len(self.streams.came))
        if refusal is not None:
            return refusal
        await answer.prepare(request)
        with suppress(ConnectionError):  # The listener may go at any moment.
            await self.streams.speaks(Voice(answer, is_socket), len(self.streams.came), self)
        return answer  # type: ignore[no-any-return]

    async def join(self, request: web.Request) -> web.Response:
        visitor = (await request.json())["visitor_id"]
        if visitor not in self.spots:
            self.spots[visitor] = Spot(next(self._numbers), visitor)
        return self.place("join", self.spots[visitor])

    async def status(self, request: web.Request) -> web.Response:
        spot = self.spot_of(request)
        spot.polls += 1
        return self.place("poll", spot)

    async def leave(self, request: web.Request) -> web.Response:
        spot = self.spot_of(request)
        self.left.append(spot.visitor)
        return web.json_response({"status": "left", "position_in_queue": 0, "next_poll": 60_000})

    def spot_of(self, request: web.Request) -> Spot:
        said = request.headers["Authorization"].removeprefix("Bearer ").split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(said + "=" * (-len(said) % 4)))
        return self.spots[claims["sub"]]


def in_minutes(minutes: float) -> str:
    return (datetime.now(UTC) + timedelta(minutes=minutes)).isoformat()


@asynccontextmanager
async def open_house(**habits: Any) -> AsyncIterator[House]:
    house = House(**habits)
    application = web.Application()
    application.add_routes(
        [
            web.get("/api/events/{event}", house.event),
            web.get("/api/events/{event}/sections", house.sections),
            web.get("/api/events/{event}/sections/updates", house.updates),
            web.post("/api/events/{event}/queue", house.join),
            web.delete("/api/events/{event}/queue", house.leave),
            web.get("/api/events/{event}/queue/status", house.status),
        ]
    )
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    site = web.TCPSite(runner, LOOPBACK, 0)
    await site.start()
    (address,) = runner.addresses
    house.base = f"http://{LOOPBACK}:{address[1]}"
    try:
        yield house
    finally:
        await runner.cleanup()
