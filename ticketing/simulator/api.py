"""Calls of the public HTTP API, timed and counted, with a client's usual handling of overload and lost responses."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from aiohttp.resolver import ThreadedResolver

from ticketing.simulator.plan import is_loopback
from ticketing.simulator.stats import Figures

RESPONSE_SECONDS_MAX = 30
CONNECT_SECONDS_MAX = 10
IDLE_SECONDS_MAX = 4
"""Shorter than the servers' idle timeout, so that the client closes the connection."""
BUSY_TYPES = frozenset({"busy", "ledger-away", "rate-limited", "idempotency-in-progress"})
RETRY_AFTER_SECONDS = 2.0
DOCUMENT_TYPES = ("application/json", "application/problem+json")


@dataclass(frozen=True, slots=True)
class ApiResponse:
    status: int
    document: dict[str, Any]
    sent_at: float
    received_at: float
    retry_after_seconds: float = RETRY_AFTER_SECONDS
    etag: str = ""
    server_time: datetime | None = None
    """The site's clock, to the second. Times in the response are compared with it."""

    @property
    def problem(self) -> str:
        """The problem type of a refusal; empty for other responses."""
        return str(self.document.get("type", "")) if self.status >= 400 else ""

    def seconds_until(self, name: str) -> float | None:
        """Return the seconds from this response to the moment in a field, accurate to a second; None without one."""
        try:
            moment = datetime.fromisoformat(self.document[name])
        except (KeyError, TypeError, ValueError):
            return None
        if moment.tzinfo is None or self.server_time is None:
            return None
        return (moment - self.server_time).total_seconds()


class NoResponse(Exception):
    """No valid response came: the request may or may not have been processed."""


class Busy(Exception):
    """The site asked to retry after `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


@dataclass(slots=True)
class Api:
    """The API of one site, used by all actors over shared connections and without cookies."""

    base: str
    session: aiohttp.ClientSession
    figures: Figures
    _now: Any = field(default_factory=lambda: asyncio.get_running_loop().time)

    async def call(
        self, call: str, method: str, path: str, *, token: str = "", key: str = "", etag: str = "", body: Any = None
    ) -> ApiResponse:
        """Return the response and record it under the call's name. Raises Busy or NoResponse, after which
        clients retry. A server error is recorded as a breach and raises NoResponse too."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if key:
            headers["Idempotency-Key"] = key
        if etag:
            headers["If-None-Match"] = etag
        sent_at = self._now()
        try:
            async with self.session.request(
                method, f"{self.base}/api{path}", headers=headers, json=body, allow_redirects=False
            ) as http:
                raw = await http.read()
                status, headers_received = http.status, http.headers
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.figures.retries[type(error).__name__] += 1
            raise NoResponse(f"{method} {path}: {type(error).__name__} {error}".strip()) from error
        received_at = self._now()
        self.figures.took(call, (received_at - sent_at) * 1_000)
        response = ApiResponse(
            status,
            _document(raw, headers_received) if status != 304 else {},
            sent_at,
            received_at,
            _seconds(headers_received.get("Retry-After", "")),
            headers_received.get("ETag", ""),
            _moment(headers_received.get("Date", "")),
        )
        if status < 400 and (response.document or status == 304):
            return response
        self.figures.refusals[f"{call}: {response.problem or status}"] += 1
        if response.problem in BUSY_TYPES:
            raise Busy(response.retry_after_seconds)
        if status >= 500 or not response.problem:  # A server error, or not a response of this API.
            self.figures.breaches.note(
                "server errors", f"{method} {path}: {status} {raw[:200].decode(errors='replace')}"
            )
            raise NoResponse(f"{method} {path}: {status}")
        return response


def own_address(block: int, number: int) -> str:
    """Return a loopback address of this machine, each in a /24 network of its own. `block` is the first number of the
    block that is not taken. (On Linux every address in 127.0.0.0/8 is one of the machine's own.)"""
    return f"127.{block + number // 250}.{number % 250}.1"


def _document(raw: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON object in a response of this API; empty if there is none."""
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() not in DOCUMENT_TYPES:
        return {}
    try:
        document = json.loads(raw)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _seconds(text: str) -> float:
    return min(60.0, float(text)) if text.isascii() and text.isdigit() and len(text) < 6 else RETRY_AFTER_SECONDS


def _moment(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text)
    except ValueError:
        return None


class _LoopbackOnly(ThreadedResolver):
    """Resolves to addresses of this machine only, even if a name's address has changed since it was checked."""

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> Any:
        found = await super().resolve(host, port, family)
        own = [entry for entry in found if is_loopback(entry["host"])]
        if not own:
            raise OSError(f"{host} is not this machine")
        return own


def open_session(connections: int, *, anywhere: bool, address: str = "") -> aiohttp.ClientSession:
    """Return a client with this many connections at most, without cookies and proxies. `address`: of this machine, from
    which it connects."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=connections,
            local_addr=(address, 0) if address else None,
            keepalive_timeout=IDLE_SECONDS_MAX,
            resolver=None if anywhere else _LoopbackOnly(),
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=RESPONSE_SECONDS_MAX, sock_connect=CONNECT_SECONDS_MAX),
        trust_env=False,
        headers={"Accept": "application/json", "User-Agent": "fairgate-simulate"},
    )
