"""A client of the public API that uses only addresses, headers and JSON, as an external client would.

Two entry points lead to the same services: the site, and the fast path in front of it, which answers some requests
itself and forwards the rest. Both must give the same response to the same request.
"""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from django.conf import settings
from django.http import HttpResponse
from django.test import Client

from tests.support.event_loops import outside_event_loop

PROBLEM = "application/problem+json"


def scraper() -> Client:
    """Return a client with the token of /metrics."""
    return Client(headers={"authorization": f"Bearer {settings.METRICS_TOKEN}"})


@dataclass
class Api:
    """A client of the API that identifies itself by a token, not by a cookie."""

    client: Client = field(default_factory=Client)
    through_fast_path: bool = False

    def call(self, method: str, path: str, body: Any = None, *, token: str = "", key: str = "", **headers: str) -> Any:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            sent["authorization"] = f"Bearer {token}"
        if key:
            sent["idempotency-key"] = key
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        content_type = sent.pop("content-type", "application/json")
        if self.through_fast_path:
            return FastPathCall(
                self.client, method, f"/api{path}", content, {"content-type": content_type, **sent}
            ).answer()
        return self.client.generic(method, f"/api{path}", content, content_type=content_type, headers=sent)

    def get(self, path: str, **kwargs: Any) -> Any:
        return self.call("GET", path, **kwargs)

    def post(self, path: str, body: Any = None, **kwargs: Any) -> Any:
        return self.call("POST", path, body, **kwargs)

    def delete(self, path: str, **kwargs: Any) -> Any:
        return self.call("DELETE", path, **kwargs)

    def join(self, slug: str, **body: Any) -> dict[str, Any]:
        """Join the queue of the event, or find the queue entry of this visitor id."""
        response = self.post(f"/events/{slug}/queue", body)
        assert response.status_code == 201, response.content
        return response.json()

    def admission(self, slug: str, **body: Any) -> str:
        return str(self.join(slug, **body)["admission_token"])


@dataclass
class FastPathCall:
    """One request through the fast path, in this process. The site behind it is Django's test client, which also keeps
    the cookies."""

    client: Client
    method: str
    target: str
    body: bytes
    headers: dict[str, str]
    secure: bool = False
    _messages: list[dict[str, Any]] = field(default_factory=list)
    _forwarded: Any = None
    _is_body_sent: bool = False

    def answer(self) -> Any:
        from ticketing.fastpath_routes import create_dispatcher

        path, _, query = self.target.partition("?")
        headers = {"host": "testserver", **{name.lower(): value for name, value in self.headers.items()}}
        if self.client.cookies and "cookie" not in headers:
            headers["cookie"] = "; ".join(f"{name}={morsel.value}" for name, morsel in self.client.cookies.items())
        if self.body:
            headers["content-length"] = str(len(self.body))
        scope = {
            "type": "http",
            "method": self.method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "scheme": "https" if self.secure else "http",
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
            "client": ("127.0.0.1", 50_000),
        }
        asyncio.run(create_dispatcher(self._forward)(scope, self._receive, self._send))
        return self._forwarded if self._forwarded is not None else self._response()

    async def _receive(self) -> dict[str, Any]:
        # As a server: the body arrives once.
        assert not self._is_body_sent, "the body was received twice"
        self._is_body_sent = True
        return {"type": "http.request", "body": self.body, "more_body": False}

    async def _send(self, message: Any) -> None:
        self._messages.append(message)

    async def _forward(self, scope: Any, receive: Any, send: Any) -> None:
        sent = {name: value for name, value in self.headers.items() if name.lower() != "content-type"}
        content_type = self.headers.get("content-type", "application/json")
        # What the site receives, even if the fast path has read it before.
        body = (await receive())["body"]
        with outside_event_loop():
            self._forwarded = self.client.generic(
                self.method, self.target, body, content_type=content_type, headers=sent, secure=self.secure
            )

    def _response(self) -> Any:
        start, *parts = self._messages
        answer = HttpResponse(b"".join(part.get("body", b"") for part in parts), status=start["status"])
        del answer.headers["Content-Type"]
        for name, value in _decode_headers(start["headers"]):
            if name == "set-cookie":
                answer.cookies.load(value)
            else:
                answer.headers[name] = value
        self.client.cookies.update(answer.cookies)
        answer.json = lambda: json.loads(answer.content)  # type: ignore[attr-defined]
        return answer


def _decode_headers(headers: list[tuple[bytes, bytes]]) -> Iterator[tuple[str, str]]:
    for name, value in headers:
        yield name.decode("latin-1"), value.decode("latin-1")


def assert_problem(response: Any, status: int, kind: str) -> dict[str, Any]:
    """Assert that the response is this problem in the standard form, and return the problem document."""
    assert response.status_code == status, response.content
    assert response.headers["Content-Type"] == PROBLEM
    assert response.headers["Cache-Control"] == "no-store"
    document = response.json()
    assert {"type", "title", "status", "detail"} <= document.keys()
    assert (document["type"], document["status"]) == (kind, status)
    assert (status == 401) == ("WWW-Authenticate" in response.headers)
    return document
