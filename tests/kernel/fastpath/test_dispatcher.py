"""The dispatcher: how it processes a request before and after its handler."""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from apps.kernel import rate_limits
from apps.kernel.fastpath import request as requests
from apps.kernel.fastpath.dispatcher import Dispatcher, Route
from apps.kernel.fastpath.request import ClientDisconnected, ForwardToSite, Request
from apps.kernel.fastpath.response import Reply, private_reply
from apps.kernel.http import client_address, problems
from apps.kernel.observability import request_metrics
from apps.kernel.rate_limits import Limits

SECONDS_MAX = 20


@dataclass
class Server:
    """A dispatcher with GET and POST routes, and the requests that it forwarded."""

    handler: Callable[[Request, str], Any]
    forwarded: list[str] = field(default_factory=list)
    site_answers: int = 0

    def __post_init__(self) -> None:
        self.dispatcher = Dispatcher(
            [
                Route("GET", "events/<slug>/thing", self._handle, "thing", "read"),
                Route("POST", "events/<slug>/thing", self._handle, "do", "write"),
                Route("GET", "things/<uuid>", self._handle, "one", "page"),
            ],
            self._forward,
        )

    async def _handle(self, request: Request, argument: str) -> Reply:
        answer = self.handler(request, argument)
        return await answer if asyncio.iscoroutine(answer) else answer

    async def _forward(self, scope: Any, receive: Any, send: Any) -> None:
        self.forwarded.append(f"{scope['method']} {scope['path']}")
        if self.site_answers:
            await send({"type": "http.response.start", "status": self.site_answers, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    async def ask(
        self,
        method: str = "GET",
        path: str = "/api/events/concert/thing",
        *,
        body: list[bytes] | None = None,
        query: bytes = b"",
        address: str = "203.0.113.1",
        **headers: str,
    ) -> tuple[int, dict[str, str], Any] | None:
        """Return status, headers and document; None if there was no response."""
        messages: list[Any] = []
        parts = list(body or [b""])
        names = {"host": "testserver"} | {name.replace("_", "-"): value for name, value in headers.items()}

        async def receive() -> Any:
            if not parts:
                return {"type": "http.disconnect"}
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(parts) or part == b"more"}

        async def send(message: Any) -> None:
            messages.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query,
            "scheme": "http",
            "client": (address, 1),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in names.items()],
        }
        await self.dispatcher(scope, receive, send)
        if not messages:
            return None
        content = messages[1]["body"]
        given = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
        return messages[0]["status"], given, json.loads(content) if content else None


async def test_own_and_forwarded_responses_are_counted_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[tuple[str, str, int]] = []
    monkeypatch.setattr(
        request_metrics,
        "record_response",
        lambda route, method, status, seconds: counted.append((route, method, status)),
    )

    def forwards(request: Request, argument: str) -> Reply:
        raise ForwardToSite

    await server().ask()
    for forwarding in (server(forwards), server()):
        forwarding.site_answers = 404
        await forwarding.ask(path="/api/events/concert/thing" if forwarding.handler is forwards else "/elsewhere")
    await server(forwards).ask()  # The site sends no response: the client has disconnected.
    assert counted == [("thing", "GET", 200), ("forwarded", "GET", 404), ("forwarded", "GET", 404)]


def server(
    handler: Callable[[Request, str], Any] = lambda request, argument: private_reply({"argument": argument}),
) -> Server:
    return Server(handler)


async def test_a_routes_reply_has_the_headers_that_the_site_sets_on_every_response() -> None:
    result = await server().ask(x_request_id="given-by-the-proxy")
    assert result is not None
    status, headers, document = result
    assert (status, document) == (200, {"argument": "concert"})
    assert headers["x-request-id"] == "given-by-the-proxy"
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert "default-src 'self'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "same-origin"
    assert int(headers["content-length"]) > 0


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/api/events/concert/things", {}),
        ("GET", "/api/events/concert/thing/", {}),
        ("GET", "/api/events/con cert/thing", {}),
        ("GET", "/api/events/concert/thing\n", {}),
        ("GET", "/events/concert/thing", {}),
        ("PUT", "/api/events/concert/thing", {}),
        ("OPTIONS", "/api/events/concert/thing", {}),
        ("GET", "/api/things/0f1d7a52-6c4e-4a8e-9a43-0c9be5d8ae9Z", {}),
        ("GET", "/api/things/0F1D7A52-6C4E-4A8E-9A43-0C9BE5D8AE91", {}),
        ("GET", "/api/events/concert/thing", {"host": "elsewhere.example"}),
        ("GET", "/api/events/concert/thing", {"host": "h\xf6ste"}),
        ("GET", "/api/events/concert/thing", {"accept": "text/html"}),
        ("GET", "/api/events/concert/thing", {"query": b"format=xml"}),
    ],
)
async def test_requests_that_the_fast_path_may_not_answer_are_forwarded(
    method: str, path: str, headers: dict[str, Any]
) -> None:
    target = server()
    assert await target.ask(method, path, **headers) is None
    assert target.forwarded == [f"{method} {path}"]


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/html, */*;q=0.1", "application/*; q=0.5"])
async def test_clients_that_accept_json_are_answered(accept: str) -> None:
    result = await server().ask(accept=accept)
    assert result is not None
    assert result[0] == 200


async def test_a_handler_may_forward_refuse_fail_or_find_its_client_disconnected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def raising(error: BaseException) -> Server:
        def handler(request: Request, argument: str) -> Reply:
            raise error

        return server(handler)

    target = raising(ForwardToSite())
    assert await target.ask() is None
    assert target.forwarded == ["GET /api/events/concert/thing"]
    refused = await raising(problems.TokenMissing()).ask()
    assert refused is not None
    assert (refused[0], refused[2]["type"], refused[1]["www-authenticate"]) == (401, "token-missing", "Bearer")
    assert await raising(ClientDisconnected()).ask() is None
    failed = await raising(ZeroDivisionError("secret")).ask()
    assert failed is not None
    assert (failed[0], failed[2]["type"]) == (500, "fault")
    assert "secret" not in json.dumps(failed[2])
    assert "ZeroDivisionError" in caplog.text


async def test_head_is_answered_without_a_body() -> None:
    result = await server().ask("HEAD")
    assert result is not None
    assert (result[0], result[2]) == (200, None)
    assert int(result[1]["content-length"]) > 0


async def test_a_body_is_read_completely_but_only_up_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def echo(request: Request, argument: str) -> Reply:
        return private_reply(await request.json_object())

    json_type = {"content_type": "application/json"}
    whole = await server(echo).ask("POST", body=[b'{"a":', b"1}"], content_length="7", **json_type)
    assert whole is not None
    assert whole[2] == {"a": 1}
    chunked = await server(echo).ask("POST", body=[b'{"a":', b"1}"], transfer_encoding="chunked", **json_type)
    assert chunked is not None
    assert chunked[2] == {"a": 1}
    nothing = await server(echo).ask("POST")
    assert nothing is not None
    assert nothing[2] == {}
    for headers, kind in (
        ({"content_length": str(10**7)}, "too-large"),
        ({"content_length": "-1"}, "too-large"),
        ({"transfer_encoding": "chunked"}, "too-large"),
    ):
        refused = await server(echo).ask("POST", body=[b"x" * 200_000, b"x" * 200_000], **headers, **json_type)
        assert refused is not None
        assert (refused[0], refused[2]["type"]) == (413, kind)
    wrong = await server(echo).ask("POST", body=[b"{}"], content_length="2", content_type="text/plain")
    assert wrong is not None
    assert wrong[2]["type"] == "unsupported-media-type"
    # Half a body, then the client disconnects.
    assert await server(echo).ask("POST", body=[b"more"], content_length="9", **json_type) is None


async def test_a_client_that_sends_its_body_too_slowly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "BODY_SECONDS_MAX", 0.01)

    parts = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def never() -> Any:
        if parts:
            return parts.pop()
        await asyncio.Event().wait()
        raise AssertionError

    request = Request({"type": "http", "method": "POST", "path": "/", "headers": [(b"content-length", b"2")]}, never)
    with pytest.raises(problems.TimedOut):
        await asyncio.wait_for(request.json_object(), SECONDS_MAX)


@pytest.fixture
def _strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    rates = dict.fromkeys(rate_limits.KINDS, ((0.001, 1), (0.001, 1)))
    monkeypatch.setattr(rate_limits, "check_request", Limits(rates, []).ask)
    client_address.forget_settings()
    yield
    client_address.forget_settings()


@pytest.mark.usefixtures("_strict")
async def test_too_many_requests_get_retry_after_and_each_is_counted_once() -> None:
    target = server()
    first, second = await target.ask(), await target.ask()
    assert first is not None
    assert second is not None
    assert (first[0], second[0], second[2]["type"]) == (200, 429, "rate-limited")
    assert int(second[1]["retry-after"]) >= 1
    other = await target.ask(address="203.0.113.2")
    assert other is not None
    assert other[0] == 200


async def test_retry_after_is_spread_over_several_seconds() -> None:
    seconds = {problems.Busy().headers()["Retry-After"] for _ in range(200)}
    assert seconds == {"1", "2", "3"}
