"""A fake site that implements the queue's part of the API and can be made to break its rules, so that tests can check
that the simulator notices. It keeps everything in memory and uses no product code."""

import asyncio
import base64
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import altcha
from aiohttp import web

from ticketing.devserver.ports import LOOPBACK

NEXT_POLL_MS = 20
PROBLEM = "application/problem+json"


def token(number: int | None, subject: str) -> str:
    def part(document: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'sub': subject, 'num': number})}.x"


def problem(status: int, kind: str, **more: Any) -> web.Response:
    headers = {"Retry-After": "0"} if status == 503 else {}
    return web.json_response(
        {"type": kind, "status": status, **more}, status=status, content_type=PROBLEM, headers=headers
    )


@dataclass(eq=False)
class Entry:
    number: int
    visitor: str
    polls: int = 0

    @property
    def token(self) -> str:
        return token(self.number, self.visitor)


def counts(free: int) -> dict[str, Any]:
    return {"sections": [{"section_id": "floor", "type": "general_admission", "available_seats": free}]}


@dataclass
class FakeStream:
    """One live stream, seen from the site."""

    response: Any
    is_socket: bool

    async def send(self, kind: str, document: Any, frame_id: str = "") -> None:
        if self.is_socket:
            await self.response.send_json({"event": kind, "id": frame_id, "data": document})
            return
        named = f"id: {frame_id}\n" if frame_id else ""
        await self.raw(f"event: {kind}\n{named}data: {json.dumps(document)}\n\n".encode())

    async def raw(self, data: bytes) -> None:
        await self.response.write(data)

    async def stay(self) -> None:
        """Wait until either side ends the stream."""
        if self.is_socket:
            await self.response.receive()
            return
        await self.raw(b": \n\n")
        await asyncio.Event().wait()


async def send_counts(stream: FakeStream, number: int, site: "FakeSite") -> None:
    await stream.send("queue", {"now_serving": 1})
    await stream.send("sections", counts(site.free), "e-1")
    await stream.stay()


@dataclass
class Streams:
    serve: Callable[[FakeStream, int, "FakeSite"], Awaitable[None]] = send_counts
    refuse: Callable[[int], web.Response | None] = lambda number: None
    last_event_ids: list[str] = field(default_factory=list)
    """The last event id that each connection sent."""


@dataclass
class FakeSite:
    """Admits a visitor after `polls_to_wait` polls. `breaks` changes its responses: see the tests."""

    polls_to_wait: int = 2
    base: str = ""
    breaks: Callable[[str, Entry, dict[str, Any]], web.Response | None] = lambda call, entry, document: None
    entries: dict[str, Entry] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    free: int = 20
    """Availability of its only section."""
    streams: "Streams" = field(default_factory=Streams)
    work_counter: int = 0
    """Each join needs the solution of a challenge with this counter; 0: none does."""
    holders: set[str] = field(default_factory=set)
    """Visitors with a reservation: they cannot leave."""
    sells: bool = False
    """Holds and checkouts succeed, and the payment of every order takes longer than any run."""
    lets_go: bool = True
    """Visitors without a reservation can leave."""
    addresses: set[str] = field(default_factory=set)
    """From which joins came."""
    _numbers: Any = field(default_factory=lambda: itertools.count(1))

    def status_response(self, call: str, entry: Entry) -> web.Response:
        behind = self.polls_to_wait - entry.polls
        document: dict[str, Any] = {
            "status": "waiting" if behind > 0 else "ready",
            "position_in_queue": max(0, behind),
            "estimated_wait_range": [0, 60],
            "next_poll": NEXT_POLL_MS,
        }
        if behind <= 0:
            document |= {"admission_token": entry.token, "expires_at": in_minutes(5)}
        if call == "join":
            document["queue_token"] = entry.token
        broken = self.breaks(call, entry, document)
        return broken or web.json_response(document, status=201 if call == "join" else 200)

    async def event(self, request: web.Request) -> web.Response:
        if request.match_info["event"] != "concert":
            return problem(404, "not-found")
        return web.json_response({"seats_per_reservation": 4, "per_buyer_cap": None})

    async def sections(self, request: web.Request) -> web.Response:
        self.requests.append(("sections", request.headers.get("If-None-Match", "")))
        if request.headers.get("If-None-Match") == '"1"':
            return web.Response(status=304, headers={"ETag": '"1"'})
        return web.json_response(counts(self.free), headers={"ETag": '"1"'})

    async def updates(self, request: web.Request) -> web.StreamResponse:
        """Serve a stream as `streams.serve` does."""
        is_socket = request.headers.get("Upgrade", "").lower() == "websocket"
        response: Any = web.WebSocketResponse() if is_socket else web.StreamResponse()
        if not is_socket:
            response.content_type = "text/event-stream"
            response.enable_chunked_encoding()
        self.streams.last_event_ids.append(request.headers.get("Last-Event-ID") or request.query.get("since", ""))
        refusal = self.streams.refuse(len(self.streams.last_event_ids))
        if refusal is not None:
            return refusal
        await response.prepare(request)
        with suppress(ConnectionError):  # The listener may close the stream at any time.
            await self.streams.serve(FakeStream(response, is_socket), len(self.streams.last_event_ids), self)
        return response  # type: ignore[no-any-return]

    async def join(self, request: web.Request) -> web.Response:
        body = await request.json()
        visitor = body["visitor_id"]
        self.addresses.add(request.remote or "")
        if self.work_counter and "proof" not in body:
            return problem(428, "work-required", challenge=challenge(self.work_counter))
        if self.work_counter:
            assert altcha.verify_solution(body["proof"], "a secret").verified
        if visitor not in self.entries:
            self.entries[visitor] = Entry(next(self._numbers), visitor)
        return self.status_response("join", self.entries[visitor])

    async def status(self, request: web.Request) -> web.Response:
        entry = self.entry_of(request)
        entry.polls += 1
        return self.status_response("poll", entry)

    async def hold(self, request: web.Request) -> web.Response:
        if not self.sells:
            return problem(404, "not-found")
        self.holders.add(self.entry_of(request).visitor)
        return web.json_response({"reservation_id": "r-1", "reserved_until": in_minutes(5)}, status=201)

    async def checkout(self, request: web.Request) -> web.Response:
        return web.json_response({"order_id": "o-1"}, status=202)

    async def order(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "paying"})

    async def leave(self, request: web.Request) -> web.Response:
        entry = self.entry_of(request)
        if entry.visitor in self.holders or not self.lets_go:
            return problem(409, "still-holding")
        self.left.append(entry.visitor)
        return web.json_response({"status": "left", "position_in_queue": 0, "next_poll": 60_000})

    def entry_of(self, request: web.Request) -> Entry:
        payload = request.headers["Authorization"].removeprefix("Bearer ").split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return self.entries[claims["sub"]]


def challenge(counter: int) -> dict[str, Any]:
    return altcha.create_challenge("SHA-256", 1, counter=counter, hmac_secret="a secret").to_dict()


def in_minutes(minutes: float) -> str:
    return (datetime.now(UTC) + timedelta(minutes=minutes)).isoformat()


@asynccontextmanager
async def open_site(**options: Any) -> AsyncIterator[FakeSite]:
    fake = FakeSite(**options)
    application = web.Application()
    application.add_routes(
        [
            web.get("/api/events/{event}", fake.event),
            web.get("/api/events/{event}/sections", fake.sections),
            web.get("/api/events/{event}/sections/updates", fake.updates),
            web.post("/api/events/{event}/queue", fake.join),
            web.post("/api/events/{event}/reservations", fake.hold),
            web.post("/api/reservations/{reservation}/checkout", fake.checkout),
            web.get("/api/orders/{order}", fake.order),
            web.delete("/api/events/{event}/queue", fake.leave),
            web.get("/api/events/{event}/queue/status", fake.status),
        ]
    )
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    site = web.TCPSite(runner, LOOPBACK, 0)
    await site.start()
    (address,) = runner.addresses
    fake.base = f"http://{LOOPBACK}:{address[1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()
