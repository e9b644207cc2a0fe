"""One call of the public HTTP API, timed and counted, with what any client does about a busy house or a lost answer."""

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

ANSWER_SECONDS_MAX = 30
CONNECT_SECONDS_MAX = 10
IDLE_SECONDS_MAX = 4
"""Shorter than the servers keep an idle connection, so that it is we who close it."""
BUSY_TYPES = frozenset({"busy", "ledger-away", "rate-limited", "idempotency-in-progress"})
RETRY_AFTER_SECONDS = 2.0
DOCUMENT_TYPES = ("application/json", "application/problem+json")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    document: dict[str, Any]
    sent_at: float
    received_at: float
    retry_after_seconds: float = RETRY_AFTER_SECONDS
    etag: str = ""
    server_time: datetime | None = None
    """By the house's own clock, to the second: what it names as a moment is meant by that clock."""

    @property
    def problem(self) -> str:
        """The refusal's type; empty where it is none."""
        return str(self.document.get("type", "")) if self.status >= 400 else ""

    def seconds_until(self, name: str) -> float | None:
        """From this answer to the moment it names so, a second off at most; None where it names none."""
        try:
            moment = datetime.fromisoformat(self.document[name])
        except (KeyError, TypeError, ValueError):
            return None
        if moment.tzinfo is None or self.server_time is None:
            return None
        return (moment - self.server_time).total_seconds()


class NoAnswer(Exception):
    """The call may or may not have arrived: nothing came back that is an answer of this API."""


class Busy(Exception):
    """The house asked to come back in `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


@dataclass(slots=True)
class Api:
    """The API of one event's house, spoken by everybody in the crowd over shared connections and without cookies."""

    base: str
    session: aiohttp.ClientSession
    figures: Figures
    _now: Any = field(default_factory=lambda: asyncio.get_running_loop().time)

    async def call(
        self, call: str, method: str, path: str, *, token: str = "", key: str = "", etag: str = "", body: Any = None
    ) -> Answer:
        """The answer, noted under the call's name. Raises Busy, and NoAnswer. A fault of the house is a breach, and
        NoAnswer too: a client would try again."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if key:
            headers["Idempotency-Key"] = key
        if etag:
            headers["If-None-Match"] = etag
        sent_at = self._now()
        try:
            async with self.session.request(
                method, f"{self.base}/api{path}", headers=headers, json=body, allow_redirects=False
            ) as response:
                raw = await response.read()
                status, answered = response.status, response.headers
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.figures.retries[type(error).__name__] += 1
            raise NoAnswer(f"{method} {path}: {type(error).__name__} {error}".strip()) from error
        received_at = self._now()
        self.figures.took(call, (received_at - sent_at) * 1_000)
        answer = Answer(
            status,
            _document(raw, answered) if status != 304 else {},
            sent_at,
            received_at,
            _seconds(answered.get("Retry-After", "")),
            answered.get("ETag", ""),
            _moment(answered.get("Date", "")),
        )
        if status < 400 and (answer.document or status == 304):
            return answer
        self.figures.refusals[f"{call}: {answer.problem or status}"] += 1
        if answer.problem in BUSY_TYPES:
            raise Busy(answer.retry_after_seconds)
        if status >= 500 or not answer.problem:  # Or an answer that is none of this API's.
            self.figures.breaches.note("faults", f"{method} {path}: {status} {raw[:200].decode(errors='replace')}")
            raise NoAnswer(f"{method} {path}: {status}")
        return answer


def _document(raw: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    """The JSON object an answer of this API is; empty where it is none."""
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
    """Answers with addresses of this machine only, whatever a name has come to mean since it was checked."""

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> Any:
        found = await super().resolve(host, port, family)
        own = [entry for entry in found if is_loopback(entry["host"])]
        if not own:
            raise OSError(f"{host} is not this machine")
        return own


def open_session(connections: int, *, anywhere: bool) -> aiohttp.ClientSession:
    """A client with so many connections at most, that keeps no cookies and knows no proxy."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=connections,
            keepalive_timeout=IDLE_SECONDS_MAX,
            resolver=None if anywhere else _LoopbackOnly(),
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS_MAX, sock_connect=CONNECT_SECONDS_MAX),
        trust_env=False,
        headers={"Accept": "application/json", "User-Agent": "fairgate-simulate"},
    )
